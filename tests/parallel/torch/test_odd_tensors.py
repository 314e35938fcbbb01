"""Tensors that are no plain ones are refused by name, with the cure, before anything is sent."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor

import sirtaki.torch as hvd

VERBS: dict[str, Callable] = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": hvd.allreduce_async,
    "allreduce_async_": hvd.allreduce_async_,
    "grouped_allreduce": lambda tensor: hvd.grouped_allreduce([torch.ones(2), tensor]),
    "grouped_allreduce_": lambda tensor: hvd.grouped_allreduce_([torch.ones(2), tensor]),
    "allgather": hvd.allgather,
    "allgather_async": hvd.allgather_async,
    "grouped_allgather": lambda tensor: hvd.grouped_allgather([torch.ones(2), tensor]),
    "broadcast": lambda tensor: hvd.broadcast(tensor, 0),
    "broadcast_": lambda tensor: hvd.broadcast_(tensor, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "grouped_reducescatter": lambda tensor: hvd.grouped_reducescatter([torch.ones(2), tensor]),
    "broadcast_parameters": lambda tensor: hvd.broadcast_parameters([("x", tensor)], 0),
}


def nested(layout: torch.layout) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=layout)


def masked() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return masked_tensor(torch.ones(2), torch.tensor([True, False]))


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


def freed() -> torch.Tensor:
    tensor = torch.ones(2)
    tensor.untyped_storage().resize_(0)
    return tensor


ODD = {
    "masked": (masked, "MaskedTensor: give x.to_tensor(0)"),
    # PyTorch imports its compiler for these.
    "jagged": (lambda: nested(torch.jagged), "NestedTensor: give x.values()"),
    "nested": (lambda: nested(torch.strided), "nested tensor has no one shape: give"),
    "fake": (fake, "FakeTensor: it has no data"),
    "two": (lambda: TwoTensor(torch.ones(2), torch.zeros(2)), "TwoTensor: give the plain tensors"),
    "meta": (lambda: torch.empty(2, device="meta"), "meta device has no data"),
    "freed": (freed, "the tensor has no memory"),
    "zeros": (lambda: torch._efficientzerotensor(2), "the tensor has no memory"),
    "coo": (lambda: torch.eye(2).to_sparse(), "torch.sparse_coo"),
    "csr": (lambda: torch.eye(2).to_sparse_csr(), "torch.sparse_csr"),
    "csc": (lambda: torch.eye(2).to_sparse_csc(), "torch.sparse_csc"),
    "bsr": (lambda: torch.eye(2).to_sparse_bsr((1, 1)), "torch.sparse_bsr"),
    "mkldnn": (lambda: torch.ones(2).to_mkldnn(), "torch._mkldnn"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "torch.qint8 are not supported: give x.int_repr()",
    ),
    "list": (lambda: [1.0], "got list"),
    "number": (lambda: 1.0, "got float"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "odd",
    [pytest.param(odd, marks=pytest.mark.slow if odd in ("fake", "jagged") else ()) for odd in ODD],
)
def test_what_is_no_plain_tensor_is_refused_by_name(odd: str, verb: str) -> None:
    make, message = ODD[odd]
    if verb == "broadcast_parameters" and odd in ("list", "number"):
        message = "broadcast_parameters: expected"
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        VERBS[verb](make())


DTYPES = sorted({str(d): d for d in vars(torch).values() if isinstance(d, torch.dtype)}.items())


@pytest.mark.parametrize(("name", "dtype"), DTYPES)
def test_every_type_of_pytorch_is_taken_or_refused_by_name(name: str, dtype: torch.dtype) -> None:
    try:
        tensor = torch.zeros(16 * hvd.size(), dtype=torch.uint8).view(dtype)
    except RuntimeError:  # quantized ones, and what this version knows by name alone
        tensor = torch.empty(hvd.size(), dtype=dtype)
    name = re.escape(name.removeprefix("torch."))
    for verb in VERBS.values():
        try:
            result = verb(tensor)
        except ValueError as error:
            assert re.search(rf"{name} (are not supported|cannot be reduced)", str(error))  # noqa: PT017
        else:
            if isinstance(result, int):
                hvd.synchronize(result)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_a_subclass_that_holds_its_own_elements_is_taken() -> None:
    class Named(torch.Tensor):
        pass

    result = hvd.allreduce(torch.ones(2).as_subclass(Named), op=hvd.Sum)
    assert result.tolist() == [hvd.size()] * 2
