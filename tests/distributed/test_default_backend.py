"""With SIRTAKI_TORCH_DEFAULT=1 programs that know nothing of us run on our groups."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import pytest

from tests.distributed.jobs import EXAMPLES, LIMIT, Forks, run, torchrun

pytestmark = pytest.mark.timeout(2 * LIMIT)

ON = {"SIRTAKI_TORCH_DEFAULT": "1"}
# How programs make their default group, and what PyTorch then says that its backend is.
WAYS = {
    "nothing": ("dist.init_process_group()", "undefined"),
    "gloo": ("dist.init_process_group('gloo')", "gloo"),
    "upper case": ("dist.init_process_group(backend=dist.Backend('GLOO'))", "gloo"),
    "of each device": ("dist.init_process_group('cpu:gloo,cuda:nccl')", "cpu:gloo,cuda:nccl"),
    "mpi": ("dist.init_process_group('mpi')", "mpi"),
    "mpi that numbers the ranks": ("dist.init_process_group('mpi', rank=0, world_size=0)", "mpi"),
}
PROGRAM = """
import json, sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from sirtaki.torch.distributed import moved_by

def names():
    cpu = torch.device("cpu")
    world, group = dist.group.WORLD, dist.new_group()
    DistributedDataParallel(torch.nn.Linear(1, 1))  # its C++ code looks at the name, too
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("rows", "columns"))
    groups = (world, group, dist.new_group(backend="gloo"), *mesh.get_all_groups())
    return {
        "names": [each.name() for each in groups],
        "private names": [each._get_backend_name() for each in groups],
        "of the CPU": [each._get_backend(cpu).name() for each in groups],
        "backends": [dist.get_backend(each) for each in groups],
        "configurations": [dist.get_backend_config(each) for each in groups],
        "globally": dist.distributed_c10d._backend,
        "of a device": dist.get_default_backend_for_device("cpu"),
        "parsed": dist.Backend("gloo"),
    }

found = {}
for name, statement in json.loads(sys.argv[1]).items():
    try:
        exec(statement)
    except Exception as error:
        found[name] = {"error": repr(error)}
        continue
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    group = dist.new_group([0, 1], backend="gloo")
    part = dist.split_group(split_ranks=[[0], [1]]) if moved_by() == "sirtaki" else None
    found[name] = {
        "sum": tensor.item(),
        "moved by": [moved_by(), moved_by(group), part and moved_by(part)],
        "backend": dist.get_backend(),
        "seen": names(),
    }
    dist.destroy_process_group()
if __import__("os").environ["RANK"] == "0":
    print(json.dumps(found))
"""
Found = dict[str, dict[str, object]]


def outcomes(ways: Iterable[str], switch: str) -> Found:
    statements = json.dumps({way: WAYS[way][0] for way in ways})
    forks = Forks(SIRTAKI_TORCH_DEFAULT=switch)
    try:
        done = forks.run_with(PROGRAM, *[[statements]] * 2)
    finally:
        forks.close()
    assert done.statuses == [0, 0], done.stderr
    found: Found = json.loads(done.stdouts[0])
    return found


@pytest.fixture(scope="module")
def switched_on() -> Found:
    return outcomes(WAYS, "1")


@pytest.fixture(scope="module")
def switched_off() -> Found:
    return outcomes(("mpi", "gloo"), "0")


@pytest.mark.parametrize("way", WAYS)
def test_groups_for_cpu_tensors_are_ours(way: str, switched_on: Found) -> None:
    assert switched_on[way].get("moved by") == ["sirtaki"] * 3, switched_on[way]
    assert switched_on[way]["sum"] == 3.0


@pytest.mark.parametrize("way", WAYS)
def test_a_program_is_told_the_name_that_it_asked_for(way: str, switched_on: Found) -> None:
    assert switched_on[way]["backend"] == WAYS[way][1]
    assert "sirtaki" not in str(switched_on[way]["seen"])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gloo", "upper case"])
def test_a_program_sees_the_names_that_it_sees_on_gloo(
    way: str, switched_on: Found, switched_off: Found
) -> None:
    assert switched_on[way]["seen"] == switched_off["gloo"]["seen"]


def test_without_the_switch_gloo_is_gloo(switched_off: Found) -> None:
    assert switched_off["gloo"]["moved by"] == ["gloo", "gloo", None]
    assert switched_off["gloo"]["backend"] == "gloo"


def test_without_the_switch_there_is_no_mpi(switched_off: Found) -> None:
    assert "doesn't have MPI built in" in str(switched_off["mpi"]["error"])


@pytest.mark.slow
@pytest.mark.parametrize("example", ["collectives", "synchronous_sgd"])
def test_examples_for_gloo_run_unchanged(example: str) -> None:
    options = ("--backend", "gloo") if example == "collectives" else ("--epochs=1",)
    assert "SIRTAKI_TORCH_DEFAULT" not in (EXAMPLES / f"{example}.py").read_text()
    done = run(*torchrun(2, f"{example}.py", *options), env=ON)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("broken", ["sirtaki._core", "numpy"])
def test_import_torch_works_whatever_is_broken(broken: str) -> None:
    program = f"import sys; sys.modules[{broken!r}] = None; import torch; import torch.distributed"
    done = run(sys.executable, "-W", "error::RuntimeWarning", "-c", program, env=ON)
    assert done.returncode == 0, done.stderr


def test_a_pytorch_that_is_made_otherwise_still_has_the_backend_if_it_has_any() -> None:
    program = """
import os, sys, torch.distributed as dist, sirtaki.autoload
if os.fork() == 0:
    dist.is_available = lambda: False
    sirtaki.autoload.register()
    os._exit(0)
assert os.wait()[1] == 0
del sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
sirtaki.autoload.register()
assert dist.is_backend_available("sirtaki")
"""
    done = run(sys.executable, "-c", program, env={**ON, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode == 0, done.stderr
    assert "is not all it should be" in done.stderr
