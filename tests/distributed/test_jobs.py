"""Whole jobs: examples, ways to start, ranks that fail, and programs that know nothing of us."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.distributed.jobs import LIMIT, Forks, run, torchrun

pytestmark = pytest.mark.timeout(2 * LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sirtaki", pytest.param("gloo", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("example", ["point_to_point", "collectives"])
def test_examples_run_on_both_backends(example: str, backend: str) -> None:
    if (example, backend) == ("collectives", "gloo") and torch.__version__ < (2, 8):
        pytest.skip("Gloo of PyTorch before 2.8 has no reduce_scatter")
    done = run(*torchrun(2, f"{example}.py", "--backend", backend))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("processes", "elements"),
    [
        (2, 100_003),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 7), (4, 5))),
    ],
)
def test_the_ring_allreduce_equals_the_built_in_one(
    forks: Forks, processes: int, elements: int
) -> None:
    program = "import runpy; runpy.run_path('ring_allreduce.py', run_name='__main__')"
    done = forks.run_with(program, *[[f"--elements={elements}"]] * processes)
    assert done.statuses == [0] * processes, done.stderr
    assert done.stdout.count("both give") == processes


@pytest.mark.slow
def test_synchronous_sgd_equals_one_process_on_the_whole_batch() -> None:
    done = run(*torchrun(2, "synchronous_sgd.py", "--epochs=3", "--compare"))
    assert done.returncode == 0, done.stderr
    assert "away from one process" in done.stdout


@pytest.mark.slow
def test_an_example_starts_its_processes_itself() -> None:
    done = run(sys.executable, "point_to_point.py", "--processes=2")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_processes_that_know_a_port_meet_there(tmp_path: Path) -> None:
    program = """
