"""Processes that were killed because a control group ran out of memory, in both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirtaki.rendezvous.host.out_of_memory import Killed, newly_killed, own_killed, read_killed


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_second_version_tells_in_memory_events(tmp_path: Path) -> None:
    group(tmp_path / "job", memory__events="low 0\noom 3\noom_kill 2\n", memory__max="209715200\n")
    [found] = read_killed(tmp_path, "0::/job")
    assert found == Killed("/job", 2, 200 << 20)
    assert str(found) == "the control group /job, which may have 200 MiB"


def test_the_first_version_tells_in_oom_control(tmp_path: Path) -> None:
    group(
        tmp_path / "memory" / "job",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        memory__limit_in_bytes="9223372036854771712\n",
    )
    assert read_killed(tmp_path, "5:cpu,cpuacct:/\n4:memory:/job") == [Killed("/job", 1, None)]


def test_in_a_container_only_the_root_may_be_there(tmp_path: Path) -> None:
    group(tmp_path / "mount", memory__events="oom_kill 4\n", memory__max="max\n")
    assert read_killed(tmp_path / "mount", "0::/elsewhere") == [Killed("/elsewhere", 4, None)]


@pytest.mark.parametrize("membership", ["", "0::/job", "4:memory:/job", "7:blkio:/"])
def test_a_kernel_that_does_not_tell_tells_nothing(tmp_path: Path, membership: str) -> None:
    assert read_killed(tmp_path, membership) == []


def test_only_what_has_been_killed_since_counts() -> None:
    before = own_killed()
    assert newly_killed(before) is None
    for each in before:
        assert newly_killed([each._replace(kills=each.kills - 1)]) == each
