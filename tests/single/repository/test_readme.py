"""The README is short; the figures of the page on benchmarks are those of the newest results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "design" / "benchmarks.md").read_text()
RESULTS = ROOT / "benchmarks" / "results"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
ALLREDUCE = ["core", "torch", "Gloo", "Open MPI", "MPICH", "Intel MPI", "memcpy"]
CASES = {
    "MLP, 6 layers of 4096x4096, batch 32": ("MLP, 6 layers", "memory kept"),
    "20 convolutions, batch 32": ("20 convolutions", "memory kept"),
    "160 gradients of 4 KB": ("160 gradients of 4 KB", "memory kept"),
}
CELL = re.compile(r"([\d.]+)(?: (us|ms))?(?: \(([\d.]+)\))?")


def rows(first_heading: str) -> list[list[str]]:
    """The cells of the page's table whose first heading this is, without the headings."""
    lines = iter(PAGE.splitlines())
    next(line for line in lines if line.startswith(f"| {first_heading} |"))
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found[1:]


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def rounded(value: float) -> float:
    """A number as the page rounds it: to two digits, large ones to a whole number."""
    return round(value) if value >= 100 else float(f"{value:.2g}")


@pytest.mark.parametrize("row", rows("Bytes"), ids=lambda row: row[0])
def test_speeds_of_allreduce_are_those_measured(row: list[str]) -> None:
    number, unit = row[0].split()[:2]
    size = int(number) * UNITS[unit]
    measured = results("allreduce-2ranks")["timings"][str(size)]
    for name, cell in zip(ALLREDUCE, row[1:], strict=True):
        if not cell:
            continue
        seconds = measured[name]["median"]
        told = CELL.fullmatch(cell)
        assert told, cell
        speed = seconds * 1e6 if told[2] == "us" else size / seconds / 1e9
        assert float(told[1]) == rounded(speed), f"{name}: {speed}"


@pytest.mark.parametrize(
    "row", rows("A training step, one thread a process"), ids=lambda row: row[0]
)
def test_times_of_a_training_step_are_those_measured(row: list[str]) -> None:
    case, memory = CASES[row[0]]
    measured = results("train_step")["cases"][case]
    for name, cell in zip(["alone", "Sirtaki", "DDP, Gloo"], row[1:], strict=True):
        told = CELL.fullmatch(cell)
        assert told, cell
        assert float(told[1]) == rounded(measured["seconds"][memory][name]["median"] * 1e3)
        if told[3]:
            assert told[3] == f"{measured['efficiency'][memory][name]:.2f}"


@pytest.mark.parametrize(("framework", "peer"), [("tensorflow", "MultiWorker"), ("jax", "JAX's")])
def test_factors_of_compiled_steps_are_those_measured(framework: str, peer: str) -> None:
    timings = results(f"{framework}_step")["timings"]
    ours = timings["step, Sirtaki"]["median"]
    (others,) = (found["median"] for name, found in timings.items() if f"step, {peer}" in name)
    text = " ".join(PAGE.split())
    assert f"{ours / timings['step, one process']['median']:.2f} times as long" in text
    assert f"{others / ours:.1f} times as fast" in text


def test_a_visitor_finishes_the_readme() -> None:
    before, _, _ = (ROOT / "README.md").read_text().partition("## Read on")
    assert len(before.split()) <= 600
