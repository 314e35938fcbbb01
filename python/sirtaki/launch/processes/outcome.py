"""How a job ends (well, with the first rank that failed, or by a signal), and what decides it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Protocol

from sirtaki.launch.errors import JobError
from sirtaki.launch.output.first_error import FirstError
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.records import dataclass, field

# What ends no job: the ranks get it, who save their state, say where they are, or end by it.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


@dataclass(frozen=True)
class Failure:
    """The first worker that did not end well: exit code, 128 + n when signal n killed it."""

    rank: int
    exit_code: int
    signal_name: str | None = None


@dataclass
class Outcome:
    """How a job ended: well, with a first failure, or by a signal to the launcher.

    first_error: what led to the failure, where a rank has said it. exit_code: of the launcher,
    where the processes have left before their work was done, as they were asked to. stalled: ranks
    had waited for too long for others. out_of_memory: the control group of each rank that was
    killed for that.
    """

    failure: Failure | None = None
    signal_number: int | None = None
    exit_code: int | None = None
    first_error: FirstError | None = field(default=None, compare=False, repr=False)
    stalled: bool = field(default=False, compare=False, repr=False)
    out_of_memory: dict[int, str] = field(default_factory=dict, compare=False, repr=False)


def failure_of(rank: int, code: int) -> Failure:
    """Describe how a rank ended; code: its exit code, or minus the number of the signal."""
    if code >= 0:
        return Failure(rank, code)
    return Failure(rank, 128 - code, signal_name(-code))


def signal_name(number: int) -> str:
    """Return what people call a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Verdict:
    """A job is to end.

    symptom: what was seen. reason: the rank that failed, or the error that ends it.
    """

    symptom: str
    reason: Failure | JobError


class Crew(Protocol):
    """What a policy can have done while a job runs."""

    def add(self, host: HostProcesses) -> None:
        """Reach one more host; the policy is told when it is ready. Raises LaunchError."""

    def launch(self, host: HostProcesses, processes: Sequence[Process]) -> None:
        """Start processes on a host that is ready."""

    def finish(self) -> None:
        """End what still runs of a job that has done its work."""


class Policy:
    """Decides; the supervisor sees and carries out. None: the job goes on.

    This one lets everything go on, and adds no host.
    """

    def begin(self, crew: Crew) -> int | None:
        """The job begins. Returns a descriptor that is readable when `look` is to be called."""
        return None

    def ready(self, host: HostProcesses) -> None:
        """A host that was added can take processes."""

    def refused(self, host: str, why: str) -> Verdict | None:
        """A host that was added cannot be reached or cannot take the job."""
        return None

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        """A process has ended by itself; code as in `Event`."""
        return None

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        """A host with these ranks is lost."""
        return None

    def cancelled(self, host: str, number: int) -> bool:
        """Who has started a host's agent ends all there by a signal. True: the job goes on."""
        return False

    def asked(self, number: int) -> bool:
        """The launcher has got a signal. True: the policy sees to the processes' end."""
        return False

    @property
    def exit_code(self) -> int | None:
        """With what the launcher is to exit where the processes have left by themselves."""
        return None

    def gone(self, host: HostProcesses) -> Verdict | None:
        """Nothing is left of the job on a host that was added."""
        return None

    def deadline(self) -> float | None:
        """When (time.monotonic()) `look` is to be called at the latest."""
        return None

    def look(self) -> Verdict | None:
        """Time has passed, or the descriptor is readable."""
        return None

    @property
    def goes_on(self) -> bool:
        """Whether the job goes on while no host has processes of it."""
        return False


class FirstFailureEnds(Policy):
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
