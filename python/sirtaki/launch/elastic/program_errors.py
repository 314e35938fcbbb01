"""Distinguishes a program's error, which would recur, from the loss of a process."""

from __future__ import annotations

from collections.abc import Collection

from sirtaki.rendezvous.world.elastic import Raised


class ProgramErrors:
    """The exceptions that the processes' training functions have raised."""

    def __init__(self) -> None:
        self._raised: dict[int, Raised] = {}
        self._counted: list[tuple[Raised, str]] = []

    def take(self, raised: Raised) -> None:
        """Record the exception that ends a process."""
        self._raised[raised.id] = raised

    def forget(self, process_id: int) -> None:
        """Forget a process's exception: the process goes on."""
        self._raised.pop(process_id, None)

    def of(self, process_id: int) -> Raised | None:
        """Return the exception that a process reported."""
        return self._raised.get(process_id)

    def ended(self, process_id: int, host: str, hosts: Collection[str]) -> str:
        """Return why the error that ended a process is the program's, "" if it is not.

        hosts: those with processes of the job, including this process's.
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
