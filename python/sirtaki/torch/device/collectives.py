"""The collectives on accelerator tensors, which the engine orders and this module launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sirtaki import _core
from sirtaki.core.operations import handles
from sirtaki.core.operations.collectives import Collectives, Done
from sirtaki.core.world.world import World
from sirtaki.torch.device.dispatcher import Dispatcher
from sirtaki.torch.device.operation import DeviceOperation
from sirtaki.torch.ops.tensors import TorchTensors


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
