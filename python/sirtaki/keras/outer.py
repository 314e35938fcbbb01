"""`DiLoCoCallback`: training in `model.fit` that exchanges parameters every so many steps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.outer import (
    PARAMETER,
    OuterSchedule,
    cut_evenly,
    require_equal,
    require_mix,
)
from sirtaki.core.world.process_sets import global_process_set
from sirtaki.keras.elastic import value_of
from sirtaki.keras.functions import synchronise_state
from sirtaki.keras.library import keras
from sirtaki.keras.values import Compression, allreduce

_NAME = "hvd.callbacks.DiLoCoCallback"


class DiLoCoCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets ranks train alone, and exchanges how far their weights have moved every so many steps.

    Compile the model with an optimizer that is not distributed. Every `sync_every` steps the ranks
    average how far their weights have moved since the last exchange. SGD with Nesterov momentum
    moves the weights of the last exchange by the mean, and all go on from the result. With
    ``outer_lr=1.0, outer_momentum=0.0`` ranks average their weights (local SGD). Statistics of
    batch normalization are averaged, too. At the end of `fit` the weights are averaged, so that all
    ranks have the same. List it after `BroadcastGlobalVariablesCallback`. Douillard et al.,
    "DiLoCo" (arXiv 2311.08105).

    Args:
        sync_every: Steps from one exchange of a weight to the next, 50 to 500 in the paper. All
            ranks take equally many steps.
        outer_lr: The learning rate of the outer optimizer.
        outer_momentum: Its momentum.
        fragments: Cut the weights into so many parts of about equal size. One is exchanged every
            ``sync_every / fragments`` steps, in turn.
        mix: What stays of the local weights: ``mix * local + (1 - mix) * outer``.
        compression: Form of the exchanged changes, from `Compression`.

    Raises:
        ValueError: An argument is wrong.
    """

    def __init__(
        self,
        sync_every: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        fragments: int = 1,
        mix: float = 0.0,
        compression: Any = Compression.none,
    ) -> None:
        super().__init__()
        require_mix(_NAME, mix)
        self._schedule = OuterSchedule(sync_every, fragments, 0)
        self._schedule.check(_NAME)
        self._rate, self._momentum, self._mix = outer_lr, outer_momentum, mix
        self._compression = compression
        self._variables: list[Any] = []
        self._parts: list[list[int]] = []
        self._saved: list[NDArray[Any]] = []
        # Momentum by fragment.
        self._speed: dict[int, NDArray[Any]] = {}
        self._step = 0
        self._batch = -1

    def on_train_begin(self, logs: Any = None) -> None:
        """Keep the weights before the first step, which must be the same on all ranks."""
        self._variables = []
        if self.model.built:
            self._begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count batches anew."""
        self._batch = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps since the last call, and exchange what is due.

        Raises:
            ValueError: Settings or weights differ among ranks before the first step.
            HorovodInternalError: A rank was lost.
        """
        first = not self._variables
        if first:  # a model that its first batch has built
            self._begin()
        for _ in range(0 if first else batch - self._batch):
            self._step += 1
            if (fragment := self._schedule.applies(self._step)) is not None:
                self._exchange(fragment)
        self._batch = batch

    def on_train_end(self, logs: Any = None) -> None:
        """Average the weights."""
        if self._variables:
            synchronise_state(self.model)
            self._average([*self._variables, *self._statistics()], "end")

    def _begin(self) -> None:
        synchronise_state(self.model)
        self._variables = list(self.model.trainable_variables)
        if self._schedule.fragments > len(self._variables):
            raise ValueError(
                f"{_NAME}: fragments={self._schedule.fragments} must be at least 1 and at most the "
                f"number of trained parameters, {len(self._variables)}"
            )
        self._saved = [value_of(each) for each in self._variables]
        self._require_same()
        sizes = [each.nbytes for each in self._saved]
        self._parts = cut_evenly(sizes, self._schedule.fragments)
        # Ranks that are new to an elastic job have none.
        self._step, self._speed = broadcast_object((self._step, self._speed), 0, "outer.state")

    def _require_same(self) -> None:
        own: dict[str, Any] = {
            "sync_every": self._schedule.sync_every,
            "fragments": self._schedule.fragments,
            "outer_lr": self._rate,
            "outer_momentum": self._momentum,
            "mix": self._mix,
            "compression": self._compression.__qualname__,
        }
        for number, saved in enumerate(self._saved):
            own[f"{PARAMETER}{number}"] = hashlib.sha256(saved.tobytes()).hexdigest()[:16]
        first = "list hvd.callbacks.BroadcastGlobalVariablesCallback(0) before it"
        require_equal(_NAME, own, "outer.begin", global_process_set, first)

    def _exchange(self, number: int) -> None:
        """Do the outer step of a fragment."""
        synchronise_state(self.model)
        part = self._parts[number]
        variables = [self._variables[at] for at in part]
        saved, local = [self._saved[at] for at in part], [value_of(each) for each in variables]
        moved = _row(saved) - _row(local)
        mean = np.asarray(
            allreduce(moved, f"outer.{number}", compression=self._compression), moved.dtype
        )
        self._speed[number] = speed = self._momentum * self._speed.get(number, 0) + mean
        after = _row(saved) - self._rate * (mean + self._momentum * speed)
        for at, values in zip(part, _rows(after, saved), strict=True):
            self._saved[at] = values
        mixed = (1 - self._mix) * after + self._mix * _row(local)
        _assign(variables, mixed)
        self._average(self._statistics(), "statistics")

    def _statistics(self) -> list[Any]:
        """Return the floating-point variables that no optimizer trains."""
        return [each for each in self.model.non_trainable_variables if "float" in str(each.dtype)]

    def _average(self, variables: Sequence[Any], name: str) -> None:
        if variables:
            row = _row([value_of(each) for each in variables])
            _assign(variables, np.asarray(allreduce(row, f"outer.{name}")))


def _row(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return all elements, with at least 32 bits each."""
    dtype = np.result_type(np.float32, *(each.dtype for each in arrays))
    return np.concatenate([each.astype(dtype).ravel() for each in arrays])


def _rows(row: NDArray[Any], like: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the parts of a row with the shapes and types of arrays."""
    parts = np.split(row, np.cumsum([each.size for each in like])[:-1])
    return [
        part.reshape(each.shape).astype(each.dtype) for part, each in zip(parts, like, strict=True)
    ]


def _assign(variables: Sequence[Any], row: NDArray[Any]) -> None:
    values = [value_of(each) for each in variables]
    for variable, value in zip(variables, _rows(row, values), strict=True):
        variable.assign(value)
