"""Lines of workers' output: cutting, prefixes, copies."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.output import LineSplitter, Outputs, write_all

chunks = st.lists(
    st.one_of(
        st.binary(max_size=12), st.sampled_from([b"\n", b"\r", b"\r\n", b"ab", "é€😀".encode()])
    )
)


def shown(*data: bytes, timestamps: bool = False, name: str = "stdout") -> str:
    target = io.StringIO()
    stream = Outputs(4, target, target, timestamps=timestamps).open(3, name)
    for part in data:
        stream.write(part)
    stream.finish()
    return target.getvalue()


@given(chunks)
def test_nothing_is_lost_or_added_by_cutting(parts: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for part in parts for line in splitter.feed(part)] + splitter.finish()
    assert "".join(lines) == b"".join(parts).decode("utf-8", "replace")


@given(chunks)
def test_every_line_ends_at_its_first_line_end(parts: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for part in parts for line in splitter.feed(part)]
    assert all(re.fullmatch(r"[^\r\n]*(\r\n|\r|\n)", line) for line in lines)
    rest = splitter.finish()
    assert len(rest) <= 1
    assert not any(character in "".join(rest) for character in "\r\n")


@given(chunks)
def test_what_is_shown_has_a_prefix_on_every_line_and_ends_with_one(parts: list[bytes]) -> None:
    text = shown(*parts)
    for line in re.split(r"[\r\n]+", text):
        assert line == "" or line.startswith("[3]<stdout>:")
    assert text == "" or text[-1] in "\r\n"


def test_lines_have_rank_and_stream_in_front() -> None:
    assert shown(b"one\ntwo\n", name="stderr") == "[3]<stderr>:one\n[3]<stderr>:two\n"


def test_an_empty_line_is_a_line() -> None:
    assert shown(b"a\n\nb\n") == "[3]<stdout>:a\n[3]<stdout>:\n[3]<stdout>:b\n"


def test_a_line_that_comes_in_pieces_is_shown_whole() -> None:
    target = io.StringIO()
    stream = Outputs(1, target, target).open(0, "stdout")
    stream.write(b"first ")
    assert target.getvalue() == ""
    stream.write(b"second\n")
    assert target.getvalue() == "[0]<stdout>:first second\n"


def test_an_incomplete_last_line_is_shown_at_the_end() -> None:
    assert shown(b"no end") == "[3]<stdout>:no end\n"


def test_a_progress_bar_is_shown_step_by_step() -> None:
    text = shown(b"\r 10%", b"\r 20%", b"\r100%\n")
    assert text == "[3]<stdout>: 10%\r[3]<stdout>: 20%\r[3]<stdout>:100%\n"


def test_a_windows_line_end_cut_in_two_is_not_two_lines() -> None:
    assert shown(b"a\r", b"\nb\n") == "[3]<stdout>:a\r\n[3]<stdout>:b\n"


def test_a_character_cut_in_two_arrives_whole() -> None:
    assert shown(b"\xe2\x82", b"\xac\n") == "[3]<stdout>:€\n"


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert shown(b"a\xffb\n") == "[3]<stdout>:a\ufffdb\n"


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    target = io.StringIO()
    stream = Outputs(1, target, target).open(0, "stdout")
    for _ in range(40):
        stream.write(b"x" * 65536)
    assert len(target.getvalue()) > 1 << 20


def test_timestamps_have_milliseconds_and_come_before_the_prefix() -> None:
    text = shown(b"x\n", timestamps=True)
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d\.\d{3} \d{4}\[3\]<stdout>:x\n", text)


@pytest.mark.parametrize(("size", "folder"), [(1, "rank.0"), (10, "rank.0"), (11, "rank.00")])
def test_copies_are_raw_and_ranks_are_padded_to_one_width(
    tmp_path: Path, size: int, folder: str
) -> None:
    target = io.StringIO()
    outputs = Outputs(size, target, target, str(tmp_path / "out"))
    outputs.prepare()
    stream = outputs.open(0, "stdout")
    stream.write(b"\xffraw\r")
    stream.finish()
    assert (tmp_path / "out" / folder / "stdout").read_bytes() == b"\xffraw\r"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outputs = Outputs(1, io.StringIO(), io.StringIO(), str(tmp_path / "file" / "below"))
    with pytest.raises(LaunchError, match="below"):
        outputs.prepare()


def test_a_full_disk_is_reported_with_the_files_name_and_the_job_goes_on() -> None:
    shown, said = io.StringIO(), io.StringIO()
    stream = Outputs(1, shown, said).open(0, "stdout")
    with Path("/dev/full").open("wb", buffering=0) as full:
        stream._copies = [full]  # type: ignore[list-item]
        for _ in range(2):
            stream.write(b"x\n")
        stream.finish()
    assert shown.getvalue() == "[0]<stdout>:x\n" * 2
    [line] = said.getvalue().splitlines()
    assert line.startswith("warning: cannot write '/dev/full': No space left on device; the job")


def test_a_copy_is_not_written_through_what_somebody_else_has_put_there(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("my thesis")
    for number, make in ((0, "link"), (1, "fifo"), (2, "folder")):
        rank = tmp_path / f"rank.{number}"
        if make == "folder":
            rank.symlink_to(tmp_path)
            (tmp_path / "stdout").symlink_to(precious)
        else:
            rank.mkdir()
            file = rank / "stdout"
            file.symlink_to(precious) if make == "link" else os.mkfifo(file)
        outputs = Outputs(3, io.StringIO(), io.StringIO(), directory=str(tmp_path))
        with pytest.raises(LaunchError, match=r"cannot create|is a link"):
            outputs.open(number, "stdout")
    assert precious.read_text() == "my thesis"


def test_a_file_that_takes_less_at_a_time_gets_all() -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data[:3]))

    file = Slow()
    write_all(file, b"0123456789")
    assert file.getvalue() == b"0123456789"
