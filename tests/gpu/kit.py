"""Runs the checks on real GPUs one after another, and goes on when one fails.

Each check has a limit of its own, and all together end within --seconds; a check that no longer
fits is skipped by name. Writes one JSON, anew after each check, and prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# In a folder that pack.sh made everything lies together.
PACKED = (HERE / "wheels").is_dir()
EXAMPLES = HERE / "examples" if PACKED else HERE.parents[1] / "examples"
APART = HERE / "apart.py"
MANY_RANKS = (4, 8, 16)
NO_GPU = 77
FIGURE = "figure "
NOT_TRIED = "not tried: "
_SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")
_RUN = (*_SIRTAKI, "run", "-np")
_SANITIZER_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"))
_SOON = ("--stall-check-warning-time-seconds", "5", "--stall-check-shutdown-time-seconds", "15")
_COOL_DOWN = ("--blacklist-cooldown-range", "60", "60")
_KEPT_LINES = 40
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """A command, and the seconds that it may take."""

    name: str
    command: Sequence[str]
    limit: float


@dataclass
class Result:
    """How a check ended: passed, failed, timed out, skipped, or not tried; what it measured."""

    name: str
    outcome: str
    seconds: float = 0.0
    exit_code: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)


def run_check(check: Check, limit: float) -> Result:
    """Run a check for at most limit seconds, and leave none of its processes."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            check.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit)
            outcome = "failed" if process.returncode else "passed"
        except subprocess.TimeoutExpired:
            outcome = "timed out"
        _end_session(process)
        seconds = time.monotonic() - begin
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    reasons = {line.partition(NOT_TRIED)[2] for line in lines} - {""}
    if reasons:
        outcome, lines = "not tried", sorted(reasons)
    return Result(
        check.name,
        outcome,
        round(seconds, 1),
        process.returncode,
        dict(_figures(lines)),
        [] if outcome == "passed" else lines[-_KEPT_LINES:],
    )


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """A launcher that is told to stop ends its ranks; what is left then is killed."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _figures(lines: Sequence[str]) -> Iterator[tuple[str, float]]:
    """What a check measured: lines of "figure NAME VALUE", behind what the launcher puts first."""
    for line in lines:
        _, found, rest = line.partition(FIGURE)
        words = rest.split()
        if found and len(words) == 2:
            with contextlib.suppress(ValueError):
                yield words[0], float(words[1])


def checks(devices: int) -> list[Check]:
    """What there is to check on so many GPUs."""
    several = max(2, devices)
    found = [
        _ranks(number, "collectives", devices, _own("collectives")) for number in (1, several, 3)
    ]
    found += [
        _ranks(number, name, devices, _own(name))
        for name in ("lifetime", "mixed_precision", "graphs")
        for number in (1, several)
    ]
    found.append(
        # An elastic job lets the other ranks go on.
        _ranks(several, "killed", devices, _own("killed"), flags=("--min-np", "1", *_COOL_DOWN))
    )
    flags = ("--min-np", "2", *_COOL_DOWN)
    found.append(_ranks(3, "elastic, a rank is killed", devices, _own("elastic"), flags=flags))
    found.append(_of_a_hang(_ranks(3, "does_nothing", devices, _own("does_nothing"), flags=_SOON)))
    for backend in ("sirtaki", "cpu:sirtaki,cuda:nccl"):
        words = (*_own("distributed"), backend)
        found.append(_ranks(several, f"torch.distributed on {backend}", devices, words))
    for number in sorted({1, devices}):
        found.append(_ranks(number, "speed", devices, _own("speed"), limit=60))
        found.append(_ranks(number, "overlap", devices, _own("overlap"), limit=60))
        found.append(_ranks(number, "cost", devices, _own("cost")))
    found += [_through_memory(number, "mnist", _mnist()) for number in (1, 2)]
    found.append(_through_memory(2, "collectives", _own("collectives")))
    found += [
        _through_memory(number, name, _own(name))
        for name in ("jax", "tensorflow")
        for number in (1, 2)
    ]
    found += [
        _through_memory(number, "many_ranks", _own("many_ranks"))
        for number in MANY_RANKS
        if number <= len(os.sched_getaffinity(0))
    ]
    if sanitizer := shutil.which("compute-sanitizer", path=_SANITIZER_PATH):
        # Without PyTorch's own cache of memory, each use of memory that was freed is seen.
        # NCCL asks for what a device may lack, so calls that return an error are none of ours.
        tool = ("env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", sanitizer, "--error-exitcode", "9")
        words = (*tool, "--report-api-errors", "no", sys.executable, *_own("collectives"))
        found.append(Check("memory errors, 1 ranks on NCCL", [*_RUN, "1", *words], 90))
    found.append(Check("doctor", [*_SIRTAKI, "doctor"], 60))
    return found


def _own(name: str) -> tuple[str, ...]:
    return (str(HERE / f"check_{name}.py"),)


def _mnist() -> tuple[str, ...]:
    digits = ("--data-dir", str(HERE / "digits")) if PACKED else ()
    return (str(EXAMPLES / "pytorch_mnist.py"), "--epochs", "1", *digits)


def _through_memory(number: int, name: str, words: Sequence[str]) -> Check:
    """Ranks that may share a GPU; then their data goes through CPU memory."""
    return Check(f"{name}, {number} ranks", _job(number, words), 90)


def _ranks(
    number: int,
    name: str,
    devices: int,
    words: Sequence[str],
    limit: float = 90,
    flags: Sequence[str] = (),
) -> Check:
    """Ranks that use NCCL, also where they are more than GPUs."""
    if number <= devices:
        return Check(f"{name}, {number} ranks on NCCL", _job(number, words, flags), limit)
    words = (str(APART), *words)
    return Check(f"{name}, {number} ranks on NCCL, one card", _job(number, words, flags), limit)


def _of_a_hang(job: Check) -> Check:
    """The check's own script reads what its job says."""
    return Check(job.name, [sys.executable, *_own("does_nothing"), *job.command], job.limit)


