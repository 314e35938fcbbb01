"""What each rank of a host gets of it: a table for faked machines, and what holds for all."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.cores.processors import (
    Core,
    Processors,
    format_cpus,
    parse_cpus,
    read_processors,
)
from sirtaki.launch.cores.shares import Share, bind_to, share_out
from sirtaki.launch.errors import LaunchError
from tests.single.faked_sys import machine


def laptop(sysfs: Path) -> Processors:
    """Two cores."""
    machine(sysfs, packages=1, nodes=1, cores=2, threads=1)
    return read_processors(sysfs, range(2), "")


def server(sysfs: Path) -> Processors:
    """Two packages of 32 cores with two hardware threads each."""
    machine(sysfs, packages=2, nodes=1, cores=32, threads=2)
    return read_processors(sysfs, range(128), "")


def four_nodes(sysfs: Path) -> Processors:
    """Two packages of two NUMA nodes with 6 cores each."""
    machine(sysfs, packages=2, nodes=2, cores=6, threads=1)
    return read_processors(sysfs, range(24), "")


def quota_of_3(sysfs: Path) -> Processors:
    """Eight cores, of which the control group grants the time of three."""
    machine(sysfs, packages=1, nodes=1, cores=8, threads=1)
    folder = sysfs / "fs/cgroup/job"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("300000 100000\n")
    return read_processors(sysfs, range(8), "0::/job\n")


def holes(sysfs: Path) -> Processors:
    """A mask of 7 CPUs on 6 cores, 2 in one NUMA node and 4 in the other."""
    machine(sysfs, packages=1, nodes=2, cores=4, threads=2)
    return read_processors(sysfs, parse_cpus("1,3-7,12"), "")


# Machine, CPUs of each rank where ranks are bound, and threads of each.
TABLE = [
    (laptop, 1, [], 2),
    (laptop, 2, ["0", "1"], 1),
    *((laptop, ranks, [], 1) for ranks in range(3, 9)),
    (server, 1, [], 64),
    (server, 2, ["0-31,64-95", "32-63,96-127"], 32),
    # Two of 21 do not fit into a package.
    (server, 3, ["0-20,64-84", "21-41,85-105", "42-62,106-126"], 21),
    (server, 4, ["0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"], 16),
    (
        server,
        5,
        ["0-11,64-75", "12-23,76-87", "24-35,88-99", "36-47,100-111", "48-59,112-123"],
        12,
    ),
    (
        server,
        6,
        [
            *("0-9,64-73", "10-19,74-83", "20-29,84-93"),
            *("32-41,96-105", "42-51,106-115", "52-61,116-125"),
        ],
        10,
    ),
    (
        server,
        7,
        [
            *("0-8,64-72", "9-17,73-81", "18-26,82-90", "27-35,91-99"),
            *("36-44,100-108", "45-53,109-117", "54-62,118-126"),
        ],
        9,
    ),
    (
        server,
        8,
        [
            *("0-7,64-71", "8-15,72-79", "16-23,80-87", "24-31,88-95"),
            *("32-39,96-103", "40-47,104-111", "48-55,112-119", "56-63,120-127"),
        ],
        8,
    ),
    (four_nodes, 1, [], 24),
    (four_nodes, 2, ["0-11", "12-23"], 12),
    (four_nodes, 3, ["0-7", "8-15", "16-23"], 8),
    (four_nodes, 4, ["0-5", "6-11", "12-17", "18-23"], 6),
    (four_nodes, 5, ["0-3", "4-7", "8-11", "12-15", "16-19"], 4),
    (four_nodes, 6, ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23"], 4),
    # Spread evenly: one node has one rank.
    (four_nodes, 7, ["0-2", "3-5", "6-8", "9-11", "12-14", "15-17", "18-20"], 3),
    (four_nodes, 8, ["0-2", "3-5", "6-8", "9-11", "12-14", "15-17", "18-20", "21-23"], 3),
    (quota_of_3, 1, [], 3),
    *((quota_of_3, ranks, [], 1) for ranks in range(2, 9)),
    (holes, 1, [], 6),
    # Three of node 1 would not leave three in node 0.
    (holes, 2, ["1,3-4,12", "5-7"], 3),
    (holes, 3, ["1,3", "4-5,12", "6-7"], 2),
    (holes, 4, ["1", "4,12", "5", "6"], 1),
    (holes, 5, ["1", "3", "4,12", "5", "6"], 1),
    (holes, 6, ["1", "3", "4,12", "5", "6", "7"], 1),
    (holes, 7, [], 1),
    (holes, 8, [], 1),
]


@pytest.mark.parametrize(
    ("make", "ranks", "cpus", "threads"),
    TABLE,
    ids=[f"{row[0].__name__}-{row[1]}" for row in TABLE],
)
def test_ranks_share_cores_equally_and_within_a_node_where_possible(
    tmp_path: Path, make, ranks: int, cpus: list[str], threads: int
) -> None:
    shares = share_out(make(tmp_path), ranks, "core")
    assert [format_cpus(share.cpus) for share in shares] == (cpus or [""] * ranks)
    assert [share.threads for share in shares] == [threads] * ranks


@pytest.mark.parametrize(("ranks", "threads"), [(1, 64), (2, 32), (3, 21), (64, 1), (65, 1)])
def test_unbound_ranks_have_as_many_threads_as_bound_ones(
    tmp_path: Path, ranks: int, threads: int
) -> None:
    assert share_out(server(tmp_path), ranks, "none") == [Share((), threads)] * ranks


@pytest.mark.parametrize(
    ("mode", "cpus"),
    [
        ("core", ["0-5", "6-11", "12-17", "18-23"]),
        ("numa", ["0-5", "6-11", "12-17", "18-23"]),
        ("socket", ["0-11", "0-11", "12-23", "12-23"]),
    ],
)
def test_a_share_can_be_widened_to_the_package_of_its_cores(
    tmp_path: Path, mode: str, cpus: list[str]
) -> None:
    shares = share_out(four_nodes(tmp_path), 4, mode)
    assert [(format_cpus(share.cpus), share.threads) for share in shares] == [
        (each, 6) for each in cpus
    ]


def test_a_share_can_be_widened_to_all_nodes_that_it_touches(tmp_path: Path) -> None:
    shares = share_out(four_nodes(tmp_path), 3, "numa")
    assert [format_cpus(share.cpus) for share in shares] == ["0-11", "6-17", "12-23"]


def test_listed_cpus_are_given_as_they_are_with_a_thread_a_core(tmp_path: Path) -> None:
    shares = share_out(server(tmp_path), 2, "0-1,64-65:5-8")
    assert shares == [Share((0, 1, 64, 65), 2), Share((5, 6, 7, 8), 4)]


def test_one_rank_and_more_ranks_than_cores_are_bound_where_cpus_are_listed(
    tmp_path: Path,
) -> None:
    processors = laptop(tmp_path)
    assert share_out(processors, 1, "1") == [Share((1,), 1)]
    assert share_out(processors, 3, "0:1:0-1")[2] == Share((0, 1), 2)


def test_a_listed_cpu_that_is_not_there_is_named_with_flag_and_rank(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as raised:
        share_out(laptop(tmp_path), 2, "0:1,4-5")
    assert str(raised.value) == (
        "--bind-to 0:1,4-5: local rank 1 is to have CPU 4-5, but the job may use only 0-1 there"
    )


@pytest.mark.parametrize("text", ["none", "core", "numa", "socket", "0-3:4-7", "5"])
def test_the_flag_takes_a_word_or_lists(text: str) -> None:
    assert bind_to(text) == text


@pytest.mark.parametrize("text", ["", "cores", "0-3:", "0-3;4-7", "CORE"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"is not a list of CPUs.*none, core, numa"
    ):
        bind_to(text)


@st.composite
def processors(draw: st.DrawFn) -> Processors:
    """Any machine with any mask."""
    packages, nodes, threads = (draw(st.integers(1, 3)) for _ in range(3))
    cores, number = [], 0
    for node in range(packages * nodes):
        for _ in range(draw(st.integers(0, 9))):
            cpus = tuple(range(number, number + draw(st.integers(1, threads))))
            number += threads
            cores.append(Core(cpus, node, node // nodes))
    return Processors(tuple(cores) or (Core((0,), 0, 0),), draw(st.none() | st.floats(0.1, 99)))


def flat(shares: Iterable[Share]) -> list[int]:
    return [cpu for share in shares for cpu in share.cpus]


@given(processors(), st.integers(1, 40))
def test_shares_are_disjoint_equal_and_inside_the_mask(machine: Processors, ranks: int) -> None:
    shares = share_out(machine, ranks, "core")
    taken = flat(shares)
    assert len(shares) == ranks
    assert len(set(taken)) == len(taken)
    assert set(taken) <= machine.cpus
    assert len({share.threads for share in shares}) == 1
    bound = ranks > 1 and ranks <= len(machine.cores) and machine.limit is None
    size = len(machine.cores) // ranks if bound else 0
    of_cpu = {cpu: core for core in machine.cores for cpu in core.cpus}
    assert [len({of_cpu[cpu] for cpu in share.cpus}) for share in shares] == [size] * ranks


@given(processors(), st.integers(1, 40))
def test_ranks_do_not_compute_with_more_threads_than_there_are_cores(
    machine: Processors, ranks: int
) -> None:
    threads = sum(share.threads for share in share_out(machine, ranks, "none"))
    assert threads == ranks or threads <= min(len(machine.cores), machine.limit or 1e9)
