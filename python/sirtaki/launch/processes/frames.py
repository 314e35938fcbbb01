"""How launcher and agent talk: one line of greeting, then frames of a kind, a length and bytes."""

from __future__ import annotations

import enum
import json
import signal
import struct
from collections.abc import Sequence
from typing import Any

from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.outcome import PASSED_ON
from sirtaki.records import asdict

_HEADER = struct.Struct("!BI")  # kind, bytes that follow
_OUTPUT = struct.Struct("!IB")  # rank, 0 for stdout and 1 for stderr; what was printed follows
_SIGNAL = struct.Struct("!BI")  # number, rank
_GREETING = b"sirtaki-agent "
# Start-up files of a shell may print before the agent does; a stream of that is a wrong program.
_MAX_NOISE_BYTES = 1 << 20
STREAMS = ("stdout", "stderr")

PING_SECONDS = 1.0
# Longer without any byte means that the connection is cut or the other end is stuck.
SILENCE_SECONDS = 5.0


def silence_seconds(job: HostJob) -> float:
    """Return how long the connection to a host that knows the job may be silent."""
    return min(job.silent_seconds or SILENCE_SECONDS, SILENCE_SECONDS)


def ping_seconds(silence: float) -> float:
    """Return how often to say something where a silence of so long would be too long."""
    return silence * PING_SECONDS / SILENCE_SECONDS


class FrameError(ValueError):
    """What arrived is not the protocol."""


class Kind(enum.IntEnum):
    """What a frame says: EVENT, OUTPUT and ANSWER the agent, PING both, all else the launcher.

    JOB says what the processes of the host have in common, START which of them to start now; PAUSE
    announces a silence that means nothing, whatever comes next ends it. SIGNAL is for one process.
    ASK is for the ranks, whose ANSWER is JSON.
    """

    JOB = 1
    TERMINATE = 2
    KILL = 3
    PING = 4
    EVENT = 5
    OUTPUT = 6
    PAUSE = 7
    INTERRUPT = 8
    SIGNAL = 9
    START = 10
    ASK = 11
    ANSWER = 12


# The most bytes of each kind, so that a wrong length is found before it is waited for.
_LIMITS = {
    Kind.JOB: 64 << 20,
    Kind.TERMINATE: 0,
    Kind.KILL: 0,
    Kind.PING: 0,
    Kind.EVENT: 1 << 20,
    Kind.OUTPUT: 1 << 20,
    Kind.PAUSE: 0,
    Kind.INTERRUPT: 0,
    Kind.SIGNAL: _SIGNAL.size,
    Kind.START: 64 << 20,
    Kind.ASK: 1 << 10,
    Kind.ANSWER: 64 << 20,
}


def pack(kind: Kind, payload: bytes = b"") -> bytes:
    """Write one frame. Raises FrameError when the payload is longer than its kind allows."""
    if len(payload) > _LIMITS[kind]:
        raise FrameError(f"{kind.name} of {len(payload)} bytes: at most {_LIMITS[kind]} are sent")
    return _HEADER.pack(kind, len(payload)) + payload


def pack_json(kind: Kind, content: dict[str, Any]) -> bytes:
    """Write one frame with JSON inside."""
    return pack(kind, json.dumps(content).encode())


def unpack_json(payload: bytes) -> dict[str, Any]:
    """Read the JSON of a frame. Raises FrameError."""
    try:
        content = json.loads(payload)
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise FrameError("not a JSON object")
    return content


def pack_output(rank: int, stream: str, data: bytes) -> bytes:
    """Write what a rank has printed to `stream`, "stdout" or "stderr"."""
    return pack(Kind.OUTPUT, _OUTPUT.pack(rank, STREAMS.index(stream)) + data)


def unpack_output(payload: bytes) -> tuple[int, str, bytes]:
    """Read rank, stream and bytes. Raises FrameError."""
    if len(payload) < _OUTPUT.size:
        raise FrameError(f"output of {len(payload)} bytes has no rank")
    rank, stream = _OUTPUT.unpack_from(payload)
    if stream >= len(STREAMS):
        raise FrameError(f"there is no stream {stream}")
    return rank, STREAMS[stream], payload[_OUTPUT.size :]


def pack_job(job: HostJob) -> bytes:
    """Write what the processes of a host have in common."""
    return pack_json(Kind.JOB, {**asdict(job), "secret": job.secret.hex()})


def unpack_job(payload: bytes) -> HostJob:
    """Read what `pack_job` has written. Raises FrameError."""
    try:
        content = unpack_json(payload)
        return HostJob(**{**content, "secret": bytes.fromhex(content["secret"])})
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a job: {error!r}") from None


def pack_start(processes: Sequence[Process]) -> bytes:
    """Write which processes are to be started."""
    return pack_json(Kind.START, {"processes": [asdict(process) for process in processes]})


def unpack_start(payload: bytes) -> list[Process]:
    """Read what `pack_start` has written. Raises FrameError."""
    try:
        return [Process(**each) for each in unpack_json(payload)["processes"]]
    except (KeyError, TypeError) as error:
        raise FrameError(f"not processes: {error!r}") from None


def pack_signal(rank: int, number: int) -> bytes:
    """Write which signal a process is to get."""
    return pack(Kind.SIGNAL, _SIGNAL.pack(number, rank))


def unpack_signal(payload: bytes) -> tuple[int, int]:
    """Read rank and number. Raises FrameError for a signal that no process is sent."""
    if len(payload) == _SIGNAL.size:
        number, rank = _SIGNAL.unpack(payload)
        if number in (*PASSED_ON, signal.SIGTERM, signal.SIGKILL):
            return rank, number
    raise FrameError(f"signal {payload.hex()} is none that is passed on")


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """Take more bytes; returns the frames completed by them. Raises FrameError."""
        self._rest += data
        frames = []
        start = 0
        while len(self._rest) - start >= _HEADER.size:
            number, size = _HEADER.unpack_from(self._rest, start)
            if number not in _LIMITS:
                raise FrameError(f"there is no frame of kind {number}")
            kind = Kind(number)
            if size > _LIMITS[kind]:
                raise FrameError(f"{kind.name} of {size} bytes: at most {_LIMITS[kind]} are taken")
            end = start + _HEADER.size + size
            if len(self._rest) < end:
                break
            frames.append((kind, bytes(self._rest[start + _HEADER.size : end])))
            start = end
        del self._rest[:start]
        return frames


def greeting(version: str) -> bytes:
    """Write the agent's first line; one before it ends what else may have been printed."""
    return b"\n" + _GREETING + version.encode() + b"\n"


class GreetingReader:
    """Finds the agent's greeting behind whatever the remote shell prints first.

    noise: the lines before it. rest: the bytes behind it.
    """

    def __init__(self) -> None:
        self.noise: list[str] = []
        self.rest = b""
        self._seen = bytearray()
        self._taken = 0

    def feed(self, data: bytes) -> str | None:
        """Take more bytes; returns the agent's version once it is there. Raises FrameError."""
        self._seen += data
        self._taken += len(data)
        start = 0
        while (end := self._seen.find(b"\n", start)) >= 0:
            line = bytes(self._seen[start:end])
            start = end + 1
            if line.startswith(_GREETING):
                self.rest = bytes(self._seen[start:])
                return line[len(_GREETING) :].decode(errors="replace").strip()
            if line.strip():
                self.noise.append(line.decode(errors="replace").rstrip())
        del self._seen[:start]
        if self._taken > _MAX_NOISE_BYTES:
            raise FrameError("the remote shell printed a megabyte but no agent answered")
        return None
