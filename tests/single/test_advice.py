"""What is said of two looks at a job's counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sirtaki.core import advice
from sirtaki.core.advice import Look

FIRST = Look(10.0, 5, 1.0, 0, {"eth0": 100, "ib0": 7})


def later(**changes: Any) -> Look:
    """50 steps of 100 ms later, in each of which 40 ms waited for 1.2 MB over two hosts."""
    usual: dict[str, Any] = {"at": 15.0, "steps": 55, "exposed": 3.0, "summed": 60_000_000}
    return Look(**{**usual, "sent": {"eth0": 60_000_100, "ib0": 9}, **changes})


@pytest.fixture(autouse=True)
def speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "eth0"
    path.write_text("1000\n")
    monkeypatch.setattr(advice, "_SPEED", str(tmp_path / "{}"))
    return path


def test_the_share_the_rate_and_what_helps() -> None:
    assert advice.advice(FIRST, later(), 2, 0.5) == (
        "in 50 steps rank 0 waited for the network for 40% of the time: 40 of 100 ms. Meanwhile "
        "eth0 sent 24.0 MB/s of 125. Try compression=hvd.Compression.int8, "
        'as the page "Train over a slow network" says (SIRTAKI_ADVICE=0: no such advice)'
    )


@pytest.mark.parametrize("known", ["-1", "", "unknown"])
def test_a_driver_may_not_know_its_rate(speed: Path, known: str) -> None:
    speed.write_text(known)
    told = advice.advice(FIRST, later(), 2, 0.5)
    assert "eth0 sent 24.0 MB/s (`sirtaki doctor --hosts` measures what it can). Try" in told


@pytest.mark.parametrize(
    ("changes", "moving"),
    [
        ({"exposed": 1.9}, 0.5),  # a step that waits little
        ({}, 0.1),  # waiting for another rank, while nothing moves
        ({"exposed": None}, 0.9),  # waits of the framework's own
    ],
)
def test_nothing_is_said(changes: dict[str, Any], moving: float) -> None:
    assert advice.advice(FIRST, later(**changes), 2, moving) == ""


@pytest.mark.parametrize(
    ("exposed", "sent", "way"),
    [
        (2.3, 60e6, "Try compression=hvd.Compression.bf16, as"),
        (2.3, 30e6, "Try compression=hvd.Compression.int8, as"),  # it sends bf16 already
        (3.0, 16e6, "Try hvd.DiLoCo, as"),  # and int8
        (5.0, 60e6, "Try hvd.DiLoCo, as"),
    ],
)
def test_what_helps_depends_on_the_share_and_on_what_is_sent(
    exposed: float, sent: float, way: str
) -> None:
    now = later(exposed=exposed, sent={"eth0": int(sent)})
    assert way in advice.advice(FIRST, now, 2, 0.9)


def test_a_job_that_is_slower_than_one_host() -> None:
    words = "Without the other hosts, each of the 2 would train faster than all do now"
    assert words in advice.advice(FIRST, later(exposed=4.0), 2, 0.9)
    assert words not in advice.advice(FIRST, later(exposed=3.4), 2, 0.9)
