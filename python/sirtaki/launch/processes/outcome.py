"""How a job ends: well, with the first rank that failed, or by a signal."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from sirtaki.launch.output.first_error import FirstError

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