import sys, torch, torch.distributed as dist
dist.init_process_group("sirtaki", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == 2
dist.destroy_process_group()
"""
    for method in ("tcp://127.0.0.1:29533", f"file://{tmp_path}/meeting"):
        ranks = [
            subprocess.Popen([sys.executable, "-c", program, method, str(rank)])
            for rank in range(2)
        ]
        assert [rank.wait(LIMIT) for rank in ranks] == [0, 0]


def test_ranks_of_our_launcher_are_a_group_that_leaves_nothing_behind() -> None:
    program = """
import ctypes, torch.distributed as d
d.init_process_group('sirtaki')
d.barrier()
# What libraries do, as torch.distributed.nn in the defaults of its functions.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(d.group.WORLD))
"""
    launcher = str(Path(sys.executable).with_name("horovodrun"))
    done = run(launcher, "-np", "2", sys.executable, "-c", program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaked" not in done.stdout + done.stderr


def test_a_killed_rank_is_named_by_the_others(forks: Forks) -> None:
    program = """
import os, signal, time, torch, torch.distributed as dist
dist.init_process_group("sirtaki")
dist.barrier()
if dist.get_rank() == 1:
    time.sleep(1)  # the others wait by then
    os.kill(os.getpid(), signal.SIGKILL)
for wait in (dist.monitored_barrier, lambda: dist.all_reduce(torch.ones(1))):
    try:
        wait()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
    done = forks.run(program)
    assert done.stdout.count("PeerLostError") == 2, done.stdout + done.stderr
    assert done.stdout.count("lost peer rank 1") == 2


@pytest.mark.slow
def test_abort_ends_what_a_group_waits_for_and_another_group_can_be_made(forks: Forks) -> None:
    program = """
import threading, time, torch, torch.distributed as dist
dist.init_process_group("sirtaki")
group, late = dist.new_group([0, 1]), dist.new_group([0, 1])
if dist.get_rank() == 0:
    threading.Timer(0.5, group.abort).start()
    try:
        dist.barrier(group=group)  # rank 1 never comes
    except RuntimeError as error:
        print("ended", error)
tensor = torch.ones(1)
dist.all_reduce(tensor, group=late)
dist.all_reduce(tensor, group=dist.new_group([0, 1]))
print(f"sum {tensor.item()}")
"""
    done = forks.run(program)
    assert done.statuses == [0, 0], done.stdout + done.stderr
    assert done.stdout.count("ended") == 1, done.stdout + done.stderr
    assert "the process group was aborted" in done.stdout
    assert done.stdout.count("sum 4.0") == 2


@pytest.mark.slow
def test_torchrun_starts_again_after_a_rank_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import os, signal, torch, torch.distributed as dist
dist.init_process_group("sirtaki")
tensor = torch.ones(1)
dist.all_reduce(tensor)
first = not os.path.exists({str(tmp_path / "died")!r})
dist.barrier()
if first and dist.get_rank() == 1:
    open({str(tmp_path / "died")!r}, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
print(f"sum {{tensor.item()}}\\n", end="")
dist.destroy_process_group()
"""
    )
    done = run(*torchrun(2, str(script), options=("--max-restarts=1",)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 4.0") == 2


@pytest.mark.slow
def test_a_rank_that_never_comes_is_an_error_within_the_timeout(forks: Forks) -> None:
    program = """
import datetime, torch.distributed as dist
dist.init_process_group("sirtaki", timeout=datetime.timedelta(seconds=60))
group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
try:
    if dist.get_rank() == 0:
        dist.barrier(group=group)
except RuntimeError as error:
    print(error)
dist.barrier()
"""
    done = forks.run(program)
    assert "missing ranks: 1" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_group_may_have_other_members_than_one_before_a_new_start_had(forks: Forks) -> None:
    program = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, rank == 0)
for members in ([0, 1], [0, 1, 2], [1, 2]):
    dist.init_process_group("sirtaki", store=store, rank=rank, world_size=3)
    group = dist.new_group(members)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    print(f"sum {tensor.item()}\\n", end="")
    dist.barrier()
    dist.destroy_process_group()
"""
    done = forks.run(program, 3)
    sums = sorted(line for line in done.stdout.splitlines() if line.startswith("sum"))
    assert sums == ["sum 1.0"] * 2 + ["sum 2.0"] * 4 + ["sum 3.0"] * 3, done.stderr


@pytest.mark.skipif(torch.__version__ >= (2, 15), reason="PyTorch 2.15 lets a class be one")
def test_this_pytorch_lets_no_class_in_python_be_the_backend_of_one_device() -> None:
    """Once it does, a group of ours can serve CPU tensors beside another backend."""

    class Derived(torch._C._distributed_c10d.Backend):  # type: ignore[misc]
        """What PyTorch would have to construct."""

    with pytest.raises(TypeError, match="No constructor defined"):
        Derived(0, 1)


def test_ranks_of_several_hosts_end_however_many_groups_they_have_left(forks: Forks) -> None:
    program = """
import faulthandler, os
os.environ["SIRTAKI_HOST_ID"] = os.environ["RANK"]
import torch, torch.distributed as dist
faulthandler.dump_traceback_later(60, exit=True)
rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, rank == 0)
for _ in range(10):
    dist.init_process_group("sirtaki", store=store, rank=rank, world_size=3)
    dist.barrier()
    dist.destroy_process_group()
import atexit
atexit._run_exitfuncs()
print("ended\\n", end="", flush=True)
"""
    done = forks.run(program, 3)
    assert done.stdout.count("ended\n") == 3, done.stdout + done.stderr


IN_A_GROUP = """
import os, subprocess, sys, time, torch, torch.distributed as dist
dist.init_process_group("sirtaki")
group = dist.new_group()
dist.all_reduce(torch.ones(4), group=group)
if dist.get_rank() == 1:
    time.sleep(2)  # until rank 0 counts as blocked
    for command in ("hang", "ps"):
        ask = [sys.executable, "-m", "sirtaki.launch.cli", command, str(os.getpid())]
        print(subprocess.run(ask, capture_output=True, text=True, check=True).stdout, flush=True)
dist.all_reduce(torch.ones(4), group=group)
dist.destroy_process_group()
"""


def test_an_operation_of_a_group_is_reported_in_that_group_alone(forks: Forks) -> None:
    done = forks.run(IN_A_GROUP)
    assert done.statuses == [0, 0], done.stderr
    hang, _, ps = done.stdout.partition("group 0:")
    assert re.findall(r"allreduce 'noname.1' of (group \d) has waited", hang) == ["group 1"]
    of_world, of_group = ps.split("group 1:")
    assert of_world.split("\n")[1:3] == ["rank 0: in no operation", "rank 1: in no operation yet"]
    assert re.search(r"rank 0: .* 'noname.1'.*\n.*allreduce 'noname.0'", of_group)
