"""The CPU shares of this host's ranks, and how they are applied and described."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from sirtaki.launch.cores.processors import Processors, format_cpus, read_processors
from sirtaki.launch.cores.shares import CORE, NONE, Share, share_out
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.control_groups import own_membership

_THREADS = "OMP_NUM_THREADS"
_GPUS = "CUDA_VISIBLE_DEVICES"
_MOST_SHOWN = 80
# These pin threads to CPUs, which need not be in the rank's share.
_BOUND_BY_USER = ("OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def own_processors(cpus: int | None = None) -> Processors:
    """Return the processors that this process may use.

    cpus: how many a scheduler allocated, None without one. A scheduler may allow more CPUs in the
    affinity mask than it allocated.
    """
    found = read_processors(Path("/sys"), os.sched_getaffinity(0), own_membership())
    if cpus is None or cpus >= len(found.cores):
        return found
    return found._replace(quota=min(cpus, found.quota or cpus))


def shares_here(
    ranks: int, bind_to: str | None, environ: Mapping[str, str], cpus: int | None = None
) -> list[Share]:
    """Return the share of each local rank. Raises LaunchError for CPUs that do not exist.

    bind_to: the valid value of --bind-to, None when it was not given. environ: of all ranks.
    cpus: see `own_processors`.
    """
    by_user = any(environ.get(name) for name in _BOUND_BY_USER)
    return share_out(own_processors(cpus), ranks, bind_to or (NONE if by_user else CORE))


def gpu_share(place: int, gpus: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that selects a rank's GPUs, or {} if the rank sees all of them.

    place: the rank's number on its host. gpus: per rank. environ: that of the host's agent.
    """
    if not gpus:
        return {}
    listed = environ.get(_GPUS, "").split(",")
    ours = range(place * gpus, (place + 1) * gpus)
    names = listed[ours.start : ours.stop] if listed != [""] else map(str, ours)
    return {_GPUS: ",".join(names)}


def default_threads(share: Share) -> dict[str, str]:
    """Return the variable that a rank gets unless the user has set it."""
    return {_THREADS: str(share.threads)}


def bound_neighbours(cpus: Collection[int]) -> list[str]:
    """Describe the user's other jobs that are bound to some of these CPUs."""
    everywhere = len(os.sched_getaffinity(0))
    shared: dict[str, set[int]] = {}
    commands: dict[str, str] = {}
    for one in presence.present():
        with contextlib.suppress(OSError):
            bound = os.sched_getaffinity(one.record.pid)
            if len(bound) < everywhere and bound & set(cpus) and one.alive:
                shared.setdefault(one.record.job, set()).update(bound & set(cpus))
                commands[one.record.job] = _shortened(shlex.join(one.record.command))
    return [
        f"warning: CPUs {format_cpus(sorted(found))} are already used by your job {job}; both will "
        "be slow. Choose other CPUs with --bind-to, or use --bind-to none. That job runs: "
        f"{commands[job]}"
        for job, found in shared.items()
    ]


def _shortened(command: str) -> str:
    """Shorten a command to one line of a usual width."""
    words = " ".join(command.split())
    return words if len(words) <= _MOST_SHOWN else f"{words[: _MOST_SHOWN - 1]}…"


def too_few_cpus(ranks: int, cpus: int | None = None) -> str:
    """Return a warning if this host has more ranks than CPUs that they may use, else "".

    ranks: how many there are. cpus: see `own_processors`.
    """
    found = own_processors(cpus)
    room = len(found.cpus)
    if found.limit is not None:
        room = min(room, max(1, int(found.limit)))
    if ranks <= room:
        return ""
    return (
        f"warning: {ranks} ranks share {room} CPU{'s' if room > 1 else ''}, so they take turns and "
        f"the job is slow; start at most {room} here"
    )


def describe_share(share: Share, environ: Mapping[str, str]) -> str:
    """Describe a rank's share. environ: its variables, without the defaults."""
    where = f"CPUs {format_cpus(share.cpus)}" if share.cpus else "not bound"
    threads = environ.get(_THREADS) or share.threads
    return f"{where}, {_THREADS} is {threads}"
