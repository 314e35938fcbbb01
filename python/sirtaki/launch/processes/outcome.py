"""The outcome of a job (success, first failed rank, or signal), and the policy that decides."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sirtaki.launch.errors import JobError
from sirtaki.launch.output.first_error import FirstError
from sirtaki.launch.processes.events import HostProcesses, Process

# Signals that do not end the job but go to the ranks, which save state, print stacks, or end.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class Failure(NamedTuple):
    """The first worker that failed: its exit code, 128 + n when signal n killed it."""

    rank: int
    exit_code: int
    signal_name: str | None = None


class Outcome:
    """How a job ended: with success, with a first failure, or by a signal to the launcher.

    first_error: the cause of the failure, if a rank printed it. exit_code: of the launcher, if the
    processes were asked to leave and left before their work was done. stalled: ranks had waited too
    long for others. out_of_memory: the control group of each rank killed for lack of memory.
    """

    def __init__(
        self, failure: Failure | None = None, first_error: FirstError | None = None
    ) -> None:
        self.failure = failure
        self.signal_number: int | None = None
        self.exit_code: int | None = None
        self.first_error = first_error
        self.stalled = False
        self.out_of_memory: dict[int, str] = {}

    @property
    def success(self) -> bool:
        """Whether nothing failed and nobody ended the job."""
        return self.failure is None and self.signal_number is None and self.exit_code is None


def failure_of(rank: int, code: int) -> Failure:
    """Describe how a rank ended; code: its exit code, or minus the number of the signal."""
    if code >= 0:
        return Failure(rank, code)
    return Failure(rank, 128 - code, signal_name(-code))


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Verdict(NamedTuple):
    """The decision to end a job.

    symptom: the observation. reason: the rank that failed, or the error that ends the job.
    """

    symptom: str
    reason: Failure | JobError


class Crew(Protocol):
    """The actions that a policy can request while a job runs."""

    def add(self, host: HostProcesses) -> None:
        """Connect to one more host; `Policy.ready` follows. Raises LaunchError."""

    def launch(self, host: HostProcesses, processes: Sequence[Process]) -> None:
        """Start processes on a host that is ready."""

    def finish(self) -> None:
        """End the remaining processes of a job that has done its work."""


class Policy:
    """Decides what the supervisor does on events; None means that the job goes on.

    This base class always lets the job go on, and adds no host.
    """

    def begin(self, crew: Crew) -> int | None:
        """The job begins. Returns a descriptor that is readable when `look` has to be called."""
        return None

    def ready(self, host: HostProcesses) -> None:
        """A host that was added can start processes."""

    def refused(self, host: str, why: str) -> Verdict | None:
        """A host that was added cannot be reached or cannot run the job."""
        return None

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """A process has ended by itself; code as in `Event`."""
        return None

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """A host with these ranks is lost."""
        return None

    def cancelled(self, host: str, number: int) -> bool:
        """The starter of a host's agent ends all there by a signal. True: the job goes on."""
        return False

    def asked(self, number: int) -> bool:
        """The launcher received a signal. True: the policy ends the processes."""
        return False

    @property
    def exit_code(self) -> int | None:
        """The launcher's exit code if the processes have left by themselves."""
        return None

    def gone(self, host: HostProcesses) -> Verdict | None:
        """No process of the job is left on a host that was added."""
        return None

    def deadline(self) -> float | None:
        """Return when (time.monotonic()) `look` has to be called at the latest."""
        return None

    def look(self) -> Verdict | None:
        """Time has passed, or the descriptor is readable."""
        return None

    @property
    def goes_on(self) -> bool:
        """Whether the job goes on while no host has processes."""
        return False


class FirstFailureEnds(Policy):
    """The first process that fails ends the job, and so does the loss of a host."""

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
