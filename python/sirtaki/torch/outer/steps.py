"""Outer steps: what local training has changed is averaged over ranks, and applied."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from sirtaki._core import feed_back
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import compress_for
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.outer import PARAMETER, OuterSchedule, require_equal
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.torch.compression import Compressor, codec_of, feeds_back
from sirtaki.torch.gradients.optimizer_state import broadcast_with_tensors, options_of
from sirtaki.torch.gradients.parameters import name_of_unnamed
from sirtaki.torch.gradients.transformation import Exchange, scale_of
from sirtaki.torch.gradients.transformations import transformation_of
from sirtaki.torch.ops.allreduce import start_allreduce
from sirtaki.torch.ops.handles import return_inputs, runner_of, stage_in_place, synchronize
from sirtaki.torch.outer.fragments import Fragment


class OuterSettings(NamedTuple):
    """What the user chose; see `DiLoCo`."""

    optimizer: str
    schedule: OuterSchedule
    mix: float
    compression: type[Compressor]
    process_set: ProcessSet

    def compared(self) -> dict[str, Any]:
        """Return what must be equal on all ranks, by the name of the argument."""
        return {
            "sync_every": self.schedule.sync_every,
            "fragments": self.schedule.fragments,
            "delay": self.schedule.delay,
            "mix": self.mix,
            "compression": self.compression.__qualname__,
        }


class _Pending(NamedTuple):
    """An exchange that runs."""

    fragment: int
    take: Callable[[], torch.Tensor]  # waits for the mean
    buffers: int | None


class OuterSteps:
    """Counts local steps, and does the outer ones.

    Args:
        settings: The user's choice.
        fragments: Of the model.
        model: Its floating-point buffers are averaged at each outer step.
        make_optimizer: Returns the outer optimizer of parameters.
    """

    def __init__(
        self,
        settings: OuterSettings,
        fragments: Sequence[Fragment],
        model: torch.nn.Module,
        make_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
    ) -> None:
        self.settings = settings
        self._fragments = fragments
        self._model = model
        self._optimizer = make_optimizer(self._saved())
        self._name = f"outer.{name_of_unnamed(settings.process_set)}"
        self._step = 0
        self._began = False
        self._pending: _Pending | None = None
        # Whether a state was loaded since the last outer step, as after a loss.
        self._loaded = False
        self._transformation = transformation_of(settings.compression)
        # What compression has lost of each fragment.
        self._lost: dict[int, torch.Tensor] = {}

    @property
    def _takes_part(self) -> bool:
        return bool(self.settings.process_set.included())

    def begin(self) -> None:
        """Keep the parameters before the first local step, when all ranks must have the same."""
        if self._began or not self._takes_part:
            return
        self._require_equal()
        for fragment in self._fragments:
            fragment.save()
        self._began = True

    def count(self) -> None:
        """Count a local step, and do what is due after it."""
        self._step += 1
        if not self._takes_part:
            return
        schedule = self.settings.schedule
        if (fragment := schedule.starts(self._step)) is not None:
            self._start(fragment)
        if (fragment := schedule.applies(self._step)) is not None:
            self._apply(fragment)

    def finish(self) -> None:
        """Use an exchange that runs; then average parameters and buffers over the ranks."""
        if not self._takes_part:
            return
        self.begin()
        if self._pending is not None:
            self._apply(self._pending.fragment)
        for number, fragment in enumerate(self._fragments):
            row = fragment.packed(differences=False)
            self._average(row, f"{self._name}.finish.{number}")
            with torch.no_grad():
                for param, mean in zip(fragment.params, fragment.unpacked(row), strict=True):
                    param.copy_(mean)
            fragment.save()
        self._average_buffers(self._submit_buffers())

    def _start(self, number: int) -> None:
        """Start the exchange of a fragment's outer gradient: its saved parameters less its own."""
        self._require_same_model()
        row = self._fragments[number].packed(differences=True)
        exchange = self._exchange if self._transformation is None else self._transform
        self._pending = _Pending(number, exchange(number, row), self._submit_buffers())

    def _transform(self, number: int, row: torch.Tensor) -> Callable[[], torch.Tensor]:
        transformation = self._transformation
        reduction = Reduction(Average, 1.0, 1.0, self.settings.process_set)
        assert transformation is not None
        name = f"{self._name}.{number}"
        steps = transformation.reduce([number], [name], [row], scale_of(reduction))
        exchange = Exchange(steps, name, reduction)

        def take() -> torch.Tensor:
            exchange.finish()
            transformation.settle(used=True)
            return row

        return take

    def _exchange(self, number: int, row: torch.Tensor) -> Callable[[], torch.Tensor]:
        compression = self.settings.compression
        codec = codec_of(compression, [row], Average)
        sent, context = compress_for(codec, compression, row)
        if codec != codes.NO_CODEC and feeds_back(compression) and sent.dtype == torch.float32:
            if number not in self._lost:
                self._lost[number] = torch.zeros_like(sent)
            lost = self._lost[number]
            feed_back(codec, sent.data_ptr(), lost.data_ptr(), sent.numel())
        handle = self._submit(sent, f"{self._name}.{number}", codec)
        return lambda: compression.decompress(synchronize(handle), context)

    def _apply(self, number: int) -> None:
        """Step the saved parameters by the mean outer gradient, and go on from there."""
        if self._pending is None:  # the state was loaded while the exchange ran
            self._start(number)
        assert self._pending is not None
        pending = self._pending
        row = pending.take()
        self._pending, self._loaded = None, False
        fragment = self._fragments[number]
        for saved, gradient in zip(fragment.saved, fragment.unpacked(row), strict=True):
            saved.grad = gradient
        self._optimizer.step()
        self._optimizer.zero_grad()
        with torch.no_grad():
            for saved, param in zip(fragment.saved, fragment.params, strict=True):
                param.copy_(saved.lerp(param, self.settings.mix))
        self._average_buffers(pending.buffers)

    def _submit(self, row: torch.Tensor, name: str, codec: int = codes.NO_CODEC) -> int:
        reduction = Reduction(Average, 1.0, 1.0, self.settings.process_set)
        runner = runner_of([row], "allreduce", Average)
        staged = stage_in_place([row], runner)
        handle = start_allreduce(staged, name, reduction, in_place=True, runner=runner, codec=codec)
        return return_inputs(handle, [row], single=True)

    def _average(self, row: torch.Tensor, name: str) -> None:
        synchronize(self._submit(row, name))

    def _buffers(self) -> list[torch.Tensor]:
        return [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]

    def _submit_buffers(self) -> int | None:
        buffers = self._buffers()
        if not buffers:
            return None
        row = torch.cat([buffer.flatten().double() for buffer in buffers])
        return self._submit(row, f"{self._name}.buffers")

    def _average_buffers(self, handle: int | None) -> None:
        if handle is None:
            return
        buffers = self._buffers()
        parts = synchronize(handle).split([buffer.numel() for buffer in buffers])
        for buffer, mean in zip(buffers, parts, strict=True):
            buffer.copy_(mean.view(buffer.shape))

    def _require_same_model(self) -> None:
        """Raise RuntimeError if the model has got other parameters than the fragments have."""
        own = {param for fragment in self._fragments for param in fragment.params}
        here = sum(param in own for param in self._model.parameters())
        if here != len(own):
            raise RuntimeError(
                f"{self.settings.optimizer}: {len(own) - here} of its {len(own)} parameters are no "
                "longer the model's: make the optimizer after the model has its parameters"
            )

    def _require_equal(self) -> None:
        """Raise ValueError, on all ranks, if settings or parameters differ among them."""
        own = {**self.settings.compared(), "the outer optimizer": self._described()}
        for fragment in self._fragments:
            pairs = zip(fragment.names, fragment.params, strict=True)
            own |= {f"{PARAMETER}{name}": _hash(param) for name, param in pairs}
        require_equal(
            self.settings.optimizer,
            own,
            f"{self._name}.begin",
            self.settings.process_set,
            "call hvd.broadcast_parameters(model.state_dict(), 0) first",
        )

    def _described(self) -> str:
        """Return the outer optimizer's class and options."""
        return f"{type(self._optimizer).__name__} {options_of(self._optimizer)}"

    @property
    def turns(self) -> int:
        """The number of outer steps."""
        return self._step // self.settings.schedule.turn

    @property
    def began(self) -> bool:
        """Whether the first step was done, or a state loaded."""
        return self._began

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """Return the parameters with their names."""
        return [
            pair
            for fragment in self._fragments
            for pair in zip(fragment.names, fragment.params, strict=True)
        ]

    def adopt(self, root_rank: int) -> bool:
        """Take over the state of a rank that has begun; all ranks call it.

        Parameters go back to the last outer step: all of them on a rank that was at another one,
        otherwise those in flight when a rank was lost.

        Returns:
            Whether this rank was at the root's outer step.
        """
        began, saved = self._began, [one.clone() for one in self._saved()]
        lost = self._loaded
        self.load(broadcast_with_tensors(self.state(), root_rank, f"{self._name}.adopt"))
        same = began and all(map(torch.equal, saved, self._saved()))
        failed = self.settings.schedule.in_flight(self._step) if lost else None
        for number, fragment in enumerate(self._fragments):
            if not same or number == failed:
                fragment.go_back()
        self._loaded = False
        return same

    def _saved(self) -> list[torch.Tensor]:
        return [one for each in self._fragments for one in each.saved]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs. Steps since the last outer one are local to a rank."""
        schedule = self.settings.schedule
        return {
            "step": self._step,
            "local_steps": self._step % schedule.turn,
            "saved": self._saved() if self._began else [],
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state; an exchange that runs is dropped.

        Raises:
            ValueError: It is the state of another model.
        """
        saved = self._saved()
        shapes = [tuple(one.shape) for one in state["saved"]]
        if shapes and shapes != [tuple(one.shape) for one in saved]:
            raise ValueError(
                f"{self.settings.optimizer}: the loaded state is of {len(shapes)} parameters, "
                f"which differ from the {len(saved)} of this model in number or shape: load the "
                "state of this model, cut into the same fragments"
            )
        self._drop_pending()
        self._loaded = True
        self._lost.clear()
        if self._transformation is not None:
            self._transformation.feedback.clear()
        self._step = state["step"]
        self._began = bool(shapes)
        with torch.no_grad():
            for own, loaded in zip(saved, state["saved"], strict=False):
                own.copy_(loaded)
        self._optimizer.load_state_dict(state["optimizer"])

    def _drop_pending(self) -> None:
        """Wait for an exchange that runs, as the engine uses its memory, and drop the result."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        # Its world may have ended (ValueError: the error was raised once already).
        with contextlib.suppress(HorovodInternalError, ValueError):
            pending.take()
        if pending.buffers is not None:
            with contextlib.suppress(HorovodInternalError, ValueError):
                synchronize(pending.buffers)


def _hash(param: torch.Tensor) -> str:
    data = param.detach().cpu().reshape(-1).view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16]
