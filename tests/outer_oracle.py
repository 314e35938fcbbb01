"""DiLoCo in NumPy, which plays all ranks of a training with known gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LR = 0.05


def target(rank: int, step: int, shape: tuple[int, ...]) -> Array:
    """Where a rank pulls a parameter at a step."""
    count = int(np.prod(shape))
    return np.sin(np.arange(count) * (rank + 1) + step).reshape(shape)


class Oracle:
    """DiLoCo of all ranks, as the papers have it.

    Args:
        start: The parameters.
        ranks: How many.
        fragments: The positions of the parameters of each.
        sync_every, delay, mix: See `sirtaki.torch.DiLoCo`.
        lr, momentum: Of the outer optimizer.
    """

    def __init__(
        self, start: Sequence[Array], ranks: int, fragments: list[list[int]], sync_every: int,
        delay: int = 0, mix: float = 0.0, lr: float = 0.7, momentum: float = 0.9,
    ) -> None:  # fmt: skip
        self.members = list(range(ranks))
        self.local = [[np.array(one, np.float64) for one in start] for _ in range(ranks)]
        self.saved = [np.array(one, np.float64) for one in start]
        self.speed: list[Array | None] = [None] * len(start)
        self.fragments, self.turn, self.delay = fragments, sync_every // len(fragments), delay
        self.mix, self.lr, self.momentum = mix, lr, momentum
        self.step = 0
        self.outer: dict[int, Array] = {}

    def run(self, steps: int, groups: list[list[int]] | None = None) -> None:
        """Do steps of SGD. groups: ranks that average each gradient."""
        for _ in range(steps):
            for ranks in groups or [[rank] for rank in range(len(self.local))]:
                for params in (self.local[rank] for rank in ranks):
                    for param in params:
                        goals = [target(self.members[r], self.step, param.shape) for r in ranks]
                        param -= LR * (param - np.mean(goals, axis=0))
            self.step += 1
            self.exchange()

    def exchange(self) -> None:
        if (fragment := self._due(self.step + self.delay)) is not None:
            self.start(fragment)
        if (fragment := self._due(self.step)) is not None:
            if fragment[0] not in self.outer:  # members have changed meanwhile
                self.start(fragment)
            for index in fragment:
                self.apply(index, self.outer.pop(index))

    def _due(self, step: int) -> list[int] | None:
        turn, rest = divmod(step, self.turn)
        return None if rest else self.fragments[(turn - 1) % len(self.fragments)]

    def start(self, fragment: list[int]) -> None:
        for index in fragment:
            mean = np.mean([params[index] for params in self.local], axis=0)
            self.outer[index] = self.saved[index] - mean

    def apply(self, index: int, gradient: Array) -> None:
        before = self.speed[index]
        self.speed[index] = speed = (
            gradient if before is None else self.momentum * before + gradient
        )
        nesterov = gradient + self.momentum * speed if self.momentum else gradient
        self.saved[index] = self.saved[index] - self.lr * nesterov
        for params in self.local:
            params[index] = (1 - self.mix) * self.saved[index] + self.mix * params[index]

    def change(self, members: Sequence[int]) -> None:
        """Go on with other members; newcomers take the saved parameters.

        After a loss, so do all for parameters in flight.
        """
        kept = dict(zip(self.members, self.local, strict=True))
        self.local = [kept.get(member, [one.copy() for one in self.saved]) for member in members]
        if not set(self.members) <= set(members):
            for params in self.local:
                for index in self.outer:
                    params[index] = self.saved[index].copy()
        self.members = list(members)
        self.outer.clear()
