"""At which steps of a training with rare exchanges each fragment of the model is exchanged."""

from __future__ import annotations

from typing import NamedTuple


class OuterSchedule(NamedTuple):
    """The turns of the fragments, as in Streaming DiLoCo (arXiv 2501.18512).

    Attributes:
        sync_every: The steps from one exchange of a fragment to its next.
        fragments: How many there are; one is exchanged every ``sync_every / fragments`` steps.
        delay: The steps between the start of an exchange and its use.
    """

    sync_every: int
    fragments: int
    delay: int

    @property
    def turn(self) -> int:
        """The steps from one exchange to the next one."""
        return self.sync_every // self.fragments

    def starts(self, step: int) -> int | None:
        """Return the fragment whose exchange starts after a step, counted from 1; None: none."""
        return self._due(step + self.delay)

    def applies(self, step: int) -> int | None:
        """Return the fragment whose exchange is used after a step, counted from 1; None: none."""
        return self._due(step)

    def _due(self, step: int) -> int | None:
        turns, rest = divmod(step, self.turn)
        return None if rest else (turns - 1) % self.fragments

    def check(self, name: str) -> None:
        """Raise ValueError if the numbers do not fit; `name` is that of the optimizer."""
        if self.sync_every < 1 or self.sync_every % self.fragments:
            raise ValueError(
                f"{name}: sync_every={self.sync_every} must be a positive multiple of the "
                f"{self.fragments} fragments, which are exchanged in turn"
            )
        if not 0 <= self.delay < self.turn:
            raise ValueError(
                f"{name}: delay={self.delay} must be at least 0 and less than sync_every / "
                f"fragments = {self.turn}, after which the next exchange is due"
            )
