"""`sirtaki doctor`: what works here, and why something does not."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import sirtaki
from sirtaki.launch.cores import binding
from sirtaki.launch.doctor import probe
from sirtaki.launch.doctor.probe import Finding
from sirtaki.launch.output.colours import in_colour_of_finding, takes_colours

_NOT_WORKING = 1
_Row = tuple[bool | None, str, str, str]


def main(arguments: Sequence[str]) -> int:
    """Print the report; returns 0, or 1 when the core library does not load."""
    args = make_parser().parse_args(arguments)
    report = examine()
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report, coloured=takes_colours(sys.stdout))
    return 0 if report["core"]["works"] else _NOT_WORKING


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki doctor`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki doctor",
        description="Show what works here, why something does not, and what to do.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def examine() -> dict[str, Any]:
    """Look at everything; returns what `--json` prints."""
    found = probe.probe_modules([probe.CORE_MODULE, *probe.FRAMEWORKS])
    core = found[probe.CORE_MODULE]
    model, features = probe.cpu()
    return {
        "version": sirtaki.__version__,
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "platform": platform.platform(),
        "cpu": {
            "model": model,
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "features": features,
            **_cores(),
        },
        "core": _plain(core),
        "frameworks": [_plain(found[name]) for name in probe.FRAMEWORKS],
        "backends": [_plain(finding) for finding in probe.backends(core)],
        "torch_distributed": _plain(probe.torch_distributed()),
        "scheduler": probe.schedulers(),
        "system": [_plain(finding) for finding in (*probe.system(), probe.shared_heap(core))],
    }


def _cores() -> dict[str, Any]:
    """What the ranks of a job on this machine share, and how two would."""
    found = binding.own_processors()
    shares = binding.shares_here(2, None, os.environ)
    return {
        "physical_cores": len(found.cores),
        "numa_nodes": len({core.node for core in found.cores}),
        "packages": len({core.package for core in found.cores}),
        "quota": found.quota,
        "two_ranks": [binding.describe_share(share, os.environ) for share in shares],
    }


def _plain(finding: Finding) -> dict[str, Any]:
    return dataclasses.asdict(finding)


def _sections(report: dict[str, Any]) -> list[tuple[str, list[_Row]]]:
    """Turn the report into headings with rows of (works or None, name, detail, fix)."""
    cpu = report["cpu"]
    scheduler = [_fact(name, value) for name, value in report["scheduler"].items()]
    python = report["python"]
    return [
        (
            "Sirtaki",
            [
                _fact("version", report["version"]),
                _fact("Python", f"{python['version']}, {python['executable']}"),
                _fact("platform", report["platform"]),
                _fact(
                    "CPU", f"{cpu['model']}, {cpu['usable_cores']} of {cpu['cores']} cores usable"
                ),
                _fact("CPU features", " ".join(cpu["features"]) or "none"),
                _fact(
                    "shared cores",
                    f"{cpu['physical_cores']} physical, NUMA nodes: {cpu['numa_nodes']}, packages: "
                    f"{cpu['packages']}, quota of CPU time: {cpu['quota'] or 'none'}",
                ),
                *(_fact(f"rank {rank} of 2", text) for rank, text in enumerate(cpu["two_ranks"])),
                _row(report["core"]),
            ],
        ),
        ("Frameworks", [_row(finding) for finding in report["frameworks"]]),
        (
            "Backends",
            [_row(finding) for finding in (*report["backends"], report["torch_distributed"])],
        ),
        ("Scheduler", scheduler or [_fact("none", "no variables of a job scheduler are set")]),
        ("System", [_row(finding) for finding in report["system"]]),
    ]


def _fact(name: str, value: str) -> _Row:
    return None, name, value, ""


def _row(finding: dict[str, Any]) -> _Row:
    return finding["works"], finding["name"], finding["detail"], finding["fix"]


def _mark(works: bool | None, coloured: bool) -> str:
    if works is None:
        return "   "
    mark = "[X]" if works else "[ ]"
    return in_colour_of_finding(works, mark) if coloured else mark


def _print(report: dict[str, Any], coloured: bool) -> None:
    for heading, rows in _sections(report):
        print(heading)
        for works, name, detail, fix in rows:
            print(f"  {_mark(works, coloured)} {name:14} {detail}")
            if fix:
                print(f"      {'':14} to mend it: {fix}")
