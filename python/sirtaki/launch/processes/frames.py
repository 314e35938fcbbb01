"""The protocol of launcher and agent: a greeting line, then frames of kind, length and bytes."""

from __future__ import annotations

import enum
import json
import signal
import struct
from collections.abc import Sequence
from typing import Any

from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.outcome import PASSED_ON
from sirtaki.questions.messages import Question

_HEADER = struct.Struct("!BI")  # kind, bytes that follow
_OUTPUT = struct.Struct("!IB")  # rank, 0 for stdout and 1 for stderr; the output follows
_ANSWER = struct.Struct("!I")
_SIGNAL = struct.Struct("!BI")  # number, rank
_GREETING = b"sirtaki-agent "
# A shell's start-up files may print before the agent does; more output is not the agent's.
_MAX_NOISE_BYTES = 1 << 20
STREAMS = ("stdout", "stderr")

PING_SECONDS = 1.0
# A longer silence means that the connection is cut or the other end is stuck.
SILENCE_SECONDS = 5.0


def silence_seconds(job: HostJob) -> float:
    """Return how long the connection to a host that knows the job may be silent."""
    return min(job.silent_seconds or SILENCE_SECONDS, SILENCE_SECONDS)


def ping_seconds(silence: float) -> float:
    """Return the interval of pings where silence may last `silence` seconds."""
    return silence * PING_SECONDS / SILENCE_SECONDS


class FrameError(ValueError):
    """The data does not follow the protocol."""


class Kind(enum.IntEnum):
    """The kind of a frame. The agent sends EVENT, OUTPUT, ANSWER; both PING; the launcher the rest.

    JOB has the settings that the host's processes share, START the processes to start now. PAUSE
    announces a harmless silence, which the next frame ends. SIGNAL is for one process. ASK is for
    the ranks, whose ANSWER is the number of the question followed by JSON.
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


# The most bytes of each kind, to detect a wrong length before waiting for that many bytes.
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
    """Encode a frame. Raises FrameError when the payload is longer than its kind allows."""
    if len(payload) > _LIMITS[kind]:
        raise FrameError(f"{kind.name} of {len(payload)} bytes: at most {_LIMITS[kind]} are sent")
    return _HEADER.pack(kind, len(payload)) + payload


def pack_json(kind: Kind, content: dict[str, Any]) -> bytes:
    """Encode a frame with JSON content."""
    return pack(kind, json.dumps(content).encode())


def unpack_json(payload: bytes) -> dict[str, Any]:
    """Decode the JSON of a frame. Raises FrameError."""
    try:
        content = json.loads(payload)
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise FrameError("not a JSON object")
    return content


def pack_output(rank: int, stream: str, data: bytes) -> bytes:
    """Encode a rank's output on `stream`, "stdout" or "stderr"; without data, its end."""
    return pack(Kind.OUTPUT, _OUTPUT.pack(rank, STREAMS.index(stream)) + data)


def unpack_output(payload: bytes) -> tuple[int, str, bytes]:
    """Decode rank, stream and bytes. Raises FrameError."""
    if len(payload) < _OUTPUT.size:
        raise FrameError(f"output of {len(payload)} bytes has no rank")
    rank, stream = _OUTPUT.unpack_from(payload)
    if stream >= len(STREAMS):
        raise FrameError(f"there is no stream {stream}")
    return rank, STREAMS[stream], payload[_OUTPUT.size :]


def pack_question(job: str, question: Question, number: int) -> bytes:
    """Encode a question to a job's ranks. number: repeated in their answer."""
    return pack_json(Kind.ASK, {"job": job, "question": question.value, "number": number})


def unpack_question(payload: bytes) -> tuple[str, Question, int]:
    """Decode job, question and number. Raises FrameError."""
    asked = unpack_json(payload)
    try:
        return str(asked["job"]), Question(asked["question"]), int(asked["number"])
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a question: {error!r}") from None


def pack_answer(number: int, answer: bytes) -> bytes:
    """Encode the ranks' answer to the question of that number."""
    return pack(Kind.ANSWER, _ANSWER.pack(number) + answer)


def unpack_answer(payload: bytes) -> tuple[int, bytes]:
    """Decode number and answer. Raises FrameError."""
    if len(payload) < _ANSWER.size:
        raise FrameError(f"an answer of {len(payload)} bytes has no number")
    return _ANSWER.unpack_from(payload)[0], payload[_ANSWER.size :]


def pack_job(job: HostJob) -> bytes:
    """Encode a host's job."""
    return pack_json(Kind.JOB, {**job._asdict(), "secret": job.secret.hex()})


def unpack_job(payload: bytes) -> HostJob:
    """Decode what `pack_job` encoded. Raises FrameError."""
    try:
        content = unpack_json(payload)
        return HostJob(**{**content, "secret": bytes.fromhex(content["secret"])})
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a job: {error!r}") from None


def pack_start(processes: Sequence[Process]) -> bytes:
    """Encode the processes to start."""
    return pack_json(Kind.START, {"processes": [process._asdict() for process in processes]})


def unpack_start(payload: bytes) -> list[Process]:
    """Decode what `pack_start` encoded. Raises FrameError."""
    try:
        return [Process(**each) for each in unpack_json(payload)["processes"]]
    except (KeyError, TypeError) as error:
        raise FrameError(f"not processes: {error!r}") from None


def pack_signal(rank: int, number: int) -> bytes:
    """Encode a signal for a process."""
    return pack(Kind.SIGNAL, _SIGNAL.pack(number, rank))


def unpack_signal(payload: bytes) -> tuple[int, int]:
    """Decode rank and number. Raises FrameError for a signal that is not allowed."""
    if len(payload) == _SIGNAL.size:
        number, rank = _SIGNAL.unpack(payload)
        if number in (*PASSED_ON, signal.SIGTERM, signal.SIGKILL):
            return rank, number
    raise FrameError(f"signal {payload.hex()} is none that is passed on")


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """Feed more bytes; returns the frames that they complete. Raises FrameError."""
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
    """Encode the agent's first line; the line end before it ends any other output."""
    return b"\n" + _GREETING + version.encode() + b"\n"


class GreetingReader:
    """Detects the agent's greeting after any output of the remote shell.

    noise: the lines before it. rest: the bytes after it.
    """

    def __init__(self) -> None:
        self.noise: list[str] = []
        self.rest = b""
        self._seen = bytearray()
        self._taken = 0

    def feed(self, data: bytes) -> str | None:
        """Feed more bytes; returns the agent's version once it has arrived. Raises FrameError."""
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
