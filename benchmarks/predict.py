"""What `sirtaki predict` says of virtual hosts beside what they do.

python benchmarks/predict.py        (needs root, iproute2 and an sshd)
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hosts import HERE, SSH_PORT, bed_of, launch, reason_to_skip
from output import RESULTS, write_result
from predict_rank import COMPUTING, WAITING, go_first
from targets import check_predict

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_RANK = (sys.executable, str(HERE / "predict_rank.py"))
_SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")
_SYNC_EVERY = 10
_LIMIT = 300.0
_TRACED_SECONDS = "6"
_LATE, _LARGE, _SMALL = WAITING
# A model, the rate of the links as tc and `sirtaki predict` have it, and numbers of hosts.
CASES = (
    (_LATE, "10gbit", (2, 4)),
    (_LARGE, "1gbit", (2, 4, 8)),
    (_SMALL, "100mbit", (2, 4, 8, 16)),
    (COMPUTING, "1gbit", (2,)),
)
HEADER = ["", "exchange", "measured", "predicted", "error", "bound by"]

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=9, help="steps of an exchange (9)")
    parser.add_argument("--only", default="", help="only links of this rate")
    parser.add_argument("--output", default=str(RESULTS), help="folder of predict.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no bed of virtual hosts here: {reason}")
    facts = machine_facts()
    go_first()  # the launcher too
    cases: Result = {}
    for model, rate, hosts in CASES:
        if args.only in rate:
            cases |= measure(model, rate, hosts, args.steps)
    checks = check_predict(cases)
    print("\n".join(check.line() for check in checks))
    if args.only:
        return 0
    result = {
        "benchmark": "predict",
        "command": shlex.join(["python", "benchmarks/predict.py", *arguments]),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "predict.json", result)
    return 0


def measure(model: str, rate: str, hosts: Sequence[int], steps: int) -> Result:
    """Trace two ranks on this host; then predict each number of hosts, and run there."""
    cases: Result = {}
    with tempfile.TemporaryDirectory() as name:
        trace = record(model, Path(name))
        for number in hosts:
            with bed_of(number, rate) as (bed, folder):
                round_trip = _round_trip(bed)
                launch(bed, 1, *_RANK, model, str(folder), str(_SYNC_EVERY), str(steps))
                taken = json.loads((folder / "result.json").read_text())
            case = {
                "round_trip": round_trip,
                "load": os.getloadavg()[0],
                "exchanges": dict(_beside(predicted(trace, number, rate, round_trip), taken)),
            }
            cases |= (found := {f"{model}, {number} hosts at {rate}": case})
            print("\n".join(aligned(rows(found))), flush=True)
    return cases


def record(model: str, folder: Path) -> Path:
    """Return a trace of two ranks on this host."""
    run, path = folder / "run", folder / "trace.json.gz"
    run.mkdir(mode=0o700)
    environment = {**os.environ, "SIRTAKI_RUNTIME_DIR": str(run), "OMP_NUM_THREADS": "1"}
    command = (*_SIRTAKI, "run", "-np", "2", *_RANK, model)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
        assert job.stdout is not None
        for _ in range(2):
            assert "ready" in job.stdout.readline(), "the job ended before it could be traced"
        start = (*_SIRTAKI, "trace", "start", "-o", str(path), "--seconds", _TRACED_SECONDS)
        subprocess.run(start, env=environment, check=True, timeout=_LIMIT)
        job.terminate()
    return path


def _round_trip(bed: Any) -> float:
    """Return the seconds of a small message and its answer, as `sirtaki doctor` measures them."""
    names = ",".join(host.address for host in bed.hosts[:2])
    flags = ("--hosts", names, "-p", str(SSH_PORT), "--quick", "--seconds", "0.05", "--json")
    told = json.loads(bed.hosts[0].run(*_SIRTAKI, "doctor", *flags).stdout)
    return float(told["pairs"][0]["latency"])


def predicted(trace: Path, hosts: int, rate: str, round_trip: float) -> list[Result]:
    """Return the forecasts; the hosts share the cores of this machine."""
    cores = len(os.sched_getaffinity(0)) / hosts
    flags = ["--hosts", str(hosts), "--link", f"{rate},{round_trip * 1e6:.0f}us", "--json"]
    flags += ["--ranks", "1", "--cores", str(cores), "--sync-every", str(_SYNC_EVERY)]
    command = (*_SIRTAKI, "predict", str(trace), *flags)
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT)
    forecasts: list[Result] = json.loads(done.stdout)["forecasts"]
    return forecasts


def _beside(
    forecasts: Sequence[Result], taken: Mapping[str, float]
) -> Iterator[tuple[str, Result]]:
    for one in forecasts:
        measured = taken[one["exchange"]]
        yield (
            one["exchange"],
            {
                "measured": measured,
                "predicted": one["step"],
                "error": abs(one["step"] / measured - 1),
                "bound": one["bound"],
            },
        )


def rows(cases: Result) -> list[list[str]]:
    """Return a row for each exchange of each case."""
    return [
        [
            title,
            exchange,
            show_seconds(one["measured"]),
            show_seconds(one["predicted"]),
            f"{one['error']:.1%}",
            one["bound"],
        ]
        for title, case in cases.items()
        for exchange, one in case["exchanges"].items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
