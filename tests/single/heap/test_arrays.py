"""`empty` of NumPy and of PyTorch: arrays in the shared heap, with nothing preloaded."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sirtaki
import sirtaki.torch as hvd
from sirtaki import _core

pytestmark = pytest.mark.job


def is_shared(array: Any) -> bool:
    address = array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data
    return _core.heap_holds(address, array.nbytes)


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
    make(1)  # without any array there is no heap
    gc.collect()
    before = _core.heap_figures()["live_allocations"]
    array = make((1000, 1000))
    part = array[10:]
    assert _core.heap_figures()["live_allocations"] == before + 1
    del array
    assert _core.heap_figures()["live_allocations"] == before + 1
    del part
    assert _core.heap_figures()["live_allocations"] == before


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


def test_gradients_flow_through_a_parameter_in_the_heap() -> None:
    weight = torch.nn.Parameter(hvd.empty(3, 3).fill_(2.0))
    (weight * 3).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad.unique().tolist() == [3.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"SIRTAKI_SHARED_HEAP": "0"}, {"SIRTAKI_HEAP_SPAN": str(2 << 20)}],
    ids=["unwanted", "full"],
)
def test_without_room_the_memory_is_ordinary(variables: dict[str, str]) -> None:
    code = """
import numpy as np, sirtaki, sirtaki.torch as hvd
from sirtaki import _core
array, tensor = sirtaki.empty((1 << 20, 4)), hvd.empty(1 << 20, 4)
array[:], tensor[:] = 1, 1
print(_core.heap_holds(array.ctypes.data, 1), array.sum(), tensor.sum().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == "False 4194304.0 4194304.0"


def test_arrays_of_the_heap_are_inherited_as_others_are() -> None:
    array = sirtaki.empty(1 << 18)
    array[:] = 5
    pid = os.fork()
    if pid == 0:
        inherited = bool((array == 5).all())
        array[:] = 6
        os._exit(0 if inherited and bool((array == 6).all()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (array == 5).all()
