"""What the kernel may write into /proc and /sys, and what it may not: nothing ends the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirtaki.doctor import examination, kernel, limits, network
from sirtaki.doctor.finding import LEVELS

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200)
WORDS = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
COUNTS = st.integers(0, 1 << 64)


@given(st.dictionaries(WORDS, COUNTS))
def test_fields_are_read_as_they_are_written(values: dict[str, int]) -> None:
    lines = [f"{name} {value}" for name, value in values.items()]
    assert limits.fields("\n".join([*lines, "a line of words", "name x"])) == values


@given(
    st.tuples(st.integers(0, 999), st.integers(0, 999)), st.sampled_from(["", ".1", "-el9", "+"])
)
def test_releases_are_read_as_they_are_written(version: tuple[int, int], rest: str) -> None:
    assert kernel.version_of(f"{version[0]}.{version[1]}{rest}") == version


@given(st.lists(WORDS, min_size=1, max_size=6, unique=True), st.data())
def test_the_word_in_brackets_is_chosen(words: list[str], data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(words))
    text = " ".join(f"[{word}]" if word == one else word for word in words)
    assert kernel.chosen(text) == one


@given(COUNTS, COUNTS, st.integers(1, 1 << 64))
def test_open_files_never_are_fewer_than_those_in_use(used: int, free: int, most: int) -> None:
    found = limits.descriptors(f"{used + free}\t{free}\t{most}")
    assert found.what == f"{used} files are open on this machine, of {most}"
    assert (found.level == "warning") == (used > most * 0.9)


@given(TEXTS)
def test_any_text_is_judged(text: str) -> None:
    found = [
        limits.descriptors(text),
        kernel.age(text),
        kernel.huge_pages(text, text, text),
        kernel.single_copy(1, text, 0),
    ]
    assert all(each.level in LEVELS and each.what for each in found)
    assert network.drops(text) in (True, False)
    assert isinstance(examination.driver_of(text), str)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(TEXTS, COUNTS.map(str), st.sampled_from(["max", "-1", "max 100000"])))
def test_any_file_of_a_control_group_is_judged(tmp_path: Path, text: str) -> None:
    names = ("cpu.max", "cpu.stat", "memory.max", "memory.current", "memory.stat", "pids.max")
    for name in names:
        (tmp_path / name).write_text(text)
    found = [
        limits.cpu_group(tmp_path, "0::/\n", 4),
        limits.memory_group(tmp_path, "0::/\n"),
        limits.processes(-1, 0, "0::/\n", tmp_path, root=True),
    ]
    assert all(each.level in LEVELS for each in found)
    number = limits.number_of(tmp_path / names[0])
    assert number is None or str(number) == text.strip().lstrip("0") or number == 0


@given(TEXTS)
def test_any_membership_leads_to_folders_below_the_mount(text: str) -> None:
    root = Path("/nowhere")
    for membership in (text, f"0::{text}", f"7:memory:{text}"):
        for folder in limits.folders(root, membership, "memory"):
            assert folder.is_relative_to(root)


@pytest.mark.parametrize("line", ["0::/../../outside", "7:memory:/a/../../../b"])
def test_a_group_outside_of_our_view_is_its_root(line: str) -> None:
    assert all(".." not in folder.parts for folder in limits.folders(Path("/sys"), line, "memory"))
