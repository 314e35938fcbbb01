"""What is wrong with operations on accelerators is an error on all ranks."""

from __future__ import annotations

import contextlib
from typing import NoReturn

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.core.world.state import current_world
from sirtaki.core.world.world import place
from tests.parallel.device.conftest import installed
from tests.parallel.device.fake_device import FakeDevice


def expect_and_go_on(device: FakeDevice, tensor: torch.Tensor, message: str) -> None:
    """All ranks get the error, and the next operation works."""
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="wrong")
    with pytest.raises(hvd.MismatchError, match=message):
        hvd.synchronize(handle)
    right = device.tensor(torch.ones(2))
    hvd.allreduce_(right, op=hvd.Sum, name="right")
    assert device.read(right).tolist() == [hvd.size()] * 2


@pytest.mark.skipif("hvd.size() == 1", reason="nobody to disagree with")
class TestRanksThatDisagree:
    def test_on_shapes(self, device: FakeDevice) -> None:
        tensor = device.tensor(torch.ones(2 + (hvd.rank() == 1)))
        message = r"allreduce 'wrong'.*different tensor shapes: .*rank 1 has \[3\]"
        expect_and_go_on(device, tensor, message)

    def test_on_types(self, device: FakeDevice) -> None:
        dtype = torch.float64 if hvd.rank() == 1 else torch.float32
        message = "different data types: .*rank 1 has float64"
        expect_and_go_on(device, device.tensor(torch.ones(2, dtype=dtype)), message)

    def test_on_where_the_tensor_is(self, device: FakeDevice) -> None:
        tensor = device.tensor(torch.ones(2))
        with device.host_tensors() if hvd.rank() == 1 else contextlib.nullcontext():
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="wrong")
        message = "different devices: .*rank 1 has a CPU tensor"
        with pytest.raises(hvd.MismatchError, match=message):
            hvd.synchronize(handle)


def test_the_report_of_a_hang_learns_in_what_the_accelerator_waits_for_others(
    device: FakeDevice,
) -> None:
    key = current_world().key
    tensor = device.tensor(torch.ones(2))
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="x")
    device.read(tensor)  # what the script had put on its stream is done
    hvd.synchronize(handle)
    hvd.allreduce_(tensor, op=hvd.Sum)
    (waits,) = place()["device"][key]
    assert (waits["kind"], waits["name"], waits["set"]) == ("allreduce", "x", 0)
    device.read(tensor)
    assert place()["device"] == {key: []}


def test_an_accelerator_that_has_not_come_to_an_operation_does_not_wait_for_others(
    device: FakeDevice,
) -> None:
    hvd.allreduce_(device.tensor(torch.ones(2)), op=hvd.Sum)
    assert place()["device"] == {current_world().key: []}


def test_a_name_that_is_under_way_is_refused(device: FakeDevice) -> None:
    handle = hvd.allreduce_async_(device.tensor(torch.ones(2)), name="x")
    with pytest.raises(ValueError, match="same name"):
        hvd.allreduce_async_(device.tensor(torch.ones(2)), name="x")
    hvd.synchronize(handle)


def test_an_operation_within_the_capture_of_a_graph_is_refused(device: FakeDevice) -> None:
    device.captures = True
    for operation in (hvd.allreduce, hvd.allgather, hvd.reducescatter):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            operation(torch.ones(2), name="captured")
    device.captures = False
    right = device.tensor(torch.ones(2))
    hvd.allreduce_(right, op=hvd.Sum, name="right")
    assert device.read(right).tolist() == [hvd.size()] * 2


class BrokenDevice(FakeDevice):
    """One whose group cannot be made."""

    def make_group(self, *_: object) -> NoReturn:
        raise RuntimeError("no such library")


def test_what_one_rank_cannot_launch_ends_the_world_on_all() -> None:
    broken = BrokenDevice if hvd.rank() == hvd.size() - 1 else FakeDevice
    with installed(broken(f"fake {hvd.rank()}", patience=2.0)):
        handle = hvd.allreduce_async_(torch.ones(2), name="x")
        with pytest.raises(hvd.HorovodInternalError) as raised:
            hvd.synchronize(handle)
        if broken is BrokenDevice:
            assert "could not be launched on the gloo device: no such library" in str(raised.value)
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(2))
