"""The shares of the ranks of this host, and what becomes of them."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from sirtaki.launch.cores.processors import Processors, format_cpus, read_processors
from sirtaki.launch.cores.shares import CORE, NONE, Share, share_out
from sirtaki.records import replace
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.control_groups import own_membership

_THREADS = "OMP_NUM_THREADS"
_GPUS = "CUDA_VISIBLE_DEVICES"
# They name CPUs for threads, which need not be those of a rank's share.
_BOUND_BY_USER = ("OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def own_processors(cpus: int | None = None) -> Processors:
    """Return what this process may use.

    cpus: how many a scheduler has given, None where none has. Where it lets us run on more, it
    counts on us not to use them all.
    """
    found = read_processors(Path("/sys"), os.sched_getaffinity(0), own_membership())
    if cpus is None or cpus >= len(found.cores):
        return found
    return replace(found, quota=min(cpus, found.quota or cpus))


def shares_here(
    ranks: int, bind_to: str | None, environ: Mapping[str, str], cpus: int | None = None
) -> list[Share]:
    """Return the share of each local rank. Raises LaunchError for CPUs that are not there.

    bind_to: the accepted value of --bind-to, None when it was not given. environ: of all ranks.
    cpus: see `own_processors`.
    """
    by_user = any(environ.get(name) for name in _BOUND_BY_USER)
    return share_out(own_processors(cpus), ranks, bind_to or (NONE if by_user else CORE))


def gpu_share(place: int, gpus: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that says which GPUs of a host a rank sees; nothing where it sees all.

    place: of the rank on its host. gpus: of each rank. environ: what the host's agent has.
    """
    if not gpus:
        return {}
    listed = environ.get(_GPUS, "").split(",")
    ours = range(place * gpus, (place + 1) * gpus)
    names = listed[ours.start : ours.stop] if listed != [""] else map(str, ours)
    return {_GPUS: ",".join(names)}


def default_threads(share: Share) -> dict[str, str]:
    """Return the variable that a rank has unless the user has set it."""
    return {_THREADS: str(share.threads)}


def bound_neighbours(cpus: Collection[int]) -> list[str]:
    """Say of each other job of this user whether it is bound to some of these CPUs."""
    everywhere = len(os.sched_getaffinity(0))
    shared: dict[str, set[int]] = {}
    commands: dict[str, str] = {}
    for one in presence.present():
        with contextlib.suppress(OSError):
            bound = os.sched_getaffinity(one.record.pid)
            if len(bound) < everywhere and bound & set(cpus) and one.alive:
                shared.setdefault(one.record.job, set()).update(bound & set(cpus))
                commands[one.record.job] = shlex.join(one.record.command)
    return [
        f"CPUs {format_cpus(sorted(found))} are also those of your job {job} ({commands[job]}): "
        "both will be slow; bind this one elsewhere (--bind-to), or not (--bind-to none)"
        for job, found in shared.items()
    ]


def describe_share(share: Share, environ: Mapping[str, str]) -> str:
    """Say what a rank gets. environ: its variables, without the defaults."""
    where = f"CPUs {format_cpus(share.cpus)}" if share.cpus else "not bound"
    threads = environ.get(_THREADS) or share.threads
    return f"{where}, {_THREADS} is {threads}"
