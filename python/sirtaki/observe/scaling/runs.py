"""Runs the script at a number of ranks, and watches it for some steps or until it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from sirtaki.observe.scaling import watch
from sirtaki.observe.scaling.watch import Look, RankFigures

_POLL_SECONDS = 0.1
_ENDING_SECONDS = 20.0
_TAIL_LINES = 15
_TAIL_BYTES = 1 << 16
_FEWEST_LOOKS = 3


@dataclass(frozen=True)
class Limits:
    """The limits of the watch over a run.

    seconds: from the first steps. steps: None for any number. warm_up: seconds of first steps that
    do not count. patience: seconds until the first step. look: seconds between two samples.
    """

    seconds: float = 20.0
    steps: int | None = None
    warm_up: float = 2.0
    patience: float = 300.0
    look: float = 0.5


@dataclass
class Run:
    """The result of a run.

    ranks: how many. exit_code: None if it was ended after the watch. seconds: of the whole run.
    step: seconds, None if no steps were seen. steps: how many were watched. others: cores that
    other programs used. cores: of all hosts, None for one host. tail: its last lines.
    """

    ranks: int
    exit_code: int | None
    seconds: float
    step: float | None = None
    steps: float = 0.0
    others: float = 0.0
    cores: float | None = None
    of_ranks: list[RankFigures] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)


class NoSteps(Exception):
    """The script did not begin to communicate in time."""


def run_script(command: Sequence[str], flags: Sequence[str], ranks: int, limits: Limits) -> Run:
    """Run a command at a number of ranks, and watch it.

    Raises:
        NoSteps: No step was seen within `limits`.
    """
    begun = time.monotonic()
    with started(command, flags, ranks) as (process, output):
        looks = _watch(process, limits)
        code = process.poll()
    return Run(
        ranks=ranks,
        exit_code=code,
        seconds=time.monotonic() - begun,
        step=watch.step_seconds(looks) if len(looks) >= _FEWEST_LOOKS else None,
        steps=watch.steps_done(looks),
        others=watch.others(looks),
        cores=watch.cores(looks),
        of_ranks=watch.figures(looks),
        tail=output,
    )


@contextlib.contextmanager
def started(
    command: Sequence[str],
    flags: Sequence[str],
    ranks: int,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], list[str]]]:
    """Start a command at a number of ranks, and end it.

    Args:
        command: What each rank runs.
        flags: The launcher's.
        ranks: How many.
        variables: Added to the environment.

    Yields:
        The launcher, and a list that receives its last lines of output after its end.
    """
    launcher = [sys.executable, "-m", "sirtaki.launch.cli", "run", "-np", str(ranks), *flags]
    tail: list[str] = []
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*launcher, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SIRTAKI_POSTMORTEM": "0", **(variables or {})},
        )
        try:
            yield process, tail
        finally:
            _end(process)
            tail += _tail(output)


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> list[Look]:
    """Sample the job until it has ended or the limits are reached."""
    begun = time.monotonic()
    looks: list[Look] = []
    job: str | None = None
    first_step = 0.0
    while process.poll() is None:
        job = job or watch.job_below(process.pid)
        now = time.monotonic()
        seen = None if job is None else watch.look(job)
        if seen is not None and watch.step_seconds([seen]) is not None:
            first_step = first_step or now
            if now - first_step >= limits.warm_up:
                looks.append(seen)
            if _enough(looks, limits):
                break
        elif not first_step and now - begun > limits.patience:
            raise NoSteps
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limits.look if job is not None else _POLL_SECONDS)
    return looks


def _enough(looks: Sequence[Look], limits: Limits) -> bool:
    if len(looks) < _FEWEST_LOOKS:
        return False
    if limits.steps is not None and watch.steps_done(looks) >= limits.steps:
        return True
    return looks[-1].at - looks[0].at >= limits.seconds


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(output: IO[bytes]) -> list[str]:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    return output.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
