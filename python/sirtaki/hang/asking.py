"""Asks the ranks of this machine, also those that cannot answer."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from sirtaki.rendezvous.host.presence import Presence, present

_DUMP_SECONDS = 2.0
_DUMP_PAUSE = 0.02
_STOPPED = ("T", "t")


class NoAnswer(Exception):
    """A rank did not answer; the message says why, as far as that can be seen."""


class Busy(NoAnswer):
    """A rank cannot run Python for now."""


class UnknownJob(Exception):
    """No job, or more than one, is called so; the message lists those that there are."""


def jobs() -> dict[str, list[Presence]]:
    """Return this user's jobs on this machine: their ranks here, in order, ended ones too."""
    found: dict[str, list[Presence]] = {}
    for one in present():
        found.setdefault(one.record.job, []).append(one)
    alive = {job: ranks for job, ranks in found.items() if any(rank.alive for rank in ranks)}
    return {job: sorted(ranks, key=lambda one: one.record.rank) for job, ranks in alive.items()}


def find(name: str) -> list[Presence]:
    """Return the ranks here of the job with a name.

    Args:
        name: The job's, or how it begins, or the process id of one of its ranks.

    Raises:
        UnknownJob: There is none, or there are several.
    """
    known = jobs()
    found = [
        job
        for job, ranks in known.items()
        if job.startswith(name) or name in [str(rank.record.pid) for rank in ranks]
    ]
    if len(found) == 1:
        return known[found[0]]
    names = ", ".join(sorted(found or known)) or "none"
    why = "several jobs are called so" if found else "no job of yours here is called so"
    raise UnknownJob(f"{name!r}: {why}: {names} (`sirtaki ps` lists them)")


def ask(rank: Presence, question: str, patience: float) -> Any:
    """Return what a rank answers.

    Raises:
        NoAnswer: It has ended or is stopped.
        Busy: It did not run Python within `patience` seconds.
    """
    if not rank.alive:
        raise NoAnswer(f"process {rank.record.pid} has ended")
    _require_running(rank.record.pid)
    try:
        reply = json.loads(_exchange(rank.socket, question, patience))
    except ConnectionError:
        raise NoAnswer(f"process {rank.record.pid} has left the job") from None
    except (TimeoutError, ValueError):
        _require_running(rank.record.pid)
        raise Busy(
            f"did not answer within {patience:g} s: a thread holds the interpreter's lock, in C "
            "code that does not let others run"
        ) from None
    if "error" in reply:
        raise NoAnswer(reply["error"])
    return reply["answer"]


def _require_running(pid: int) -> None:
    if _state(pid) in _STOPPED:
        raise NoAnswer(f"is stopped; kill -CONT {pid} lets it go on")


def dump(rank: Presence) -> str:
    """Return the stacks that a process writes when it gets a signal, which needs no lock.

    Raises:
        NoAnswer: It does not await the signal, or has not written anything.
    """
    record = rank.record
    if not record.signal or not _catches(record.pid, record.signal):
        raise NoAnswer("awaits no signal for its stacks (SIRTAKI_STACKS_SIGNAL)")
    try:
        with Path(record.stacks).open() as file:
            file.seek(0, os.SEEK_END)
            os.kill(record.pid, record.signal)
            return _read_new(file)
    except OSError as error:
        raise NoAnswer(f"its stacks cannot be read: {error}") from None


def _read_new(file: Any) -> str:
    """Read what is written from now on, until nothing more comes."""
    deadline = time.monotonic() + _DUMP_SECONDS
    text = ""
    while time.monotonic() < deadline:
        time.sleep(_DUMP_PAUSE)
        more = file.read()
        if text and not more:
            return text
        text += more
    if not text:
        raise NoAnswer("wrote no stacks when signalled: it is in the kernel")
    return text


def _exchange(path: str, question: str, patience: float) -> bytes:
    deadline = time.monotonic() + patience
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(patience)
        try:
            link.connect(path)
        except FileNotFoundError as error:
            raise ConnectionError(str(error)) from None
        link.sendall(question.encode())
        parts = []
        while part := link.recv(1 << 16):
            parts.append(part)
            link.settimeout(max(0.01, deadline - time.monotonic()))
        return b"".join(parts)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; of another one it would die."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line[7:], 16) >> (number - 1) & 1)
    return False
