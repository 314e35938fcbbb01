"""Groups of torch.distributed under the mpirun beside this Python, which sets no variable of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.slow

needs.package("mpi4py")
needs.package("torch")
FOLDER = Path(sys.executable).parent
if not (FOLDER / "mpirun").exists():
    pytest.skip(needs.missing("mpirun beside this Python"), allow_module_level=True)

TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CHECK = """
assert int(os.environ["LOCAL_RANK"]) == dist.get_rank()
tensor = torch.full((3,), dist.get_rank() + 1.0)
dist.all_reduce(tensor)
print(f"sum {int(tensor[0])} size {dist.get_world_size()}\\n", end="", flush=True)
"""
START = "import os, torch, torch.distributed as dist\n"


def mpirun(
    folder: Path, program: str, ranks: int = 2, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in TORCH}
    env |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1"}
    script = folder / "program.py"
    script.write_text(START + program)
    return subprocess.run(
        [str(FOLDER / "mpirun"), "-np", str(ranks), sys.executable, str(script)],
        env={**env, **OPEN_MPI, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("statement", "switch"),
    [
        ("dist.init_process_group('sirtaki')", "0"),
        ("dist.init_process_group('gloo')", "0"),
        ("dist.init_process_group('mpi')", "1"),
        ("dist.init_process_group('mpi', rank=0, world_size=0)", "1"),
    ],
)
def test_ranks_have_the_place_that_mpi_gives(statement: str, switch: str, tmp_path: Path) -> None:
    # A group of PyTorch's own Gloo that is not destroyed may abort its process at the end.
    program = statement + CHECK + "dist.destroy_process_group()"
    done = mpirun(tmp_path, program, SIRTAKI_TORCH_DEFAULT=switch)
    assert done.stdout.splitlines() == ["sum 3 size 2"] * 2, done.stderr


def test_one_rank_is_a_group(tmp_path: Path) -> None:
    done = mpirun(tmp_path, "dist.init_process_group('sirtaki')" + CHECK, ranks=1)
    assert done.stdout.splitlines() == ["sum 1 size 1"], done.stderr


@pytest.mark.parametrize("first", ["torch", "sirtaki"])
def test_a_group_and_horovods_world_meet_at_the_same_place(first: str, tmp_path: Path) -> None:
    starts = ["dist.init_process_group('sirtaki')\n", "hvd.init()\n"]
    if first == "sirtaki":
        starts.reverse()
    end = "assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2\n"
    program = "import sirtaki.torch as hvd\n" + "".join(starts) + CHECK + end
    done = mpirun(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sum 3 size 2"] * 2


def test_a_group_may_be_made_again(tmp_path: Path) -> None:
    again = "dist.init_process_group('sirtaki')" + CHECK + "dist.destroy_process_group()\n"
    done = mpirun(tmp_path, again * 2)
    assert done.stdout.splitlines() == ["sum 3 size 2"] * 4, done.stderr


def test_a_program_that_contradicts_mpi_is_told(tmp_path: Path) -> None:
    done = mpirun(tmp_path, "dist.init_process_group('sirtaki', rank=0, world_size=3)")
    assert done.returncode != 0
    assert "has started this process as {'rank': '1', 'world_size': '2'}" in done.stderr


def test_a_program_that_tells_everything_itself_is_believed(tmp_path: Path) -> None:
    program = """
import os
rank = 1 - int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
dist.init_process_group("sirtaki", init_method="env://", rank=rank, world_size=2)
print(f"rank {dist.get_rank()} for {rank}\\n", end="", flush=True)
dist.barrier()
"""
    done = mpirun(tmp_path, program, MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    assert sorted(done.stdout.splitlines()) == ["rank 0 for 0", "rank 1 for 1"], done.stderr
