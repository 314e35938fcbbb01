"""`sirtaki doctor`: reports what works here, and why something does not."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sirtaki.doctor.examination import examine
from sirtaki.doctor.finding import ERROR, LEVELS, NOTE, OK
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.launch.flags.parser import add_hosts_and_ssh, add_interfaces
from sirtaki.launch.flags.settings import interface_names, resolve_start_timeout
from sirtaki.launch.hosts.slots import join_local, parse_hosts, ports_of, read_hostfile
from sirtaki.launch.output.destination import in_colour_of_finding, takes_colours
from sirtaki.launch.starters.ssh import Ssh
from sirtaki.rendezvous.words import printable

_NOT_WORKING = 1
_Row = tuple[bool | None, str, str, str]


def main(arguments: Sequence[str]) -> int:
    """Print the report.

    Returns 0; 1 when the core library does not load, or a host or the connection of two hosts does
    not work; 2 when the arguments are wrong.
    """
    args = make_parser().parse_args(arguments)
    coloured = takes_colours(sys.stdout)
    if args.hosts is None and args.hostfile is None:
        report = examine(args.quick)
        shown = [] if args.json else _sections(report)
        works = report["core"]["works"]
    else:
        try:
            report = _check_hosts(args)
        except LaunchError as error:
            return refused("sirtaki doctor", error, error.exit_code)
        shown = [] if args.json else _sections_of_hosts(report)
        works = all(finding["level"] != ERROR for finding in report["findings"])
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print(shown, coloured)
    return 0 if works else _NOT_WORKING


def _check_hosts(args: argparse.Namespace) -> dict[str, Any]:
    # Imported here, because most runs check a single host.
    from sirtaki.doctor.hosts.check import HostsPlan, check

    listed = parse_hosts(args.hosts) if args.hosts is not None else read_hostfile(args.hostfile)
    return check(
        HostsPlan(
            hosts=[host.name for host in join_local(listed)],
            ssh=Ssh(
                args.ssh_port,
                args.ssh_identity_file,
                args.remote_python or sys.executable,
                ports_of(listed),
            ),
            interfaces=interface_names(args.network_interfaces),
            start_seconds=resolve_start_timeout(args.start_timeout, os.environ),
            seconds=args.seconds,
            quick=args.quick,
        )
    )


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki doctor`."""
    parser = CommandParser(
        prog="sirtaki doctor",
        description="Check this machine, or with --hosts several hosts and the network between "
        "them, and say how to fix what does not work.",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, with a list `findings`"
    )
    parser.add_argument(
        "--quick", action="store_true", help="skip importing the frameworks, which takes longest"
    )
    group = parser.add_argument_group("several hosts, reached as horovodrun does")
    add_hosts_and_ssh(group, "the hosts")
    add_interfaces(group)
    group.add_argument(
        "--start-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="time for a host to answer (default: $HOROVOD_START_TIMEOUT or 30)",
    )
    group.add_argument(
        "--seconds",
        type=_seconds,
        default=0.25,
        help="how long to measure between two hosts, each way (default: 0.25)",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.01 <= seconds <= 60:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.01 to 60")
    return seconds


def _sections(report: dict[str, Any]) -> list[tuple[str, list[_Row]]]:
    """Convert the report to headings with rows of (works or None, name, detail, fix)."""
    cpu = report["cpu"]
    scheduler = [_fact(name, value) for name, value in report["scheduler"].items()]
    python = report["python"]
    sections = [
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
    shown = {name for _, rows in sections for _, name, _, _ in rows}
    rest = [each for each in report["findings"] if each["check"] not in shown]
    return [*sections, ("Limits and network", [_judgement(each) for each in rest])]


def _sections_of_hosts(report: dict[str, Any]) -> list[tuple[str, list[_Row]]]:
    """Convert a report of several hosts to headings with rows; good findings are only counted."""
    by_host: dict[str, list[Mapping[str, str]]] = {name: [] for name in report["hosts"]}
    between = []
    for finding in report["findings"]:
        own = by_host.get(finding["host"])
        if own is None or finding["check"] == "clock":
            between.append(finding)
        else:
            own.append(finding)
    sections = []
    for name, found in by_host.items():
        wrong = sorted(
            (each for each in found if each["level"] != OK),
            key=lambda each: -LEVELS.index(each["level"]),
        )
        told = report["hosts"][name]
        addresses = " ".join(told["addresses"])
        rows = [
            _fact("Sirtaki", f"{told['version']}, Python {told['python']['version']}"),
            _fact("addresses", f"{addresses} (these are what a job uses)"),
            _fact("fine", f"{len(found) - len(wrong)} of {len(found)} checks"),
        ]
        sections.append((f"Host {name}", [*rows, *map(_judgement, wrong)]))
    rows = [_between(finding) for finding in between]
    return [*sections, ("Between hosts", rows or [_fact("none", "there is only one host")])]


def _between(finding: Mapping[str, str]) -> _Row:
    works, check, what, fix = _judgement(finding)
    return works, check, f"{finding['host']}: {what}" if finding["host"] else what, fix


def _fact(name: str, value: str) -> _Row:
    return None, name, value, ""


def _row(finding: dict[str, Any]) -> _Row:
    return finding["works"], finding["name"], finding["detail"], finding["fix"]


def _judgement(finding: Mapping[str, str]) -> _Row:
    works = None if finding["level"] == NOTE else finding["level"] == OK
    return works, finding["check"], finding["what"], finding["fix"]


def _mark(works: bool | None, coloured: bool) -> str:
    if works is None:
        return "   "
    mark = "[X]" if works else "[ ]"
    return in_colour_of_finding(works, mark) if coloured else mark


def _print(sections: Sequence[tuple[str, list[_Row]]], coloured: bool) -> None:
    for heading, rows in sections:
        print(heading)
        for works, name, detail, fix in rows:
            # Text of other hosts may contain control characters.
            print(f"  {_mark(works, coloured)} {name:16} {printable(detail)}")
            if fix:
                print(f"      {'':16} fix: {fix}")
