"""What a job may use of a host, read from faked /sys trees."""

from __future__ import annotations

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
from tests.single.faked_sys import machine

NO_GROUPS = ""


def test_hardware_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    machine(tmp_path, packages=1, nodes=1, cores=2, threads=2)
    found = read_processors(tmp_path, range(4), NO_GROUPS)
    assert found == Processors((Core((0, 2), 0, 0), Core((1, 3), 0, 0)))


def test_cores_of_a_node_stand_together_whatever_their_numbers(tmp_path: Path) -> None:
    machine(tmp_path, packages=2, nodes=1, cores=2, threads=1, interleaved=True)
    found = read_processors(tmp_path, range(4), NO_GROUPS)
    assert [(core.cpus, core.node, core.package) for core in found.cores] == [
        ((0,), 0, 0),
        ((2,), 0, 0),
        ((1,), 1, 1),
        ((3,), 1, 1),
    ]


def test_only_cpus_of_the_affinity_mask_are_there(tmp_path: Path) -> None:
    machine(tmp_path, packages=1, nodes=1, cores=4, threads=2)
    found = read_processors(tmp_path, {1, 2, 6}, NO_GROUPS)
    assert [core.cpus for core in found.cores] == [(1,), (2, 6)]
    assert found.cpus == {1, 2, 6}


def test_what_the_kernel_does_not_tell_is_one_core_a_cpu_in_one_node(tmp_path: Path) -> None:
    found = read_processors(tmp_path, {3, 1}, NO_GROUPS)
    assert found == Processors((Core((1,), 0, 0), Core((3,), 0, 0)))


def test_a_node_of_memory_alone_is_no_error(tmp_path: Path) -> None:
    machine(tmp_path, packages=1, nodes=1, cores=1, threads=1)
    node = tmp_path / "devices/system/node/node7"
    node.mkdir()
    (node / "cpulist").write_text("\n")
    assert read_processors(tmp_path, {0}, NO_GROUPS).cores == (Core((0,), 0, 0),)


def group(sysfs: Path, path: str, **files: str) -> None:
    folder = sysfs / "fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def quota(sysfs: Path, membership: str) -> float | None:
    return read_processors(sysfs, range(8), membership).quota


def test_the_quota_is_what_the_control_group_grants(tmp_path: Path) -> None:
    group(tmp_path, "job", cpu__max="250000 100000")
    assert quota(tmp_path, "0::/job\n") == 2.5


def test_the_quota_is_the_least_of_all_groups_above(tmp_path: Path) -> None:
    group(tmp_path, "a", cpu__max="300000 100000")
    group(tmp_path, "a/b", cpu__max="max 100000")
    group(tmp_path, "a/b/c", cpu__max="400000 100000")
    assert quota(tmp_path, "0::/a/b/c\n") == 3


def test_in_a_container_the_group_is_the_root_of_what_is_mounted(tmp_path: Path) -> None:
    group(tmp_path, "", cpu__max="150000 100000")
    assert quota(tmp_path, "0::/\n") == 1.5
    assert quota(tmp_path, "0::/docker/of/the/host\n") == 1.5
    assert quota(tmp_path, "0::/../beside\n") == 1.5


def test_control_groups_of_version_1_have_a_quota_too(tmp_path: Path) -> None:
    files = {"cpu__cfs_quota_us": "300000", "cpu__cfs_period_us": "100000"}
    group(tmp_path, "cpu/job", **files)
    assert quota(tmp_path, "4:memory:/\n3:cpuacct,cpu:/job\n") == 3


@pytest.mark.parametrize("text", ["max 100000", "nonsense", "", "100000 0"])
def test_without_a_quota_there_is_no_limit(tmp_path: Path, text: str) -> None:
    group(tmp_path, "job", cpu__max=text)
    group(tmp_path, "cpu/job", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert quota(tmp_path, "0::/job\n1:cpu:/job\n") is None


@pytest.mark.parametrize(
    ("granted", "limit"), [(None, None), (7.5, 7.5), (8.0, None), (64.0, None)]
)
def test_a_quota_limits_where_it_is_less_than_the_cpus(
    granted: float | None, limit: float | None
) -> None:
    cores = tuple(Core((cpu, cpu + 4), 0, 0) for cpu in range(4))
    assert Processors(cores, granted).limit == limit


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0-3", {0, 1, 2, 3}), ("1,4-5\n", {1, 4, 5}), ("2-2", {2})]
)
def test_lists_of_cpus_are_read_as_the_kernel_writes_them(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", ",", "a", "3-1", "1-", "-1", "1,,2", "0x1", "0-99999", "²"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of CPUs"):
        parse_cpus(text)


@given(st.frozensets(st.integers(0, 300), min_size=1))
def test_a_list_that_is_written_reads_as_the_same(cpus: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


def test_runs_are_written_as_ranges() -> None:
    assert format_cpus([8, 0, 1, 2, 5]) == "0-2,5,8"
