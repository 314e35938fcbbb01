"""init() after shutdown(): on the connections of the last world where all ranks still have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.named_hosts import run_ranks

LIMIT = 300.0
PATIENT = 60
SOON = 4
ONE_HOST = (0, 0, 0)
TWO_HOSTS = (0, 0, 1, 1)
WORLDS = pytest.mark.parametrize(
    "host_of",
    [
        pytest.param(ONE_HOST, id="one host"),
        pytest.param(TWO_HOSTS, id="two hosts", marks=pytest.mark.slow),
    ],
)

# `met` counts how often the ranks had to meet from the beginning.
PRELUDE = """
import os, signal, threading, time
import numpy as np
import sirtaki as hvd
from sirtaki.core.world import lifecycle, links

met = []
join_world = links.join_world
def counted(*arguments):
    met.append(1)
    return join_world(*arguments)
links.join_world = counted
launched, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])

def live(number, **arguments):
    hvd.init(**arguments)
    own = np.full(100_000, hvd.rank() + number, np.float64)
    total = size * number + size * (size - 1) / 2
    assert (hvd.allreduce(own, op=hvd.Sum) == total).all()
    assert hvd.broadcast(np.array([hvd.rank()]), size - 1)[0] == size - 1
    hvd.barrier()

def end():
    hvd.shutdown()

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(
    code: str, folder: Path, host_of: Sequence[int], timeout: float = PATIENT, tls: bool = False
) -> tuple[list[str], list[str]]:
    """What each rank printed, and the last line of its errors."""
    done = run_ranks(PRELUDE + code, folder, tuple(host_of), LIMIT, timeout, tls)
    return (
        [rank.stdout.strip() for rank in done],
        [(rank.stderr.strip().splitlines() or [""])[-1] for rank in done],
    )


# ---- Going on ----

TWENTY = """
for number in range(20):
    first, ends = hvd.ProcessSet([0]), hvd.ProcessSet([0, size - 1])
    live(number, process_sets=[first, ends])
    assert (first.process_set_id, ends.process_set_id) == (1, 2)
    if ends.included():
        both = hvd.allreduce(np.full(5_000, 1.0), op=hvd.Sum, process_set=ends)
        assert (both == 2).all()
    hvd.barrier()
    end()
print(len(met))
"""


@pytest.mark.parametrize(
    ("host_of", "tls"),
    [
        pytest.param(ONE_HOST, False, id="one host"),
        pytest.param(TWO_HOSTS, False, id="two hosts", marks=pytest.mark.slow),
        pytest.param((0, 1, 1), True, id="encrypted", marks=pytest.mark.nightly),
    ],
)
def test_twenty_engines_with_process_sets_are_right_on_the_links_of_one_meeting(
    tmp_path: Path, host_of: Sequence[int], tls: bool
) -> None:
    printed, errors = run(TWENTY, tmp_path, host_of, tls=tls)
    assert printed == ["1"] * len(host_of), errors


@WORLDS
def test_threads_take_turns_and_a_forked_child_leaves_its_parents_links_alone(
    tmp_path: Path, host_of: Sequence[int]
) -> None:
    code = """
def in_thread(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join()
for number in range(5):
    in_thread(live, number)
    in_thread(end)
kept = lifecycle._Process.links
if os.fork() == 0:
    used = kept.renew(kept._settings)
    kept.core.close()
    lifecycle._leave()
    os._exit(3 if used else 0)
assert os.wait()[1] == 0
live(5)
end()
print(len(met))
"""
    printed, errors = run(code, tmp_path, host_of)
    assert printed == ["1"] * len(host_of), errors


# ---- Meeting anew ----

CHANGES = {
    "lost its links": "lifecycle._Process.links.close(); lifecycle._Process.links = None",
    "has other settings": "os.environ['SIRTAKI_DIRECT_HOSTS'] = '2'",
    "has other cores": "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])",
}


