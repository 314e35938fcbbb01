"""`sirtaki bench`: what it measures, prints and writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sirtaki
from sirtaki.observe.contenders import Array, Copy, Run, timed
from sirtaki.observe.measure import (
    Plan,
    interleave,
    measure,
    show_bytes,
    show_rate,
    show_seconds,
    sizes_between,
    table,
)
from sirtaki.rendezvous.words import aligned
from tests.single.launching import LIMIT, SIRTAKI

pytestmark = [pytest.mark.job, pytest.mark.slow]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SIRTAKI, "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "result.svg"
    done = bench("-np", "1", "--max-bytes", "64", "--seconds", "0.001", "--plot", str(path))
    assert done.returncode == 0, done.stderr
    assert "<svg" in path.read_text()


def test_two_ranks_are_measured_and_written_as_json(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = bench("-np", "2", "--max-bytes", "1024", "--seconds", "0.001", "--json", str(path))
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()[:6]
    assert header.split()[0::2] == ["core", "numpy", "torch", "memcpy"]
    assert [row.split()[0] for row in rows] == ["4", "16", "64", "256", "1"]
    result = json.loads(path.read_text())
    assert (result["benchmark"], result["ranks"]) == ("allreduce", 2)
    assert result["machine"]["versions"]["sirtaki"] == sirtaki.__version__
    assert list(result["timings"]) == ["4", "16", "64", "256", "1024"]
    for by_name in result["timings"].values():
        for quantiles in by_name.values():
            assert 0 < quantiles["p10"] <= quantiles["median"] <= quantiles["p90"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("broadcast",), "invalid choice"),
        (("allreduce", "--max-bytes", "3"), "less than the 4 bytes"),
        (("allreduce", "-np", "0"), "num_proc=0 must be >= 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], words: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_file_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    done = bench("allreduce", "--json", str(tmp_path / "none" / "result.json"))
    assert done.returncode == 2
    assert "none" in done.stderr


def test_sizes_grow_fourfold_up_to_the_largest() -> None:
    assert sizes_between(4, 1024) == [4, 16, 64, 256, 1024]
    assert sizes_between(4, 63) == [4, 16]
    assert sizes_between(4, 4) == [4]


def test_a_wrong_sum_is_an_error() -> None:
    def wrong(data: Array) -> Run:
        return timed(lambda: data.fill(3))

    sirtaki.init()
    try:
        with pytest.raises(RuntimeError, match="rank 0: wrong summed 4 bytes of ones"):
            measure(Plan([4], rounds=1), {"wrong": wrong})
    finally:
        sirtaki.shutdown()


def test_who_is_slow_at_a_size_is_not_asked_for_larger_ones() -> None:
    asked: list[int] = []

    def slow(data: Array) -> Run:
        asked.append(data.nbytes)
        return lambda repeats: [2.0] * repeats

    sirtaki.init()
    try:
        timings = measure(Plan([4, 16, 64], rounds=1, patience=1.0), {"slow": slow})
    finally:
        sirtaki.shutdown()
    assert asked == [4]
    assert timings[4]["slow"]["median"] == 2.0
    assert table(timings)[0].split() == ["slow", "GB/s", "memcpy", "GB/s"]
    assert [line.split()[2:4] for line in table(timings)[2:]] == [["-", "-"], ["-", "-"]]


def test_contenders_take_turns_and_a_turns_first_repeat_does_not_count() -> None:
    turns: list[str] = []

    def run(name: str) -> Run:
        def take_turn(repeats: int) -> list[float]:
            turns.append(name)
            return [100.0, *[float(len(turns))] * (repeats - 1)]

        return take_turn

    sirtaki.init()
    try:
        result = interleave({"a": run("a"), "b": run("b")}, {"a": 2, "b": 1}, rounds=2)
    finally:
        sirtaki.shutdown()
    assert turns == ["a", "b", "b", "a"]
    assert result["a"]["median"] == 2.5
    assert result["b"]["median"] == 2.5


def test_a_contender_of_another_rank_has_no_times() -> None:
    sirtaki.init()
    try:
        assert interleave({"other": lambda _: []}, {"other": 3}, rounds=1)["other"]["median"] == 0
    finally:
        sirtaki.shutdown()


def test_copies_go_to_ever_other_places() -> None:
    copy = Copy(1 << 20)
    copy._target.fill(0)
    copy(np.zeros(256, np.float32))(3)
    written = np.flatnonzero(copy._target)
    assert len(written) == 3 * 1024
    assert set(written // 4096) == {0, 1, 2}


def test_numbers_are_shown_with_three_digits() -> None:
    assert [show_bytes(n) for n in (4, 1 << 10, 64 << 20, 1 << 30)] == [
        "4 B",
        "1 KiB",
        "64 MiB",
        "1 GiB",
    ]
    assert [show_seconds(s) for s in (5e-7, 1.8e-6, 123e-6, 0.0123, 2)] == [
        "0.50 us",
        "1.80 us",
        "123 us",
        "12.3 ms",
        "2000 ms",
    ]
    assert show_rate(1 << 30, 0.25) == "4.29"


def test_columns_are_flush_right() -> None:
    assert aligned([["a", "bb"], ["ccc", "d"]]) == ["  a  bb", "ccc   d"]
