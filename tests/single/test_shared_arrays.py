"""`empty` of NumPy and of PyTorch: arrays that ranks share, and what forks have of them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import sirtaki
import sirtaki.torch as hvd
from sirtaki import _core
from tests.single.launching import LIMIT

pytestmark = pytest.mark.job


def address_of(array: Any) -> int:
    return int(array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data)


def is_shared(array: Any) -> bool:
    return _core.heap_holds(address_of(array), array.nbytes)


@pytest.mark.parametrize(
    ("shape", "expected"), [(5, (5,)), ((2, 3), (2, 3)), ([4, 1], (4, 1)), ((), ())]
)
def test_an_array_has_the_shape_and_the_dtype_asked_for(shape: Any, expected: Any) -> None:
    array = sirtaki.empty(shape, np.float32)
    assert (array.shape, array.dtype) == (expected, np.float32)
    assert array.flags.writeable
    assert is_shared(array)
    assert sirtaki.empty(3).dtype == np.float64


def test_a_tensor_has_the_size_and_the_dtype_asked_for() -> None:
    for tensor in (hvd.empty(2, 3), hvd.empty((2, 3)), hvd.empty(torch.Size([2, 3]))):
        assert (tensor.shape, tensor.dtype) == ((2, 3), torch.float32)
        assert is_shared(tensor)
    assert hvd.empty(4, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert hvd.empty().shape == ()


@pytest.mark.parametrize("make", [sirtaki.empty, hvd.empty])
def test_the_memory_is_released_with_the_last_that_uses_it(make: Callable[..., Any]) -> None:
    array = make((1000, 1000))
    address = address_of(array)
    part = array[10:]
    del array
    assert _core.heap_holds(address, 1)
    del part
    assert not _core.heap_holds(address, 1)


@pytest.mark.parametrize("make", [sirtaki.empty, hvd.empty])
def test_an_array_of_nothing_is_an_ordinary_one(make: Callable[..., Any]) -> None:
    assert tuple(make((0, 3)).shape) == (0, 3)


@pytest.mark.parametrize("make", [sirtaki.empty, hvd.empty])
@pytest.mark.parametrize("shape", ["12", 1.5, (2, 1.5), None])
def test_what_is_no_shape_is_refused(make: Callable[..., Any], shape: object) -> None:
    with pytest.raises(TypeError, match="a shape is a whole number or several, not"):
        make(shape)


@pytest.mark.parametrize("make", [sirtaki.empty, hvd.empty])
def test_a_negative_size_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"the shape \(2, -1\) has a negative size"):
        make((2, -1))


def test_what_is_no_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="no memory for Python objects"):
        sirtaki.empty(3, object)
    with pytest.raises(TypeError, match="not understood"):
        sirtaki.empty(3, "unheard of")
    with pytest.raises(TypeError, match=r"dtype='float32' is not a torch\.dtype"):
        hvd.empty(3, dtype="float32")  # type: ignore[arg-type]


def test_gradients_flow_through_a_parameter_that_is_shared() -> None:
    weight = torch.nn.Parameter(hvd.empty(3, 3).fill_(2.0))
    (weight * 3).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad.unique().tolist() == [3.0]


def test_where_the_system_gives_none_the_memory_is_ordinary_and_the_log_says_why() -> None:
    code = """
import numpy as np, sirtaki, sirtaki.torch as hvd
from sirtaki import _core
sirtaki.init()
array, tensor = sirtaki.empty((1 << 20, 4)), hvd.empty(1 << 20, 4)
array[:], tensor[:] = 1, 1
print(_core.heap_holds(array.ctypes.data, 1), array.sum(), tensor.sum().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOROVOD_LOG_LEVEL": "debug"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout.strip() == "False 4194304.0 4194304.0"
    assert "shared arrays: none; the size of files is limited (ulimit -f)" in done.stderr


def in_fork(child: Callable[[], bool]) -> bool:
    """Whether the child says so."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if child() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_arrays_are_inherited_as_others_are() -> None:
    array = sirtaki.empty(1 << 18)
    array[:] = 5

    def child() -> bool:
        inherited = bool((array == 5).all())
        array[:] = 6
        return inherited and bool((array == 6).all()) and not is_shared(sirtaki.empty(10))

    assert in_fork(child)
    assert (array == 5).all()
    assert is_shared(array)


def test_threads_that_allocate_do_not_stop_a_fork() -> None:
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            sirtaki.empty(1 << 18)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        assert all(in_fork(lambda: sirtaki.empty(10).size == 10) for _ in range(10))
    finally:
        ending.set()
        for each in threads:
            each.join()


class Rows(Dataset[torch.Tensor]):
    """Rows of a tensor that ranks share; `work` is done with each."""

    def __init__(self, work: Callable[[torch.Tensor], object] = lambda row: None) -> None:
        self.rows = hvd.empty(64, 1 << 14)
        self.rows[:] = torch.arange(64.0).reshape(64, 1)
        self.work = work

    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> torch.Tensor:
        mine = self.rows[row]
        self.work(mine)
        return mine


@pytest.mark.slow
def test_workers_of_a_data_loader_write_into_tensors_that_they_inherit() -> None:
    data = Rows(lambda row: row.add_(1))
    whole = data.rows.clone()
    got = torch.cat(list(DataLoader(data, batch_size=4, num_workers=2)))
    assert torch.equal(got, whole + 1)
    assert torch.equal(data.rows, whole)
    assert is_shared(data.rows)


@pytest.mark.slow
def test_workers_of_a_data_loader_read_rows_that_their_parent_has_freed() -> None:
    data = Rows()
    whole = data.rows.clone()
    batches = iter(DataLoader(data, batch_size=4, num_workers=2))
    del data.rows
    later = [hvd.empty(64, 1 << 14).fill_(-1) for _ in range(4)]
    assert torch.equal(torch.cat(list(batches)), whole)
    assert all(is_shared(each) for each in later)
