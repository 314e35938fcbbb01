"""The steps of a training loop that is written in parts, and the batches of a loader for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sirtaki.core.config import Config
from sirtaki.core.world import state as world_state
from sirtaki.elastic.seeds import part_seed
from sirtaki.elastic.state import ObjectState
from sirtaki.torch.reproducible.batches import ConstantBatchSampler
from sirtaki.torch.reproducible.buffers import Buffers
from sirtaki.torch.reproducible.optimizer import is_reproducible
from sirtaki.torch.reproducible.parts import Part, StepParts, StepPlan
from sirtaki.torch.reproducible.randoms import RandomStates, seed_all

if TYPE_CHECKING:
    from sirtaki.torch.reproducible.keep import Keeper


class Steps:
    """The current step of a state, and what its parts have reported."""

    def __init__(self) -> None:
        self.reported: dict[str, float] = {}
        self._current: StepParts | None = None
        self._batches: _Batches | None = None
        self._models: list[torch.nn.Module] = []
        self._buffers: Buffers | None = None
        self._keeper: Keeper | None = None

    def forget(self) -> None:
        """Drop the current step, whose world is lost."""
        self._current = self._batches = None
        if self._keeper is not None:
            self._keeper.forget()

    def failed(self, error: Exception) -> None:
        """Keep the current step, if that is asked for, because of an error."""
        if self._keeper is not None:
            self._keeper.failed(error)

    def parts(self, values: Sequence[Any], state: ObjectState) -> StepParts:
        """Begin a step with the optimizer, the sampler and the modules among these values.

        `state` has other values.

        Raises:
            ValueError: One is missing or does not fit.
            RuntimeError: The step before has not ended, or the epoch has.
        """
        optimizer = _only(values, torch.optim.Optimizer, "an optimizer")
        if not is_reproducible(optimizer):
            raise ValueError(
                "state.parts() needs an optimizer made by "
                "hvd.DistributedOptimizer(..., reproducible=True)"
            )
        sampler = self._sampler(values)
        current = self._current
        if current is not None and not current.is_done:
            self._current = None
            current.abandon()
        models = [each for each in values if isinstance(each, torch.nn.Module)]
        if self._buffers is None or models != self._models:
            self._models, self._buffers = models, Buffers(models)
        config = world_state.current_world().config
        if config.replay or config.keep_step:
            self._current = self._watched(config, optimizer, sampler, state, self._buffers)
        else:
            plan = plan_of(sampler)
            self._current = StepParts(optimizer, self._buffers, plan, self.reported)
        return self._current

    def _watched(
        self,
        config: Config,
        optimizer: Any,
        sampler: ConstantBatchSampler,
        state: ObjectState,
        buffers: Buffers,
    ) -> StepParts:
        """Begin a step that is a kept one, or may be kept."""
        from sirtaki.torch.reproducible import keep  # not on Windows

        objects = state._contents()
        subject = keep.Subject(self._models, optimizer, buffers, objects, sampler.settings)
        if config.replay:
            from sirtaki.torch.reproducible import replay

            loaded = replay.load(Path(config.replay), subject, sampler)
            state._take({name: value for name, value in loaded.items() if name in objects})
            return replay.ReplayedParts(subject, plan_of(sampler), self.reported)
        self._keeper = self._keeper or keep.Keeper(config.keep_step)
        plan = plan_of(sampler)
        step = StepParts(optimizer, buffers, plan, self.reported, self._keeper)
        self._keeper.begin(subject, plan)
        return step

    def batches(
        self, values: Sequence[Any], loader: Any, state: ObjectState
    ) -> Iterator[tuple[Part, Any]]:
        """Begin a step whose parts come with their batches.

        Raises:
            ValueError: The loader's `batch_sampler` is not the state's sampler; or as `parts`.
            RuntimeError: As `parts`.
        """
        sampler = self._sampler(values)
        if getattr(loader, "batch_sampler", None) is not sampler:
            raise ValueError(
                "state.parts(loader) needs a loader of this state's sampler: "
                "DataLoader(data, batch_sampler=sampler)"
            )
        parts = self.parts(values, state)
        if self._batches is None or not self._batches.go_on(loader, sampler):
            self._batches = _Batches(loader, sampler)
        batches = self._batches
        return ((part, batches.of(part.index)) for part in parts)

    @staticmethod
    def _sampler(values: Sequence[Any]) -> ConstantBatchSampler:
        found: ConstantBatchSampler = _only(values, ConstantBatchSampler, "a ConstantBatchSampler")
        return found


class _Batches:
    """A loader's batches, in the order in which the sampler gives out this rank's parts."""

    def __init__(self, loader: Any, sampler: ConstantBatchSampler) -> None:
        self._loader = loader
        self._shares = sampler.shares
        self._epoch = sampler.epoch
        self._after = sampler.after_step
        self._of_step: dict[int, Any] = {}
        # The loader draws the seeds of its workers, which must not depend on the rank's history.
        before = RandomStates()
        seed_all(part_seed(sampler.seed, sampler.epoch, sampler.processed_num, -1))
        self._iterator = iter(loader)
        before.restore()

    def go_on(self, loader: Any, sampler: ConstantBatchSampler) -> bool:
        """Return whether the next batches are those of the sampler's step."""
        fits = (
            loader is self._loader
            and sampler.shares is self._shares
            and sampler.epoch == self._epoch
            and sampler.processed_num == self._after
        )
        self._after = sampler.after_step
        self._of_step = {}
        return fits

    def of(self, part: int) -> Any:
        """Return the batch of a part, again if the step is computed again."""
        if part not in self._of_step:
            self._of_step[part] = next(self._iterator)
        return self._of_step[part]


def plan_of(sampler: ConstantBatchSampler) -> StepPlan:
    """Return what the sampler's next step computes.

    Raises:
        RuntimeError: The epoch has no step left.
    """
    if sampler.steps_left == 0:
        raise RuntimeError(
            f"epoch {sampler.epoch} has no step left (sampler.steps_left is 0): call "
            "sampler.set_epoch() with the next epoch before state.parts()"
        )
    return StepPlan(
        sampler.parts,
        sampler.mine,
        sampler.step_samples(),
        sampler.seed,
        sampler.epoch,
        sampler.processed_num,
        sampler if sampler.balance else None,
    )


def _only(values: Sequence[Any], kind: type[Any], what: str) -> Any:
    found = [each for each in values if isinstance(each, kind)]
    if len(found) != 1:
        raise ValueError(
            f"state.parts() needs a TorchState with {what}, and this one has {len(found)}: pass "
            "model, optimizer and sampler to it"
        )
    return found[0]
