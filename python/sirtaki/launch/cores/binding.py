"""The shares of the ranks of this host, and what becomes of them."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from sirtaki.launch.cores.processors import Processors, format_cpus, read_processors
from sirtaki.launch.cores.shares import CORE, NONE, Share, share_out
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.cpu_quota import own_membership

_THREADS = "OMP_NUM_THREADS"
# They name CPUs for threads, which need not be those of a rank's share.
_BOUND_BY_USER = ("OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def own_processors() -> Processors:
    """Return what this process may use."""
    return read_processors(Path("/sys"), os.sched_getaffinity(0), own_membership())


def shares_here(ranks: int, bind_to: str | None, environ: Mapping[str, str]) -> list[Share]:
    """Return the share of each local rank. Raises LaunchError for CPUs that are not there.

    bind_to: the accepted value of --bind-to, None when it was not given. environ: of all ranks.
    """
    by_user = any(environ.get(name) for name in _BOUND_BY_USER)
    return share_out(own_processors(), ranks, bind_to or (NONE if by_user else CORE))


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
