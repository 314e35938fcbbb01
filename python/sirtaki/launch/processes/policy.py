"""What it means for a job that a process has ended or a host is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sirtaki.launch.errors import JobError
from sirtaki.launch.processes.outcome import Failure, failure_of


@dataclass(frozen=True)
class Verdict:
    """A job is to end.

    symptom: what was seen. reason: the rank that failed, or the error that ends it.
    """

    symptom: str
    reason: Failure | JobError


class Policy(Protocol):
    """Decides; the supervisor sees and carries out. None: the job goes on."""

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """A process has ended by itself; code as in `Event`."""

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """A host with these ranks is lost."""


class FirstFailureEnds:
    """The first process that ends badly ends the job, and so does the loss of a host."""

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """See `Policy`."""
        if code == 0:
            return None
        failure = failure_of(rank, code)
        how = failure.signal_name or f"code {code}"
        return Verdict(f"rank {rank} on {host} ended with {how}", failure)

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """See `Policy`."""
        message = f"host {host} (ranks {', '.join(map(str, ranks))}) was lost: {how}"
        return Verdict(message, JobError(message))
