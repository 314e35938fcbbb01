"""What the supervisor sees of a host's processes, whether they are here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Event:
    """What happened on a host.

    kind: "ready" (the host can take the job), "started" (of one rank; `text` says which CPUs it
    has, `streams` are the read ends of stdout and stderr where the rank is local, owned by the
    receiver), "output" (`stream` and
    `data`, of a remote rank), "failed" (the command could not be executed, code is the errno),
    "exited" (code is the exit code, or minus the signal's number), "said" (a line in `text` for
    the user), "refused" (the host cannot take the job, `text` says why, code is the launcher's exit
    code), "lost" (the host was cut off, `text` says how), or "done" (nothing is left of the job).
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
    """The ranks of one host."""

    @property
    def host(self) -> str:
        """The name for messages."""

    @property
    def ranks(self) -> Sequence[int]:
        """Which ranks these are."""

    def connect(self) -> None:
        """Begin to reach the host; "ready" or "refused" follows."""

    def free_port(self) -> int:
        """Return a port of a host that is ready, for a program of the ranks to listen on."""

    def start(self, master_port: int) -> None:
        """Start the ranks of a host that is ready. master_port: free on the host of rank 0."""

    def channels(self) -> list[int]:
        """The descriptors that are readable when there are events."""

    def receive(self) -> list[Event]:
        """Return what has happened; to be called when a channel is readable."""

    def deadline(self) -> float | None:
        """When (time.monotonic()) `expire` is to be called if nothing is received until then."""

    def expire(self) -> list[Event]:
        """Return what follows from the silence."""

    def pause(self) -> None:
        """Announce that we shall be stopped for a while, as by Ctrl-Z."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def pass_on(self, number: int) -> None:
        """Send a signal to each rank that runs."""

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
