"""AlexNet trained by two processes: what their working together costs.

python benchmarks/caffe_processes.py        (needs tools/requirements-caffe.txt)
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from caffe_processes_rank import APART, BYTES, TOGETHER, measure
from output import RESULTS, write_result
from targets import Check

from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sirtaki-caffe"))
from caffe_tests import zoo

LEAST = 0.95


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16, help="images of each process (16)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (5)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    text = zoo.alexnet(batch=args.batch).text
    seconds = run(measure, (text, args.rounds), num_proc=2)[0]
    medians = {name: taken["median"] for name, taken in seconds.items()}
    efficiency = (medians[APART] + medians[BYTES]) / medians[TOGETHER]
    check = Check(
        f"two processes that {APART}, plus {BYTES}, of two that {TOGETHER}: at least {LEAST}",
        f"{efficiency:.2f}",
        efficiency >= LEAST,
    )
    rows = [["", "median", "10 %", "90 %"]]
    for name, taken in seconds.items():
        rows.append([name, *(show_seconds(taken[key]) for key in ("median", "p10", "p90"))])
    print("\n".join([*aligned(rows), "", check.line()]))
    result = {
        "benchmark": "caffe_processes",
        "command": shlex.join(["python", "benchmarks/caffe_processes.py", *arguments]),
        "machine": facts,
        "batch": args.batch,
        "seconds": seconds,
        "targets": [asdict(check)],
    }
    write_result(Path(args.output) / "caffe_processes.json", result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
