"""Finds running jobs on this machine, and asks their ranks and launchers."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sirtaki.questions.messages import Asked, Question, Refusal, read_answer
from sirtaki.rendezvous.host.presence import (
    Presence,
    own_folder,
    own_namespace,
    present,
    require_trusted,
    stat_of,
)
from sirtaki.rendezvous.network.local_socket import peer_of

# The help text for the argument of commands that ask a job.
JOB_HELP = (
    "a name that `sirtaki ps` shows, or a rank's process id (default: the only job that runs)"
)
# How long a launcher waits for its hosts, and a client for the launcher.
LAUNCHER_SECONDS = 8.0
_LAUNCHER = "launcher."
_STOPPED = ("T", "t")


class NoAnswer(Exception):
    """A rank did not answer; the message explains why, as far as possible."""


class Busy(NoAnswer):
    """A rank cannot run Python at the moment."""


class UnknownJob(Exception):
    """No job has this name; the message lists the running ones."""


class SeveralJobs(UnknownJob):
    """More than one job has this name."""


def jobs() -> dict[str, list[Presence]]:
    """Return the local ranks of this user's jobs, by job and in order, with ended ones."""
    found: dict[str, list[Presence]] = {}
    for one in present():
        found.setdefault(one.record.job, []).append(one)
    alive = {job: ranks for job, ranks in found.items() if any(rank.alive for rank in ranks)}
    return {job: sorted(ranks, key=lambda one: one.record.rank) for job, ranks in alive.items()}


def find(name: str | None) -> list[Presence]:
    """Return the local ranks of the job with a name.

    Args:
        name: The job's name, a prefix of it, or the process id of one of its ranks; None: the
            only running job.

    Raises:
        UnknownJob: No job matches, or several do.
    """
    known = jobs()
    found = [
        job
        for job, ranks in known.items()
        if name is None or job.startswith(name) or name in [str(one.record.pid) for one in ranks]
    ]
    if len(found) == 1:
        return known[found[0]]
    try:
        require_trusted()
    except PermissionError as error:
        raise UnknownJob(str(error)) from None
    if not found and (job := launched_here(name)):
        raise UnknownJob(
            f"job {job} was started here, and no rank of it has called init() on this machine: run "
            "this on one of its hosts. `sirtaki hang`, `top` and `trace` ask all of them from here"
        )
    if not known:
        which = "" if name is None else f" {name!r}"
        raise UnknownJob(f"no running job{which}: no job of yours is running on this machine")
    if not found:
        raise UnknownJob(f"no running job {name!r}; running: {', '.join(sorted(known))}")
    raise SeveralJobs(_several(name, found))


def find_launched(name: str | None) -> tuple[str, list[Presence]]:
    """Return a job and its local ranks, which are none if only its launcher runs here.

    Args:
        name: As for `find`; without local ranks, a prefix of the job's name or None.

    Raises:
        UnknownJob: No job matches, or several do.
    """
    try:
        ranks = find(name)
    except SeveralJobs:
        raise
    except UnknownJob:
        if job := launched_here(name):
            return job, []
        raise
    job = ranks[0].record.job
    if name is None and (others := launchers().keys() - {job}):
        raise SeveralJobs(_several(name, {job, *others}))
    return job, ranks


def _several(name: str | None, found: Iterable[str]) -> str:
    several = "several jobs are running" if name is None else f"{name!r} fits several jobs"
    names = ", ".join(sorted(found))
    return f"{several}: {names}; name one of them (`sirtaki ps` shows what each runs)"


def ask(rank: Presence, question: Question, patience: float) -> Any:
    """Return a rank's answer.

    Raises:
        NoAnswer: It has ended, is stopped, or refuses.
        Busy: It did not run Python within `patience` seconds.
    """
    if not rank.alive:
        raise NoAnswer(f"process {rank.record.pid} has ended")
    _require_running(rank)
    try:
        return read_answer(_exchange(rank.socket, Asked(question), patience))
    except Refusal as refusal:
        raise NoAnswer(str(refusal)) from None
    except (ConnectionError, FileNotFoundError):
        raise NoAnswer(f"process {rank.record.pid} has left the job") from None
    except (TimeoutError, ValueError):
        _require_running(rank)
        raise Busy(
            f"did not answer within {patience:g} s: a thread holds the interpreter's lock, in C "
            "code that does not let others run"
        ) from None
    except OSError as error:
        raise NoAnswer(f"process {rank.record.pid} cannot be asked: {error}") from None


def _require_running(rank: Presence) -> None:
    # A process id of another container belongs to another process here.
    pid = rank.record.pid
    if rank.record.namespace == own_namespace() and stat_of(pid).state in _STOPPED:
        raise NoAnswer(f"is stopped; kill -CONT {pid} resumes it")


def ask_launcher(job: str, question: Question, host: int | None = None) -> list[Any] | None:
    """Return the answers of the ranks of all hosts, if a launcher here can ask them.

    Args:
        job: Its name.
        question: `REPORT`, `RATES`, `FIGURES`, or one of `TRACES`.
        host: The number of a host, to ask only its ranks.

    Returns:
        A list with each rank's answer, as in `collect`; None if no launcher answers, or it has no
        such host.
    """
    with contextlib.suppress(OSError, ValueError, Refusal):
        path = str(launcher_socket(job))
        found = read_answer(_exchange(path, Asked(question, host), LAUNCHER_SECONDS))
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            return found
    return None


def launcher_socket(job: str) -> Path:
    """Return the path of the socket at which a job's launcher answers. Raises OSError."""
    return own_folder() / f"{_LAUNCHER}{job}"


def launched_here(name: str | None) -> str:
    """Return the only job with this prefix and a launcher on this host; else "".

    name: None for any.
    """
    found = [job for job in launchers() if job.startswith(name or "")]
    return found[0] if len(found) == 1 and name != "" else ""


def launchers() -> dict[str, int]:
    """Return the process ids of this user's launchers here that can be asked, by job."""
    found: dict[str, int] = {}
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths += own_folder().glob(f"{_LAUNCHER}*")
    for path in paths:
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is too busy
            if pid := _listener(path):
                found[path.name.removeprefix(_LAUNCHER)] = pid
    return found


def _listener(path: Path) -> int:
    """Return the launcher that listens at a path, 0 for none; remove a dead one's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(LAUNCHER_SECONDS)
        try:
            link.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return 0
        return peer_of(link)[0]


def _exchange(path: str, asked: Asked, patience: float) -> bytes:
    deadline = time.monotonic() + patience
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(patience)
        link.connect(path)
        link.sendall(asked.write())
        parts = []
        while part := link.recv(1 << 16):
            parts.append(part)
            link.settimeout(max(0.01, deadline - time.monotonic()))
        return b"".join(parts)
