"""Pure functions that divide a host's CPUs and threads among its ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from sirtaki.launch.cores.processors import Core, Processors, format_cpus, parse_cpus
from sirtaki.launch.errors import LaunchError

CORE = "core"
NONE = "none"
_MODES = (NONE, CORE, "numa", "socket")


class Share(NamedTuple):
    """The CPUs and threads of one rank.

    cpus: those that it may run on, empty for all. threads: how many compute.
    """

    cpus: tuple[int, ...]
    threads: int


def bind_to(text: str) -> str:
    """Validate the value of --bind-to: a mode, or a list of CPUs for each local rank."""
    if text not in _MODES:
        try:
            cpu_lists(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"{error}; give {', '.join(_MODES)}, or a list for each rank of a host as in "
                "0-3:4-7"
            ) from None
    return text


def cpu_lists(text: str) -> list[frozenset[int]]:
    """Return the CPUs of each local rank if --bind-to lists them, else [].

    Raises ValueError.
    """
    return [] if text in _MODES else [parse_cpus(part) for part in text.split(":")]


def share_out(processors: Processors, ranks: int, mode: str) -> list[Share]:
    """Divide the usable processors among the ranks of a host, in the order of their local ranks.

    mode: a valid value of --bind-to. Raises LaunchError for CPUs that do not exist.
    """
    lists = cpu_lists(mode)
    if lists:
        return [_listed(processors, rank, mode, lists[rank]) for rank in range(ranks)]
    count = len(processors.cores)
    room = count if processors.limit is None else min(count, int(processors.limit))
    threads = max(1, room // ranks)
    if ranks == 1 or mode == NONE or processors.limit is not None:
        return [Share((), threads)] * ranks
    # With more ranks than cores all parts are empty, so nothing is bound.
    parts = _divide(processors.cores, ranks)
    return [Share(_widened(processors, part, mode), threads) for part in parts]


def _listed(processors: Processors, rank: int, text: str, cpus: frozenset[int]) -> Share:
    missing = cpus - processors.cpus
    if missing:
        raise LaunchError(
            f"--bind-to {text}: local rank {rank} is to have CPU {format_cpus(missing)}, but the "
            f"job may use only {format_cpus(processors.cpus)} there"
        )
    touched = sum(not cpus.isdisjoint(core.cpus) for core in processors.cores)
    return Share(tuple(sorted(cpus)), touched)


def _divide(cores: Sequence[Core], ranks: int) -> list[Sequence[Core]]:
    """Cut runs of equal length that stay within NUMA nodes, if whole runs fit into each node.

    Runs cross nodes where a rank would otherwise get no cores.
    """
    size = len(cores) // ranks
    nodes = [list(group) for _, group in groupby(cores, key=lambda core: core.node)]
    free = [len(node) for node in nodes]
    counts = [0] * len(nodes)
    for _ in range(ranks):
        roomiest = free.index(max(free))
        free[roomiest] -= size
        counts[roomiest] += 1
    if min(free) < 0:
        return _runs(cores, ranks, size)
    return [
        run for node, count in zip(nodes, counts, strict=True) for run in _runs(node, count, size)
    ]


def _runs(cores: Sequence[Core], count: int, size: int) -> list[Sequence[Core]]:
    return [cores[index * size : (index + 1) * size] for index in range(count)]


def _widened(processors: Processors, part: Sequence[Core], mode: str) -> tuple[int, ...]:
    """Return the CPUs of a part's cores, or of all cores of their nodes or packages, by mode."""
    if mode == "numa":
        nodes = {core.node for core in part}
        part = [core for core in processors.cores if core.node in nodes]
    elif mode == "socket":
        packages = {core.package for core in part}
        part = [core for core in processors.cores if core.package in packages]
    return tuple(sorted(cpu for core in part for cpu in core.cpus))
