"""What `import horovod.torch as hvd` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import horovod
import sirtaki.torch as hvd
from tests.reference import gaps

FUNCTIONS = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "allreduce",
    "allreduce_async",
    "allreduce_",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_allreduce_",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
    "allgather",
    "allgather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "broadcast",
    "broadcast_async",
    "broadcast_",
    "broadcast_async_",
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "barrier",
    "poll",
    "synchronize",
    "init",
    "shutdown",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "add_process_set",
    "remove_process_set",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "_check_has_gpu",
    "Compression",
    "ProcessSet",
    "HorovodInternalError",
]

MODULES = [
    "torch",
    "torch.mpi_ops",
    "torch.compression",
    "torch.optimizer",
    "torch.functions",
    "torch.sync_batch_norm",
    "data",
    "data.data_loader_base",
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_horovod_is_there(name: str) -> None:
    assert callable(getattr(hvd, name))


def test_constants_have_horovods_values() -> None:
    names = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [getattr(hvd, name) for name in names] == [0, 1, 2, 3, 4, 5]


def test_everything_exported_exists() -> None:
    for name in [*hvd.__all__]:
        assert hasattr(hvd, name), name
    for name in hvd.mpi_ops.__all__:
        assert hasattr(hvd.mpi_ops, name), name


def in_a_new_process(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.slow
@pytest.mark.job
@pytest.mark.parametrize("first", ["horovod", "sirtaki"])
def test_modules_of_both_names_are_the_same(first: str) -> None:
    second = {"horovod": "sirtaki", "sirtaki": "horovod"}[first]
    code = f"""
import importlib
for name in {MODULES}:
    one = importlib.import_module("{first}." + name)
    other = importlib.import_module("{second}." + name)
    assert one is other, name
    assert one.__name__ == one.__spec__.name == "sirtaki." + name, one.__spec__
"""
    in_a_new_process(code)


@pytest.mark.slow
@pytest.mark.job
def test_ways_to_import() -> None:
    in_a_new_process(
        """
import horovod.torch as hvd
from horovod.torch.mpi_ops import allreduce, rank, is_homogeneous, _basics
from horovod.torch.compression import Compression
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError
from horovod.common.process_sets import global_process_set
from horovod.common.util import env, extension_available, gloo_built, is_iterable, split_list
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state
from horovod.torch.mpi_ops import Compression, HorovodInternalError, add_process_set
from horovod.torch.optimizer import _DistributedAdasumOptimizer, _DistributedOptimizer
from horovod.common.basics import HorovodBasics
from horovod import torch
import horovod
assert torch is hvd is horovod.torch
assert allreduce is hvd.allreduce
assert HorovodInternalError is hvd.HorovodInternalError
assert global_process_set is hvd.global_process_set
assert gloo_built() and extension_available("torch")
assert _basics.is_initialized() is False
assert HorovodBasics("/some/file", "mpi_lib_v2").is_initialized() is False
assert broadcast_optimizer_state is hvd.broadcast_optimizer_state
assert split_list([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
assert is_iterable([]) and not is_iterable(1)
"""
    )


def test_a_module_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="horovod"):
        import horovod.nothing  # noqa: F401
    with pytest.raises(ImportError):
        from horovod.torch import nothing  # noqa: F401


def test_the_package_says_which_interface_it_has() -> None:
    assert horovod.__version__ == "0.28.1"
    assert callable(horovod.run)


@pytest.mark.slow
@pytest.mark.job
def test_version_and_build_check_need_no_core() -> None:
    shown = in_a_new_process(
        """
import sys
sys.modules["sirtaki._core"] = None
import horovod
from sirtaki.doctor.probe import print_check_build
print(horovod.__version__)
print_check_build()
"""
    )
    assert shown.startswith("0.28.1\nHorovod v0.28.1:\n")


def test_without_torch_the_error_says_what_to_install() -> None:
    message = in_a_new_process(
        """
import sys
sys.modules["torch"] = None
for name in ("sirtaki.torch", "horovod.torch"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
"""
    )
    assert message.count("pip install 'torch>=2.4'") == 2


@pytest.mark.job
def test_training_needs_none_of_the_launchers_packages() -> None:
    in_a_new_process(
        """
import sys
for name in ("cloudpickle", "yaml"):
    sys.modules[name] = None
import torch
import horovod.torch as hvd
hvd.init()
assert hvd.broadcast_object({"a": 1}, 0) == {"a": 1}
layer = torch.nn.Linear(2, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(layer.parameters()))
hvd.broadcast_optimizer_state(optimizer, 0)
"""
    )


@pytest.mark.job
@pytest.mark.skipif(torch.__version__ < (2, 7), reason="older versions have no groups of ours")
def test_a_training_process_imports_no_more_than_it_needs_to_start() -> None:
    unneeded = in_a_new_process(
        """
import sys
import torch
before = set(sys.modules)
import sirtaki.torch as hvd
hvd.init()
store = torch.distributed.HashStore()
torch.distributed.init_process_group("sirtaki", rank=0, world_size=1, store=store)
for name in sorted({*sys.modules} - before - {"faulthandler", "ipaddress"}):
    rare = ("checkpoint", "data", "elastic", "launch", "torch.device.meeting", "torch.elastic",
            "torch.ops.operators", "torch.optimizer", "torch.sync_batch_norm")
    if not name.startswith("sirtaki.") or name.removeprefix("sirtaki.").startswith(rare):
        print(name)
torch.ops.sirtaki.allgather, torch.ops.sirtaki.allreduce
assert len([*torch.ops.sirtaki]) == len({*torch.ops.sirtaki}) == 9
assert {*hvd.__all__} <= {*dir(hvd)}
"""
    )
    assert unneeded == ""


def test_the_reference_describes_every_name_with_its_arguments_and_errors() -> None:
    assert not gaps(hvd)
