"""Ranks that are really started: on which CPUs they run, and with how many threads."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import sirtaki
from sirtaki.launch.cores.binding import gpu_share, own_processors, shares_here, too_few_cpus
from sirtaki.launch.cores.processors import format_cpus
from sirtaki.launch.cores.shares import Share, share_out
from tests import needs
from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job, python

pytestmark = pytest.mark.job

TELL = """
import json, os
rank = os.environ["HOROVOD_RANK"]
print(json.dumps([rank, sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS")]))
"""
# So that nothing of the tests' own surroundings is taken for the user's.
UNSET = {"OMP_NUM_THREADS": "", "OMP_PLACES": "", "GOMP_CPU_AFFINITY": "", "KMP_AFFINITY": ""}
MASK = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(
    len(own_processors().cores) < 2 or own_processors().limit is not None,
    reason=needs.missing("two cores without a quota, so that two ranks are bound"),
)


def told(done: subprocess.CompletedProcess[str]) -> list[tuple[list[int], str | None]]:
    """The CPUs and the number of threads of each rank, by rank."""
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":")[2] for line in done.stdout.splitlines() if "<stdout>" in line]
    return [(cpus, threads) for _, cpus, threads in sorted(map(json.loads, lines))]


def ranks(count: int, *flags: str, **variables: str) -> list[tuple[list[int], str | None]]:
    arguments = ("-np", str(count), *flags, *python(TELL))
    return told(Job().run(*arguments, **{**UNSET, **variables}))


def expected(count: int) -> list[tuple[list[int], str]]:
    shares = share_out(own_processors(), count, "core")
    return [(list(share.cpus or MASK), str(share.threads)) for share in shares]


@needs_two_cores
def test_two_ranks_share_the_cores_without_being_told() -> None:
    first, second = ranks(2)
    assert [first, second] == expected(2)
    assert set(first[0]).isdisjoint(second[0])


def test_one_rank_is_not_bound_and_computes_with_every_core() -> None:
    found = own_processors()
    cores = len(found.cores)
    room = cores if found.limit is None else max(1, min(cores, int(found.limit)))
    assert ranks(1) == [(MASK, str(room))]


def test_more_ranks_than_cores_are_not_bound_and_have_a_thread_each() -> None:
    count = len(own_processors().cores) + 1
    assert ranks(count) == [(MASK, "1")] * count


def test_bind_to_none_leaves_the_number_of_threads() -> None:
    assert ranks(2, "--bind-to", "none") == [(MASK, threads) for _, threads in expected(2)]


@pytest.mark.parametrize("mode", ["numa", "socket"])
def test_a_file_of_settings_can_say_what_the_flag_says(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"bind_to: {mode}\n")
    shares = share_out(own_processors(), 2, mode)
    cpus = [cpus for cpus, _ in ranks(2, "--config-file", str(file))]
    assert cpus == [list(share.cpus or MASK) for share in shares]


@needs_two_cores
def test_listed_cpus_go_to_the_local_ranks_in_their_order() -> None:
    listed = f"{MASK[1]}:{MASK[0]}"
    assert ranks(2, "--bind-to", listed) == [([MASK[1]], "1"), ([MASK[0]], "1")]


@pytest.mark.parametrize("way", ["environment", "-x", "before the command"])
def test_the_users_number_of_threads_wins(way: str) -> None:
    flags = ["-x", "OMP_NUM_THREADS=7"] if way == "-x" else []
    before = ["OMP_NUM_THREADS=7"] if way == "before the command" else []
    variables = {"OMP_NUM_THREADS": "7"} if way == "environment" else {}
    assert [threads for _, threads in ranks(2, *flags, *before, **variables)] == ["7", "7"]


@pytest.mark.parametrize("name", ["OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"])
def test_who_binds_threads_by_openmp_is_not_bound_by_us(name: str) -> None:
    assert [cpus for cpus, _ in ranks(2, **{name: "disabled"})] == [MASK, MASK]


@needs_two_cores
def test_the_flag_binds_beside_openmp() -> None:
    assert ranks(2, "--bind-to", "core", KMP_AFFINITY="disabled") == expected(2)


@needs_two_cores
def test_a_function_that_is_run_on_ranks_finds_them_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)

    def tell() -> tuple[list[int], str | None]:
        return sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS")

    assert sirtaki.run(tell, num_proc=2) == expected(2)


@needs_two_cores
def test_where_a_scheduler_lets_a_job_run_on_more_cores_than_it_has_nothing_is_bound() -> None:
    one_core = shares_here(2, None, {}, cpus=1)
    assert one_core == [Share((), 1), Share((), 1)]
    cores = len(own_processors().cores)
    assert shares_here(2, None, {}, cpus=cores) == shares_here(2, None, {})


@pytest.mark.parametrize(
    ("place", "gpus", "visible", "share"),
    [
        (0, None, "4,5,6,7", None),
        (1, 2, "4,5,6,7", "6,7"),
        (1, 2, "", "2,3"),
        (1, 1, "GPU-a,GPU-b", "GPU-b"),
    ],
)
def test_a_rank_sees_its_own_gpus_where_each_has_some(
    place: int, gpus: int | None, visible: str, share: str | None
) -> None:
    expected = {} if share is None else {"CUDA_VISIBLE_DEVICES": share}
    assert gpu_share(place, gpus, {"CUDA_VISIBLE_DEVICES": visible}) == expected


def bound_by_user(cpus: Iterable[int], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["taskset", "-c", format_cpus(cpus), *HOROVODRUN, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, **UNSET},
    )


def test_what_taskset_has_left_is_what_is_shared() -> None:
    done = bound_by_user(MASK[-1:], "-np", "2", *python(TELL))
    assert told(done) == [(MASK[-1:], "1")] * 2


def test_a_listed_cpu_outside_of_the_mask_is_refused() -> None:
    cpu = MASK[-1] + 1
    flags = ("--bind-to", f"{MASK[0]}:{cpu}")
    for more in ([], ["--dry-run"]):
        done = Job().run("-np", "2", *flags, *more, *python(TELL))
        assert done.returncode == 2
        assert done.stdout == ""
        assert (
            f"--bind-to {MASK[0]}:{cpu}: local rank 1 is to have CPU {cpu}, but the job may use "
            f"only {format_cpus(MASK)} there" in done.stderr
        )


NESTED = f"""
import os, subprocess, sys
command = [*{HOROVODRUN!r}, "-np", "1", "--verbose", "true"]
done = subprocess.run(command, capture_output=True, text=True)
print([line for line in done.stderr.splitlines() if line.startswith("rank 0 on")])
"""


def test_a_number_of_threads_from_an_outer_launcher_is_not_the_users() -> None:
    done = Job().run("-np", "2", *python(NESTED), **UNSET)
    assert done.returncode == 0, done.stderr
    # Two outer ranks share the cores, and each inner one has what its outer one has.
    _, threads = expected(2)[0]
    assert done.stdout.count(f"OMP_NUM_THREADS is {threads}") == 2


@needs_two_cores
def test_a_dry_run_says_what_each_rank_would_get() -> None:
    done = Job().run("-np", "2", "--dry-run", "true", **UNSET)
    for rank, (cpus, threads) in enumerate(expected(2)):
        line = f"rank {rank} on localhost: CPUs {format_cpus(cpus)}, OMP_NUM_THREADS is {threads}"
        assert line in done.stdout.splitlines()


@needs_two_cores
def test_a_verbose_run_says_what_each_rank_gets() -> None:
    done = Job().run("-np", "2", "--verbose", "true", **{**UNSET, "OMP_NUM_THREADS": "3"})
    for rank, (cpus, _) in enumerate(expected(2)):
        line = f"rank {rank} on localhost: CPUs {format_cpus(cpus)}, OMP_NUM_THREADS is 3"
        assert line in done.stderr.splitlines()


@pytest.mark.slow
@needs_two_cores
def test_a_script_that_sets_its_number_of_threads_has_it() -> None:
    code = "import torch; torch.set_num_threads(5); print(torch.get_num_threads())"
    # Beside another rank, so that it has not all cores.
    alone = f"import os\nif os.environ['HOROVOD_RANK'] == '1':\n    {code}"
    done = Job().run("-np", "2", *python(alone), **UNSET)
    assert done.stdout == "[1]<stdout>:5\n"


def test_ranks_share_a_session_so_that_they_can_yield_to_each_other() -> None:
    tell = "import os; print(os.getsid(0), os.getpgrp() == os.getpid())"
    done = Job().run("-np", "2", *python(tell))
    lines = [line.partition(":")[2] for line in done.stdout.splitlines() if "<stdout>" in line]
    (session, leads), other = (line.split() for line in lines)
    assert other == [session, leads] == [session, "True"]


def test_more_ranks_than_cpus_are_warned_of() -> None:
    cpus = len(os.sched_getaffinity(0))
    assert too_few_cpus(1) == ""
    assert re.match(rf"warning: {cpus + 1} ranks share \d+ CPUs?, so ", too_few_cpus(cpus + 1))
    assert re.match(r"warning: 2 ranks share 1 CPU, .* start at most 1 here", too_few_cpus(2, 1))


BUSY = "import sirtaki, time; sirtaki.init(); print('ready', flush=True); time.sleep(100)"


@needs_two_cores
def test_a_job_says_whose_cores_it_shares() -> None:
    first = Job()
    process = first.start(*GRACE, "-np", "2", *python(BUSY))
    assert process.stdout is not None
    assert [process.stdout.readline().rpartition(":")[2] for _ in range(2)] == ["ready\n"] * 2
    shared = Job().run("-np", "2", "true").stderr
    apart = Job().run("-np", "2", "--bind-to", "none", "true").stderr
    process.terminate()
    process.communicate()
    first.wait_until_gone()
    assert re.search(
        r"CPUs [\d,-]+ are already used by your job \w{8}; .*That job runs: .*…$", shared, re.M
    )
    assert apart == ""
