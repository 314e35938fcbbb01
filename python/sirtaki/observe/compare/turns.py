"""Runs a script over Gloo and Sirtaki in turns, and draws a conclusion."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from sirtaki.observe.scaling.runs import Limits, started
from sirtaki.questions.kernel import busy_seconds
from sirtaki.timed_steps import FOLDER, GLOO, HEAD_BYTES, SIRTAKI, TIME

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.5
_FEWEST_STEPS = 5
# The variables that select what moves the data of a script with DDP or `hvd`.
_VARIABLES = {
    GLOO: {"SIRTAKI_TORCH_DEFAULT": "0", "SIRTAKI_BENCH_GLOO": "1"},
    SIRTAKI: {"SIRTAKI_TORCH_DEFAULT": "1", "SIRTAKI_BENCH_GLOO": "0"},
}
# On GPUs a script takes NCCL, which would move the data in both turns.
_ON_CPU = {"CUDA_VISIBLE_DEVICES": ""}
# The largest spread of the pairs' ratios; a larger one has a cause outside the script.
_MOST_SPREAD = 1.2
# The share of cores that other programs may use.
_BUSY_SHARE = 0.25


@dataclass(frozen=True)
class Turn:
    """One run of the script.

    by: what moved the data. step: median seconds. steps: how many were measured. others: cores that
    other programs used just before.
    """

    by: str
    step: float
    steps: int
    others: float


@dataclass(frozen=True)
class Verdict:
    """The conclusion from pairs of turns.

    ratios: of each pair, the step over Sirtaki divided by the one over Gloo. ratio: their median,
    None if they are unreliable, as `doubt` explains.
    """

    ratios: list[float]
    ratio: float | None
    doubt: str = ""


class NoTurn(Exception):
    """A run has no result; the message explains why, and what to do."""


def take_turn(
    by: str, command: Sequence[str], flags: Sequence[str], ranks: int, limits: Limits
) -> Turn:
    """Run the script over one of the two.

    Raises:
        NoTurn: No steps were measured, the script failed, or something else moved its data.
    """
    others = _others()
    with tempfile.TemporaryDirectory(prefix="sirtaki-bench-") as folder:
        variables = {**_VARIABLES[by], **_ON_CPU, FOLDER: folder}
        with started(command, flags, ranks, variables) as (process, tail):
            enough = _watch(process, Path(folder), limits)
            code = process.poll()
        steps = _steps(Path(folder), limits)
        movers = {_read(path)[0] for path in Path(folder).glob("steps-*")}
    if code:
        raise NoTurn(f"the run ended with code {code}; it said:\n" + "\n".join(tail))
    if len(steps) < _FEWEST_STEPS:
        raise NoTurn(_too_few(len(steps) if enough else None, limits))
    if wrong := movers - {by}:
        raise NoTurn(_wrong_way(by, wrong.pop()))
    return Turn(by, median(steps), len(steps), others)


def _others() -> float:
    """Return how many cores are busy while no rank of ours runs."""
    before, begun = busy_seconds(), time.monotonic()
    time.sleep(_LOOK_SECONDS)
    return (busy_seconds() - before) / (time.monotonic() - begun)


def _watch(process: subprocess.Popen[bytes], folder: Path, limits: Limits) -> bool:
    """Wait for enough steps or the job's end; False if it has not begun in time."""
    begun = time.monotonic()
    first = 0.0
    while process.poll() is None:
        now = time.monotonic()
        if not first and any(folder.glob("steps-*")):
            first = now
        if first and now - first >= limits.warm_up + limits.seconds:
            if len(_steps(folder, limits)) >= _FEWEST_STEPS or now - begun > limits.patience:
                break
        elif not first and now - begun > limits.patience:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _steps(folder: Path, limits: Limits) -> list[float]:
    """Return the durations of the steps of all local ranks after the warm-up."""
    of_ranks = (_read(path)[1] for path in folder.glob("steps-*"))
    return [each for times in of_ranks for each in _lengths(times, limits.warm_up)]


def _read(path: Path) -> tuple[str, list[float]]:
    data = path.read_bytes()
    whole = len(data) - (len(data) - HEAD_BYTES) % TIME.size
    times = [time for (time,) in TIME.iter_unpack(data[HEAD_BYTES:whole])]
    return data[:HEAD_BYTES].decode().strip(), times


def _lengths(times: Sequence[float], warm_up: float) -> list[float]:
    late = [each for each in times if each >= times[0] + warm_up]
    return [after - before for before, after in pairwise(late)]


def _too_few(steps: int | None, limits: Limits) -> str:
    if steps is None:
        return (
            f"no optimizer of PyTorch stepped within {limits.patience:g} s: only scripts of "
            "PyTorch can be compared; --patience gives them more time"
        )
    return (
        f"only {steps} steps were seen after the first {limits.warm_up:g} s: give the script more "
        "steps, or --patience more or --warm-up less time"
    )


def _wrong_way(by: str, mover: str) -> str:
    if not mover:
        return (
            "the script has neither called dist.init_process_group nor hvd.init before its first "
            "step: its ranks exchange nothing"
        )
    return (
        f"the script's data went by {mover}, not by {by}: it chooses by itself; let it ask "
        'dist.init_process_group for "gloo" or for no backend'
    )


def conclude(turns: Sequence[Turn], cores: int) -> Verdict:
    """Compare turns, in pairs of consecutive ones.

    Args:
        turns: In their order; a last one without a partner does not count.
        cores: How many the machine has.
    """
    pairs = [
        {one.by: one.step for one in pair} for pair in zip(turns[::2], turns[1::2], strict=False)
    ]
    ratios = [pair[SIRTAKI] / pair[GLOO] for pair in pairs]
    if not ratios:
        return Verdict([], None, "no pair of turns is complete")
    least, most = min(ratios), max(ratios)
    busy = median(one.others for one in turns)
    used = f"other programs use {busy:.1f} of {cores} cores; measure again on a quiet machine"
    if most / least > _MOST_SPREAD:
        doubt = f"no conclusion: the pairs of turns disagree, from {least:.2f} to {most:.2f}"
        return Verdict(ratios, None, f"{doubt}; {used}")
    if busy > _BUSY_SHARE * cores:
        return Verdict(ratios, None, f"no conclusion, though the pairs of turns agree: {used}")
    return Verdict(ratios, median(ratios))
