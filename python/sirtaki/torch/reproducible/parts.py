"""The parts of a step: each is computed by one rank, and the step does not depend on which."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import torch

from sirtaki.core.errors import MismatchError
from sirtaki.core.operations.objects import allgather_object
from sirtaki.core.operations.reduce_ops import Max, Sum
from sirtaki.core.tracing.spans import trace
from sirtaki.core.world import state as world_state
from sirtaki.elastic.run import is_loss
from sirtaki.elastic.seeds import part_seed
from sirtaki.torch.ops.allreduce import allreduce, allreduce_async_
from sirtaki.torch.ops.handles import synchronize
from sirtaki.torch.reproducible import sums as exact
from sirtaki.torch.reproducible.buffers import Buffers
from sirtaki.torch.reproducible.optimizer import _ReproducibleOptimizer
from sirtaki.torch.reproducible.randoms import RandomStates, seed_all
from sirtaki.torch.reproducible.shares import Spent
from sirtaki.torch.reproducible.sums import GradientSum, Seen, sum_name

_log = logging.getLogger("sirtaki")


class Balanced(Protocol):
    """Shares out parts in proportion to the ranks' speeds."""

    given: int

    def add_time(self, us: int) -> Spent:
        """Add the time of a part; return what this rank has spent since the last window."""

    def note(self, spent: Sequence[Spent], given: int) -> None:
        """Note what all ranks have spent, and how many samples their loaders have asked for."""


class StepPlan(NamedTuple):
    """What a step computes, the same on all ranks except for `mine`.

    Attributes:
        parts: How many parts there are.
        mine: The parts of this rank.
        samples: The samples of each part.
        seed: The seed of the training.
        epoch: The epoch.
        position: How many samples of it were used before.
        balanced: Takes the ranks' times; None: nobody does.
    """

    parts: int
    mine: Sequence[int]
    samples: Sequence[Sequence[int]]
    seed: int
    epoch: int
    position: int
    balanced: Balanced | None = None


class Keeping(Protocol):
    """Keeps a step whose parts fail, or have values that are not finite."""

    def look(self, part: int, sums: Sequence[GradientSum], reported: Mapping[str, float]) -> None:
        """Look at what a part has computed."""

    def note_special(self) -> None:
        """Note that a rank has found a gradient that is not finite."""

    def failed(self, error: Exception) -> None:
        """Note an error of a part."""


class Part:
    """A part of a step. The gradients computed in ``with part:`` belong to it.

    Attributes:
        index: Its number, from 0.
        samples: The indices of its samples.
    """

    def __init__(self, step: StepParts, index: int) -> None:
        self.index = index
        self.samples = step.plan.samples[index]
        self._step = step
        self._trace = trace(f"part {index}")

    def __enter__(self) -> Part:
        self._step.enter(self)
        self._trace.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._trace.__exit__(kind, error, traceback)
        self._step.leave(error)

    def report(self, **values: float | torch.Tensor) -> None:
        """Report numbers, such as the loss: `state.reported` has their means over all parts.

        Raises:
            RuntimeError: The part is not being computed.
        """
        self._step.report(
            self,
            {
                name: float(value.detach() if isinstance(value, torch.Tensor) else value)
                for name, value in values.items()
            },
        )


