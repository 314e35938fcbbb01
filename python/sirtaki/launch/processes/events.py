"""What the supervisor and the hosts of a job tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sirtaki.records import dataclass, field


@dataclass(frozen=True)
class Process:
    """A process to be started.

    id: its rank. place: which of the shares of its host's cores and GPUs is its own. environment:
    what it has besides that of all. defaults: what it has unless one of these sets it.
    """

    id: int
    place: int
    environment: Mapping[str, str]
    defaults: Mapping[str, str]


@dataclass(frozen=True)
class HostJob:
    """What the processes of a job on one host have in common.

    command: program and arguments, executed without a shell. environment: what all have, on other
    hosts besides what the agent has. folder: where they work. places: how many share out the cores.
    secret: the job's. grace: seconds from one signal that asks to end to the next. bind_to: as
    --bind-to says, None where it says nothing. cpus: how many CPUs of the host a scheduler has
    given to the job, None where nobody has said. gpus: of each place, None for all to all.
    silent_seconds: how long a process may be silent until it is killed, 0 for ever; then the
    processes are on their own, and what one that failed leaves running is killed.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    places: int
    secret: bytes
    grace: float
    bind_to: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    silent_seconds: float = 0.0


@dataclass(frozen=True)
class Event:
    """What happened on a host.

    kind: "ready" (the host can take the job), "started" (of one rank; `text` says which CPUs it
    has, `streams` are the read ends of stdout and stderr where the rank is local, owned by the
    receiver), "output" (`stream` and `data`, of a remote rank), "failed" (the rank could not be
    started: `text` says why, or the command could not be executed and code is the errno),
    "exited" (code is the exit code, or minus the signal's number; `text` the control group that ran
    out of memory, if that is why), "said" (a line in `text` for the user), "refused" (the host
    cannot take the job, `text` says why, code is the launcher's exit code), "cancelled" (who has
    started the agent ends all there, with the signal `code`), "lost" (the host was cut off, `text`
    says how), "answer" (`data`, to what was asked), or "done" (nothing is left of the job).
    """

    kind: str
    rank: int = -1
    code: int = 0
    pid: int = 0
    streams: list[int] = field(default_factory=list)
    stream: str = ""
    data: bytes = b""
    text: str = ""


class HostProcesses(Protocol):
    """The processes of a job on one host.

    host: the name for messages. planned: what is to run here.
    """

    host: str
    planned: Sequence[Process]

    def connect(self) -> None:
        """Begin to reach the host; "ready" or "refused" follows."""
        return

    def free_port(self) -> int:
        """Return a port of a host that is ready, for a program of the ranks to listen on."""

    def start(self, processes: Sequence[Process]) -> None:
        """Start processes on a host that is ready, of those planned; the job may run already."""

    def channels(self) -> list[int]:
        """The descriptors that are readable when there are events."""

    def receive(self) -> list[Event]:
        """Return what has happened; to be called when a channel is readable."""

    def deadline(self) -> float | None:
        """When (time.monotonic()) `expire` is to be called if nothing is received until then."""
        return None

    def expire(self) -> list[Event]:
        """Return what follows from the silence."""
        return []

    def pause(self) -> None:
        """Announce that we shall be stopped for a while, as by Ctrl-Z."""
        return

    def resume(self) -> None:
        """Go on after `pause`."""
        return

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one process: one for ranks to those of its tree that await it."""

    def ask(self, job: str, question: str) -> bool:
        """Ask the ranks of a job (see `hang.collect`); False: they are here, ask them yourself."""
        return False

    def interrupt(self) -> None:
        """Ask all processes to end: SIGINT, after the grace SIGTERM and so on; "done" follows."""

    def terminate(self) -> None:
        """Ask all processes to end: SIGTERM, SIGKILL after the grace; "done" follows.

        After `interrupt` there is nothing to add.
        """

    def kill(self) -> None:
        """Kill all processes at once; "done" follows."""

    def close(self) -> bool:
        """End what still runs and wait for it; False when who watches it had come to harm."""
