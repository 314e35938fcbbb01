"""With SIRTAKI_TORCH_DEFAULT=1 programs that know nothing of us run on our groups."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.distributed.jobs import EXAMPLES, LIMIT, run, torchrun

pytestmark = pytest.mark.timeout(2 * LIMIT)

ON = {"SIRTAKI_TORCH_DEFAULT": "1"}
OURS = "sirtaki.torch.distributed.group"
GLOO = "torch.distributed.distributed_c10d"
# How programs make their default group, and what PyTorch then says that its backend is.
WAYS = {
    "nothing": ("dist.init_process_group()", "undefined"),
    "gloo": ("dist.init_process_group('gloo')", "sirtaki"),
    "upper case": ("dist.init_process_group(backend=dist.Backend('GLOO'))", "sirtaki"),
    "of each device": ("dist.init_process_group('cpu:gloo,cuda:nccl')", "cpu:gloo,cuda:nccl"),
    "mpi": ("dist.init_process_group('mpi')", "sirtaki"),
    "mpi that numbers the ranks": (
        "dist.init_process_group('mpi', rank=0, world_size=0)",
        "sirtaki",
    ),
}
PROGRAM = """
import json, sys, torch, torch.distributed as dist
found = {}
for name, statement in json.loads(sys.argv[1]).items():
    try:
        exec(statement)
    except Exception as error:
        found[name] = repr(error)
        continue
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    group = dist.new_group([0, 1], backend="gloo")
    kinds = [type(each).__module__ for each in (dist.group.WORLD, group)]
    found[name] = [tensor.item(), dist.get_backend(), *kinds]
    dist.destroy_process_group()
if __import__("os").environ["RANK"] == "0":
    print(json.dumps(found))
"""


def outcomes(folder: Path, ways: Iterable[str], switch: str) -> dict[str, object]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    statements = json.dumps({way: WAYS[way][0] for way in ways})
    done = run(*torchrun(2, str(script), statements), env={"SIRTAKI_TORCH_DEFAULT": switch})
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def switched_on(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return outcomes(tmp_path_factory.mktemp("on"), WAYS, "1")


@pytest.fixture(scope="module")
def switched_off(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return outcomes(tmp_path_factory.mktemp("off"), ("mpi", "gloo"), "0")


@pytest.mark.parametrize("way", WAYS)
def test_groups_for_cpu_tensors_are_ours(way: str, switched_on: dict[str, object]) -> None:
    assert switched_on[way] == [3.0, WAYS[way][1], OURS, OURS]


def test_without_the_switch_gloo_is_gloo(switched_off: dict[str, object]) -> None:
    assert switched_off["gloo"] == [3.0, "gloo", GLOO, GLOO]


def test_without_the_switch_there_is_no_mpi(switched_off: dict[str, object]) -> None:
    assert "doesn't have MPI built in" in str(switched_off["mpi"])


@pytest.mark.slow
@pytest.mark.parametrize("example", ["collectives", "synchronous_sgd"])
def test_examples_for_gloo_run_unchanged(example: str) -> None:
    options = ("--backend", "gloo") if example == "collectives" else ("--epochs=1",)
    assert "SIRTAKI_TORCH_DEFAULT" not in (EXAMPLES / f"{example}.py").read_text()
    done = run(*torchrun(2, f"{example}.py", *options), env=ON)
    assert done.returncode == 0, done.stderr


def test_import_torch_works_without_a_core() -> None:
    broken = (
        "import sys; sys.modules['sirtaki._core'] = None; import torch; import torch.distributed"
    )
    done = run(sys.executable, "-W", "error", "-c", broken, env=ON)
    assert done.returncode == 0, done.stderr


def test_a_pytorch_that_is_made_otherwise_still_has_the_backend() -> None:
    program = """
import sys, torch.distributed as dist
del sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
import sirtaki.autoload
sirtaki.autoload.register()
assert dist.is_backend_available("sirtaki")
"""
    done = run(sys.executable, "-c", program, env={**ON, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode == 0, done.stderr
    assert "is not all it should be" in done.stderr