class StepParts(Iterator[Part]):
    """Yields this rank's parts of a step, again if the sums did not fit; then exchanges the sums.

    Args:
        optimizer: Whose gradients are added.
        buffers: What the parts change, of the models.
        plan: What the step computes.
        reported: Filled with the means of what the parts report.
        keeper: May keep the step; None: nothing does.
    """

    def __init__(
        self,
        optimizer: _ReproducibleOptimizer,
        buffers: Buffers,
        plan: StepPlan,
        reported: dict[str, float],
        keeper: Keeping | None = None,
    ) -> None:
        self.plan = plan
        self._optimizer = optimizer
        self._sums = optimizer.sums
        self._buffers = buffers
        self._reported = reported
        self._keeper = keeper
        self._left = list(plan.mine)
        self._given: Part | None = None  # and not left yet
        self._entered = False
        self._done = False
        self._failed = False
        self._made: dict[int, tuple[dict[str, float], list[Any]]] = {}
        self._random: RandomStates | None = None
        self._began = 0.0
        self._handles: list[int | None] | None = None
        exponents = optimizer.kept.get("exponents", [None] * len(self._sums))
        threads = optimizer.kept.get("threads", torch.get_num_threads())
        if threads != torch.get_num_threads():
            raise RuntimeError(
                f"rank {world_state.rank()} computes with {torch.get_num_threads()} threads, and "
                f"the steps before it were computed with {threads}, on which the bits of sums "
                f"depend: set OMP_NUM_THREADS={threads} for all ranks"
            )
        optimizer.begin(self)
        self._buffers.begin()
        self._begin(exponents)

    def _begin(self, exponents: Sequence[int | None]) -> None:
        for one, exponent in zip(self._sums, exponents, strict=True):
            one.param.grad = None
            one.begin(exponent)
        self._left = list(self.plan.mine)
        self._made = {}
        self._handles = None

    def __next__(self) -> Part:
        if self._given is not None:
            raise RuntimeError(
                f"part {self._given.index} was not computed: put the forward and backward passes "
                "into `with part:`"
            )
        if self._failed:
            self.abandon()  # raises on all ranks, because a part is missing
        while not self._left:
            if self._done or not self._exchange():
                self._done = True
                raise StopIteration
        self._given = Part(self, self._left.pop(0))
        return self._given

    @property
    def is_done(self) -> bool:
        """Whether all parts were computed and their sums exchanged."""
        return self._done

    def enter(self, part: Part) -> None:
        """Begin a part: set the seeds of its random numbers."""
        if part is not self._given or self._entered:
            raise RuntimeError(f"part {part.index} is not the current one of state.parts()")
        self._entered = True
        self._made[part.index] = ({}, [])
        self._random = RandomStates()
        seed_all(part_seed(self.plan.seed, self.plan.epoch, self.plan.position, part.index))
        self._buffers.enter()
        self._began = time.perf_counter()

    def leave(self, error: BaseException | None) -> None:
        """End the part: add its gradients, and restore random states and buffers."""
        part, self._given, self._entered = self._given, None, False
        assert part is not None
        assert self._random is not None
        self._failed = True
        self._random.restore()
        if error is not None:
            self._buffers.restore()
            for one in self._sums:
                one.param.grad = None
            if self._keeper is not None and isinstance(error, Exception) and not is_loss(error):
                self._keeper.failed(error)
            return
        made = self._buffers.leave()
        self._made[part.index] = (self._made[part.index][0], made)
        for one in self._sums:
            one.check()
        last = not self._left
        handles: list[int | None] = []
        for one in self._sums:
            one.take(last)
            if last:  # the sums move while the other gradients are rounded
                handles.append(one.start())
        if last:
            self._handles = handles
        if self._keeper is not None:
            self._keeper.look(part.index, self._sums, self._made[part.index][0])
        if self.plan.balanced is not None:
            self.plan.balanced.add_time(round(1e6 * (time.perf_counter() - self._began)) + 1)
        self._failed = False

    def report(self, part: Part, values: dict[str, float]) -> None:
        """Keep what a part reports."""
        if part is not self._given or not self._entered:
            raise RuntimeError("part.report() belongs into `with part:`")
        self._made[part.index][0].update(values)

    def abandon(self) -> None:
        """Tell the other ranks that this one has left the loop, and raise, as they do."""
        self._exchange(abandoned=True)

    def _exchange(self, abandoned: bool = False) -> bool:
        """Exchange the sums; return whether the step has to be computed again."""
        if self._handles is None:
            self._handles = [one.start() for one in self._sums]
        seen, reports, left = self._agree(abandoned)
        for handle in self._handles:
            if handle is not None:
                synchronize(handle)
        if left:
            self._done = True
            raise RuntimeError(
                "a rank left the loop over state.parts() before its end, so the step has no "
                "gradients: compute all parts of each step"
            )
        if self._keeper is not None and any(each.special for each in seen):
            self._keeper.note_special()
        terms = self.plan.parts
        again = [
            exact.does_not_fit(one, each, terms) for one, each in zip(self._sums, seen, strict=True)
        ]
        after = exact.exponents_after(self._sums, seen, terms)
        if any(again):
            names = [one.name for one, wrong in zip(self._sums, again, strict=True) if wrong]
            self._log_again(names)
            self._begin(
                [
                    fitting if wrong else one.exponent
                    for one, fitting, wrong in zip(self._sums, after, again, strict=True)
                ]
            )
            return True
        for one, each in zip(self._sums, seen, strict=True):
            one.finish(each, terms if self._optimizer.averages else 1)
        self._combine(reports)
        self._optimizer.accept(after)
        return False

    def _agree(self, abandoned: bool) -> tuple[list[Seen], bool, bool]:
        """Return what all ranks have seen, whether one reports, and whether one has left."""
        own = _packed(self._sums)
        reports = any(values for values, _ in self._made.values())
        settings = self._settings()
        number = zlib.crc32(repr(settings).encode()) >> 1
        header = [int(reports), int(abandoned), number, -number]
        numbers = [*own, *self._times(), *header]
        together = torch.tensor(numbers, dtype=torch.int32, device="cpu")
        try:
            found = allreduce(together, name="reproducible.seen", op=Max).tolist()
        except MismatchError:  # another number of parameters, or shares on some ranks only
            raise self._disagreement(settings) from None
        reports_any, left, most, negated_least = found[-4:]
        if most != -negated_least:
            raise self._disagreement(settings)
        if self.plan.balanced is not None and not left:
            *times, given = found[len(own) : -4]
            spent = [Spent(*times[at : at + 2]) for at in range(0, len(times), 2)]
            self.plan.balanced.note(spent, given)
        return _unpacked(found[: len(own)]), bool(reports_any), bool(left)

    def _disagreement(self, settings: dict[str, Any]) -> ValueError:
        """Return the error of ranks that differ: which one, and in what."""
        started = {one.name: one.started for one in self._sums if one.started}
        of_all = allgather_object((settings, started), "reproducible.settings")
        _end_sums([sums for _, sums in of_all], started, self._handles or [])
        for rank, (theirs, _) in enumerate(of_all):
            for name, value in settings.items():
                if theirs[name] != value:
                    return ValueError(
                        f"reproducible training: {name} is {theirs[name]} on rank {rank} and "
                        f"{value} on rank {world_state.rank()}; all ranks need the same"
                    )
        return ValueError("reproducible training: two other ranks differ in their settings")

    def _times(self) -> list[int]:
        """Return numbers of which each rank knows its own: time and parts, and what is given."""
        balanced = self.plan.balanced
        if balanced is None:
            return []
        times = [0] * (2 * world_state.size())
        at = 2 * world_state.rank()
        times[at : at + 2] = balanced.add_time(0)
        return [*times, balanced.given]

    def _settings(self) -> dict[str, Any]:
        return {
            "parts": self.plan.parts,
            "batch size": len(self.plan.samples[0]),
            "seed": self.plan.seed,
            "epoch": self.plan.epoch,
            "position in the epoch": self.plan.position,
            "threads (OMP_NUM_THREADS)": torch.get_num_threads(),
            "balance": self.plan.balanced is not None,
            "average": self._optimizer.averages,
            "names of the parameters": [one.name for one in self._sums],
            "exponents of the gradients": [one.exponent for one in self._sums],
        }

    def _combine(self, reports: bool) -> None:
        self._reported.clear()
        if not (reports or self._buffers):
            return
        given = allgather_object(self._made, "reproducible.made")
        made = {index: each for one in given for index, each in one.items()}
        in_order = [made[index] for index in range(self.plan.parts)]
        self._buffers.finish([buffers for _, buffers in in_order])
        for name in in_order[0][0]:
            values = [each[name] for each, _ in in_order if name in each]
            self._reported[name] = math.fsum(values) / len(values)

    def _log_again(self, names: Sequence[str]) -> None:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        if world_state.rank() == 0:
            _log.info(
                "the gradients of %s%s are the first ones, or much larger or smaller than in the "
                "step before: the step is computed again",
                names[0],
                more,
            )


def _packed(sums: Sequence[GradientSum]) -> list[int]:
    """Return numbers whose maxima over the ranks are what all of them have seen."""
    largest = [one.seen.largest + 1 if one.seen.used else 0 for one in sums]
    return [*largest, *(int(one.seen.special) for one in sums)]


def _unpacked(numbers: Sequence[int]) -> list[Seen]:
    count = len(numbers) // 2
    return [
        Seen(largest > 0, max(largest - 1, 0), special > 0)
        for largest, special in zip(numbers[:count], numbers[count:], strict=True)
    ]


def _end_sums(
    of_all: Sequence[dict[str, int]], own: dict[str, int], handles: Sequence[int | None]
) -> None:
    """End the sums that some ranks have started, so that none of a later step meets them."""
    missing = {name: size for sums in of_all for name, size in sums.items() if name not in own}
    more = [
        allreduce_async_(
            torch.zeros(size, dtype=torch.int64, device="cpu"), name=sum_name(name), op=Sum
        )
        for name, size in sorted(missing.items())
    ]
    for handle in [*handles, *more]:
        if handle is not None:
            with contextlib.suppress(MismatchError):
                synchronize(handle)
