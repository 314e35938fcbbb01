"""Telling an error of the program, which comes again and again, from the loss of a process."""

from __future__ import annotations

from collections.abc import Collection

from sirtaki.rendezvous.world.elastic import Raised


class ProgramErrors:
    """What the training functions of processes have raised."""

    def __init__(self) -> None:
        self._raised: dict[int, Raised] = {}
        self._counted: list[tuple[Raised, str]] = []

    def take(self, raised: Raised) -> None:
        """A process has said what ends it."""
        self._raised[raised.id] = raised

    def of(self, process_id: int) -> Raised | None:
        """Return what a process has said."""
        return self._raised.get(process_id)

    def ended(self, process_id: int, host: str, hosts: Collection[str]) -> str:
        """Return why the error that has ended a process is the program's, "" where it is not.

        hosts: those with processes of the job, this one's included.
        """
        raised = self._raised.get(process_id)
        if raised is None:
            return ""
        same = [(other, where) for other, where in self._counted if other.text == raised.text]
        self._counted.append((raised, host))
        if any(other.step == raised.step for other, _ in same):
            return f"the same error came twice after {raised.step} commits: {raised.text}"
        seen = {where for _, where in same} | {host}
        if len(seen) > 1 and seen >= set(hosts):
            return f"the same error came on every host: {raised.text}"
        return ""