def _job(number: int, words: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    return [*_RUN, str(number), *flags, sys.executable, *words]


def machine() -> dict[str, object]:
    """Return what the checks ran on."""
    import torch

    import sirtaki

    commit = HERE / "COMMIT"
    devices = range(torch.cuda.device_count())
    return {
        "sirtaki": sirtaki.__version__,
        "commit": commit.read_text().strip() if commit.exists() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "nccl": torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else None,
        "devices": [torch.cuda.get_device_name(number) for number in devices],
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def run_all(chosen: Sequence[Check], seconds: float, report: Path | None, about: object) -> int:
    """Run checks, report each at once; return how many did not pass."""
    end = time.monotonic() + seconds
    results: list[Result] = []
    width = max((len(check.name) for check in chosen), default=0)
    for check in chosen:
        left = end - time.monotonic()
        if left < check.limit:
            results.append(Result(check.name, "skipped", output=[f"{left:.0f} s were left"]))
        else:
            results.append(run_check(check, check.limit))
        result = results[-1]
        figures = "  ".join(f"{name} {value:g}" for name, value in result.figures.items())
        print(f"{check.name:{width}}  {result.outcome:9}  {result.seconds:6.1f} s  {figures}")
        print("".join(f"    {line}\n" for line in result.output), end="", flush=True)
        if report:
            content = {"machine": about, "checks": [asdict(result) for result in results]}
            unfinished = report.with_name(f"{report.name}.unfinished")
            unfinished.write_text(json.dumps(content, indent=1) + "\n")
            unfinished.replace(report)
    outcomes = [result.outcome for result in results]
    passed, tried = outcomes.count("passed"), len(results) - outcomes.count("not tried")
    print(f"{passed} of {tried} checks passed")
    return tried - passed


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--seconds", type=float, default=480, help="for all checks (480)")
    parser.add_argument("--only", default="", metavar="TEXT", help="checks whose name contains it")
    args = parser.parse_args()
    about = machine()
    devices = about["devices"]
    assert isinstance(devices, list)
    if not devices or not about["nccl"]:
        print("no GPU that PyTorch has NCCL for: nothing was checked")
        return NO_GPU
    print(json.dumps(about))
    chosen = [check for check in checks(len(devices)) if args.only in check.name]
    return 1 if run_all(chosen, args.seconds, args.json, about) else 0


if __name__ == "__main__":
    sys.exit(main())
