"""The collectives on an accelerator, and the thread that launches them in all ranks' order."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sirtaki import _core
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import handles
from sirtaki.core.operations.codes import KIND_NAMES
from sirtaki.core.operations.collectives import Collectives, Done
from sirtaki.core.world.world import World
from sirtaki.torch.device.groups import InnerGroup
from sirtaki.torch.device.layer import Device
from sirtaki.torch.device.meeting import meet
from sirtaki.torch.device.operation import Agreed, DeviceOperation
from sirtaki.torch.ops.tensors import TorchTensors, dtype_of

# How long the end of a world waits for operations being launched.
_END_SECONDS = 10.0
# How long the engine has to find out which rank was lost, of which the device may know first.
_LOSS_SECONDS = 2.0
_LATEST = 64


class Dispatcher:
    """Launches the operations agreed by a world's members until the world ends.

    Inner groups of process sets are made when their first operation is due: at that point of the
    order all members are there, and none waits for another one elsewhere.

    Args:
        world: The world.
        device: This process's accelerator.
    """

    def __init__(self, world: World, device: Device) -> None:
        self.device = device
        self._world = world
        self._launches = world.engine.launches
        # The holder of the handle keeps the operation alive.
        self._operations: weakref.WeakValueDictionary[int, DeviceOperation] = (
            weakref.WeakValueDictionary()
        )
        self._numbers = itertools.count(1)
        self._groups: dict[tuple[int, ...], InnerGroup] = {}
        # The latest launched, when, and the events before and behind each. They are read when
        # someone asks: a query here would disturb the capture of a graph in another thread.
        self._latest: deque[tuple[_core.Launch, float, list[object], object]] = deque(
            maxlen=_LATEST
        )
        self._ended = threading.Event()
        self._launcher = threading.Thread(target=self._run, name="sirtaki-launcher", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="sirtaki-watcher", daemon=True)
        self._launcher.start()
        self._watcher.start()
        world.at_close.append(self._close)
        world.on_device = self.running

    def submit(self, request: _core.Request, operation: DeviceOperation) -> None:
        """Mark a request for launch here; the tensors are ready from now on."""
        number = next(self._numbers)
        operation.ready = self.device.record(self.device.current())
        self._operations[number] = operation
        request.launch_as(number)

    def await_results(self, operation: DeviceOperation) -> None:
        """Make the current stream wait for an operation; block only until it is launched."""
        operation.launched.wait()
        if operation.error is not None:
            raise operation.error
        current = self.device.current()
        self.device.wait(current, operation.done)
        self.device.share(operation.outputs, current)

    def running(self) -> list[tuple[str, str, int, float]]:
        """Return the oldest operation in which the device waits for others; see `World.on_device`.

        One that waits for work of this rank is left out: there the others wait for this rank.
        """
        for launch, since, ready, done in list(self._latest):
            if self.device.completed(done):
                continue
            if all(self.device.completed(each) for each in ready):
                kind = KIND_NAMES[launch.kind]
                name = launch.name.removeprefix(f"{kind}.") or "noname"
                return [(kind, name, launch.set, time.monotonic() - since)]
            break
        return []

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # `_watch` handles the error that ended the world
            while batch := self._launches.take():
                self._launch(batch)
            self._leave_groups()

    def _launch(self, batch: Sequence[_core.Launch]) -> None:
        ranks = batch[0].ranks
        rank = ranks.index(self._world.topology.rank)
        all_agreed = [Agreed(self._operation(launch), launch, rank) for launch in batch]
        try:
            group = self._group(batch[0])
            done = self._put(group, all_agreed)
        except Exception as error:
            self._give_up(all_agreed, error)
            raise
        ready = [each.operation.ready for each in all_agreed if each.operation.ready is not None]
        self._latest.append((batch[0], time.monotonic(), ready, done))
        for agreed in all_agreed:
            agreed.operation.end(done)

    def _put(self, group: InnerGroup, batch: Sequence[Agreed]) -> object:
        """Put a batch on the side stream, after the tensors that it needs."""
        side = self.device.side()
        for agreed in batch:
            operation = agreed.operation
            if operation.ready is not None:
                self.device.wait(side, operation.ready)
            if not operation.outputs:
                dtype = dtype_of(agreed.launch.dtype)
                shapes = agreed.result_shapes()
                operation.outputs = [self.device.empty(shape, dtype) for shape in shapes]
            operation.received_splits = agreed.rows(0)
            self.device.share([*operation.inputs, *operation.outputs], side)
        self.device.launch(lambda: group.run(batch))
        return self.device.record(side)

    def _operation(self, launch: _core.Launch) -> DeviceOperation:
        operation = self._operations.get(launch.number)
        if operation is not None:
            return operation
        # This rank has joined and contributes zeros.
        zeros = [self.device.empty(shape, dtype_of(launch.dtype)) for shape in launch.shapes]

        def clear() -> None:
            for tensor in zeros:
                tensor.zero_()

        self.device.launch(clear)
        return DeviceOperation(zeros, zeros)

    def _group(self, launch: _core.Launch) -> InnerGroup:
        members = tuple(launch.ranks)
        if members not in self._groups:
            self._groups[members] = meet(self._world, self.device, members)
        return self._groups[members]

    def _give_up(self, batch: Sequence[Agreed], error: Exception) -> None:
        """End the world, whose other ranks wait for this rank's part on their accelerators."""
        if self._ended.wait(_LOSS_SECONDS):
            return  # this error is a consequence of it, and `_watch` raises the cause
        why = f"an operation could not be launched on the {self.device.backend} device: {error}"
        failure = HorovodInternalError(f"rank {self._world.topology.rank}: {why}")
        failure.__cause__ = error
        for agreed in batch:
            agreed.operation.end(error=failure)
        self._world.engine.abort(why)

    def _watch(self) -> None:
        """When the world is lost, end running operations and those being launched."""
        try:
            self._launches.await_end()
        except Exception as error:
            self._ended.set()
            for ref in self._operations.valuerefs():  # others may be added meanwhile
                operation = ref()
                if operation is not None and not operation.launched.is_set():
                    operation.end(error=error)
            for group in list(self._groups.values()):
                group.abort()

    def _leave_groups(self) -> None:
        if self._groups:
            self.device.finish()
        for group in self._groups.values():
            group.close()

    def _close(self) -> None:
        # Also after a loss: a thread that is in PyTorch's code when the process exits may abort it.
        self._watcher.join(_END_SECONDS)
        self._launcher.join(_END_SECONDS)
        self._ended.set()


class DeviceCollectives(Collectives[torch.Tensor]):
    """Like `Collectives`, but the data never leave the accelerators.

    `synchronize` makes the current stream wait for the results, and returns.

    Args:
        dispatcher: Launches them.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(TorchTensors())
        self._dispatcher = dispatcher

    def _submit(
        self,
        world: World,
        request: _core.Request,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        finish: Callable[[Done], list[Any]],
    ) -> int:
        # Aliases with their own version counters: this thread sees their changes as one, made at
        # the call.
        aliases = {id(tensor): tensor.data for tensor in (*inputs, *outputs)}
        operation = DeviceOperation(
            [aliases[id(tensor)] for tensor in inputs], [aliases[id(tensor)] for tensor in outputs]
        )
        self._dispatcher.submit(request, operation)

        def await_results(_: _core.Handle) -> list[Any]:
            self._dispatcher.await_results(operation)
            return finish(operation)

        return handles.start(world.engine, request, operation, await_results)

    def _outputs(self, done: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs: list[torch.Tensor] = done.outputs
        return outputs