@WORLDS
def test_all_meet_anew_when_one_rank_cannot_go_on_or_the_membership_is_another(
    tmp_path: Path, host_of: Sequence[int]
) -> None:
    code = f"""
def meetings():
    met.clear()
    for number in (2, 3):
        live(number)
        end()
    return len(met)
live(1)
end()
for name, change in {CHANGES}.items():
    for who in (0, size - 1):
        if launched == who:
            exec(change)
        print(name, meetings())
for number in range(3):
    live(number, comm=None if number % 2 else list(reversed(range(size))))
    end()
print(len(met))
"""
    printed, errors = run(code, tmp_path, host_of)
    once_each = [f"{name} 1" for name in CHANGES for _ in ("first", "last")]
    for said in printed:
        # One of the last change, and one of each membership.
        assert said.splitlines() == [*once_each, "4"], errors


# ---- Ranks that are gone ----

ERROR = """
try:
    hvd.init()
    hvd.barrier()
except Exception as error:
    print(type(error).__name__, error)
"""


@WORLDS
def test_a_rank_killed_between_two_engines_is_named(tmp_path: Path, host_of: Sequence[int]) -> None:
    code = """
live(1)
end()
if launched == 1:
    die()
"""
    printed, _ = run(code + ERROR, tmp_path, host_of, SOON)
    assert "local ranks [1]" in printed[0]
    for text in (said for rank, said in enumerate(printed) if rank != 1):
        assert text.startswith(("TimeoutError", "ConnectionError")), printed


@WORLDS
@pytest.mark.parametrize("waits", [0, -1], ids=["first", "last"])
def test_a_rank_killed_while_it_waits_for_the_others_is_missed(
    tmp_path: Path, host_of: Sequence[int], waits: int
) -> None:
    code = f"""
live(1)
end()
if launched == 1:
    threading.Timer(0.3, die).start()
elif launched == {waits} % size:
    time.sleep(1)
"""
    printed, _ = run(code + ERROR, tmp_path, host_of, SOON)
    assert printed[1] == ""
    assert "local ranks [1]" in printed[0]
    for text in (said for rank, said in enumerate(printed) if rank != 1):
        assert text.startswith(("TimeoutError", "ConnectionError")), printed


@WORLDS
@pytest.mark.parametrize(
    "dies",
    [
        pytest.param(0, id="first"),
        pytest.param(1, id="second", marks=pytest.mark.nightly),
        pytest.param(-1, id="last"),
    ],
)
def test_a_rank_killed_at_any_moment_of_the_hand_over_leaves_an_error_not_a_hang(
    tmp_path: Path, host_of: Sequence[int], dies: int
) -> None:
    code = f"""
live(1)
end()
if launched == {dies} % size:
    threading.Timer(0.05 * np.random.default_rng().random(), die).start()
try:
    while True:
        hvd.init()
        end()
except Exception as error:
    print(type(error).__name__)
"""
    printed, errors = run(code, tmp_path, host_of, SOON)
    known = {"PeerLostError", "TimeoutError", "ConnectionError", "HorovodInternalError", "OSError"}
    assert printed.pop(dies) == ""
    assert set(printed) <= known, errors


@WORLDS
def test_a_rank_that_does_not_come_again_is_named(tmp_path: Path, host_of: Sequence[int]) -> None:
    code = """
live(1)
end()
if launched == size - 1:
    time.sleep(6)
    os._exit(0)
"""
    printed, _ = run(code + ERROR, tmp_path, host_of, SOON)
    for text in printed[:-1]:
        assert f"rank {len(host_of) - 1} (" in text, printed
        assert "did not call init() again within 4 s" in text


@WORLDS
def test_a_lost_world_leaves_no_links(tmp_path: Path, host_of: Sequence[int]) -> None:
    code = """
try:
    live(1)
    if launched == 1:
        die()
    while True:
        hvd.allreduce(np.ones(10))
except hvd.PeerLostError:
    end()
    print(lifecycle._Process.links)
"""
    printed, errors = run(code, tmp_path, host_of)
    assert [text for rank, text in enumerate(printed) if rank != 1] == ["None"] * (
        len(host_of) - 1
    ), errors
