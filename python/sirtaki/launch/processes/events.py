"""The types that the supervisor and the hosts of a job exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sirtaki.questions.messages import Question
from sirtaki.rendezvous.trust.auth import repr_without


class Process(NamedTuple):
    """A process to start.

    id: its rank. place: the number of its share of the host's cores and GPUs. environment: its
    variables besides those of all. defaults: variables that it gets unless one of these sets them.
    terminal: the path of the terminal that it is attached to, "" for none.
    """

    id: int
    place: int
    environment: Mapping[str, str]
    defaults: Mapping[str, str]
    terminal: str = ""


class HostJob(NamedTuple):
    """The settings that the processes of a job on one host share.

    command: program and arguments, executed without a shell. environment: the variables of all, on
    other hosts besides the agent's. folder: the working folder. places: how many processes share
    the cores. secret: the job's. grace: seconds between signals that ask to end. bind_to: the value
    of --bind-to, or None. cpus: how many CPUs of the host a scheduler allocated, None if unknown.
    gpus: per place, None if each process sees all. silent_seconds: how long a process may be silent
    before it is killed, 0 for ever; if not 0, processes end independently, and the guardian kills
    what a failed one leaves running.
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

    def __repr__(self) -> str:
        return repr_without(self, "secret")


class Event(NamedTuple):
    """An event on a host.

    kind: "ready" (the host can run the job), "started" (a rank; `text` describes its CPUs,
    `streams` are the read ends of stdout and stderr of a local rank, owned by the receiver),
    "output" (`stream` and `data`, of a remote rank), "failed" (the rank could not be started:
    `text` is the reason, or the command could not be executed and code is the errno), "exited"
    (code is the exit code, or minus the signal's number; `text` is the control group that ran out
    of memory, if that is why), "said" (a line in `text` for the user), "refused" (the host cannot
    run the job, `text` is the reason, code is the launcher's exit code), "cancelled" (the agent's
    starter ends all there with the signal `code`), "lost" (the host was cut off, `text` describes
    how), "answer" (`data`, to question number `code`), or "done" (no process is left).
    """

    kind: str
    rank: int = -1
    code: int = 0
    pid: int = 0
    streams: Sequence[int] = ()
    stream: str = ""
    data: bytes = b""
    text: str = ""


class HostProcesses(Protocol):
    """The processes of a job on one host.

    host: the name for messages. planned: the processes to run here.
    """

    host: str
    planned: Sequence[Process]

    def connect(self) -> None:
        """Start to connect to the host; "ready" or "refused" follows."""
        return

    def free_port(self) -> int:
        """Return a port of a host that is ready, for a program of the ranks to listen on."""

    def start(self, processes: Sequence[Process]) -> None:
        """Start some planned processes on a host that is ready; others may run already."""

    def channels(self) -> list[int]:
        """Return the descriptors that are readable when there are events."""

    def receive(self) -> list[Event]:
        """Return the events; called when a channel is readable."""

    def deadline(self) -> float | None:
        """Return when (time.monotonic()) to call `expire` if nothing is received until then."""
        return None

    def expire(self) -> list[Event]:
        """Return the events that the host's silence causes."""
        return []

    def pause(self) -> None:
        """Announce that this process will be stopped for a while, as by Ctrl-Z."""
        return

    def resume(self) -> None:
        """Resume after `pause`."""
        return

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one rank, or to those processes in its tree that handle it."""

    def ask(self, job: str, question: Question, number: int) -> bool:
        """Ask the ranks of a job (see `questions.collect`); False if the caller must ask them."""
        return False

    def interrupt(self) -> None:
        """Ask all processes to end: SIGINT, after the grace SIGTERM and so on; "done" follows."""

    def terminate(self) -> None:
        """Ask all processes to end: SIGTERM, SIGKILL after the grace; "done" follows.

        It has no effect after `interrupt`.
        """

    def kill(self) -> None:
        """Kill all processes at once; "done" follows."""

    def close(self) -> bool:
        """End the remaining processes and wait; False if their watcher itself had failed."""
