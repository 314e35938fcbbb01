"""What a program or its surroundings do wrong is an error in time that says what it is."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.distributed.jobs import LIMIT, Forks, free_port, run

pytestmark = pytest.mark.timeout(3 * LIMIT)

# Prints what init_process_group raises; its arguments: a method, a rank, and a number of ranks.
INIT = """
import sys, datetime, torch, torch.distributed as dist
method, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
try:
    dist.init_process_group("sirtaki", init_method=method, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=8))
except Exception as error:
    print(type(error).__name__, error)
else:
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    print("sum", tensor.item())
    dist.destroy_process_group()
"""


def start(forks: Forks, method: str, *places: tuple[int, int], program: str = INIT) -> list[str]:
    """What ranks with these numbers and sizes of their worlds print."""
    return forks.run_with(program, *((method, *map(str, place)) for place in places)).stdouts


def test_a_rank_that_does_not_exist_is_refused(forks: Forks, tmp_path: Path) -> None:
    (said,) = start(forks, f"file://{tmp_path}/store", (5, 2))
    assert "ValueError rank 5 is not one of the ranks 0 to 1 of a group" in said


@pytest.mark.slow
def test_ranks_that_disagree_on_their_number_are_told(forks: Forks, tmp_path: Path) -> None:
    for said in start(forks, f"file://{tmp_path}/store", (0, 2), (1, 3)):
        assert "counts 3 ranks, rank 0" in said


@pytest.mark.slow
def test_two_processes_with_the_same_rank_are_told(forks: Forks, tmp_path: Path) -> None:
    said = start(forks, f"file://{tmp_path}/store", (0, 2), (0, 2))
    assert sum("rank 0 of this group is at the store already" in line for line in said) == 1
    assert "sum" not in "".join(said)


def test_missing_ranks_are_named(forks: Forks, tmp_path: Path) -> None:
    (said,) = start(forks, f"file://{tmp_path}/store", (0, 3))
    assert "1, 2" in said


@pytest.mark.slow
def test_a_file_that_an_earlier_job_has_left_serves_again(forks: Forks, tmp_path: Path) -> None:
    method = f"file://{tmp_path}/store"
    killed = INIT.replace("dist.destroy_process_group()", "__import__('os')._exit(0)")
    start(forks, method, (0, 2), (1, 2), program=killed)
    for said in start(forks, method, (0, 2), (1, 2)):
        assert "sum 2.0" in said


def test_an_address_in_use_is_named(forks: Forks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (said,) = start(forks, f"tcp://127.0.0.1:{port}", (0, 2))
    assert f"port: {port}" in said
    assert "EADDRINUSE" in said


def test_missing_variables_are_named(forks: Forks) -> None:
    program = """
import os, torch.distributed as dist
del os.environ["MASTER_ADDR"]
dist.init_process_group("sirtaki")
"""
    done = forks.run(program, 1)
    assert "environment variable MASTER_ADDR expected, but not set" in done.stderr


def test_destroying_a_group_does_not_wait_for_what_is_pending(forks: Forks) -> None:
    program = """
import torch, torch.distributed as dist
dist.init_process_group("sirtaki")
works = [dist.all_reduce(torch.ones(1), async_op=True)] if dist.get_rank() == 0 else []
dist.destroy_process_group()
for work in works:
    try:
        work.wait()
    except RuntimeError as error:
        print(f"{type(error).__name__} {error}\\n", end="")
print("over\\n", end="")
"""
    done = forks.run(program)
    assert done.stdout.count("over\n") == 2, done.stderr
    assert "PeerLostError allreduce: Connection closed by peer" in done.stdout
    assert "left the group without submitting it" in done.stdout


def test_a_forked_child_is_told_that_it_has_no_group(forks: Forks) -> None:
    program = """
import os, torch, torch.distributed as dist
dist.init_process_group("sirtaki")
dist.barrier()
child = os.fork()
if child == 0:
    for call in (lambda: dist.all_reduce(torch.ones(1)),
                 lambda: dist.send(torch.ones(1), 1 - dist.get_rank()),
                 lambda: dist.all_reduce(torch.ones(1), async_op=True)):
        try:
            call()
        except RuntimeError as error:
            print(f"{type(error).__name__} {error}\\n", end="", flush=True)
    os._exit(0)
os.waitpid(child, 0)
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(f"sum {tensor.item()}\\n", end="")
dist.destroy_process_group()
"""
    done = forks.run(program)
    assert done.stdout.count("sum 2.0") == 2, done.stdout + done.stderr
    assert done.stdout.count("forked") == 6


@pytest.mark.slow
@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_processes_of_multiprocessing_are_ranks(way: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("""
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, folder):
    dist.init_process_group("sirtaki", f"file://{folder}/store", rank=rank, world_size=2)
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor)
    assert tensor.item() == 3
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[2],), nprocs=2, start_method=sys.argv[1])
    print("both")
""")
    done = run(sys.executable, str(script), way, str(tmp_path))
    assert done.stdout == "both\n", done.stderr


@pytest.mark.slow
def test_a_port_is_free_again_for_the_next_job(forks: Forks) -> None:
    method = f"tcp://127.0.0.1:{free_port()}"
    for _ in range(2):
        assert start(forks, method, (0, 2), (1, 2)) == ["sum 2.0\n"] * 2
