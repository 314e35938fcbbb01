"""The results as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import balance
import compressed_step
import goodput
import low_communication
import predict
import small_sums
import start
from control_plane import rows as control_plane_rows
from refused import REFUSED
from torch_distributed import rows

from sirtaki.observe.measure import show_bytes, show_cells, show_rate, show_seconds

Result = dict[str, Any]


def write_summary(folder: Path) -> Path:
    """Write README.md from the JSON files of the folder; return its path."""
    reductions = [json.loads(path.read_text()) for path in sorted(folder.glob("allreduce-*.json"))]
    lines = ["# Results", "", "Written by `make bench`. [What the columns mean](../README.md).", ""]
    for result in reductions:
        lines += _allreduce(result)
    training = folder / "train_step.json"
    if training.exists():
        lines += _train_step(json.loads(training.read_text()))
    pairs = folder / "pairs.json"
    if pairs.exists():
        lines += _pairs(json.loads(pairs.read_text()))
    programs = folder / "torch_distributed.json"
    if programs.exists():
        lines += _torch_distributed(json.loads(programs.read_text()))
    for framework in ("JAX", "TensorFlow"):
        compiled = folder / f"{framework.lower()}_step.json"
        if compiled.exists():
            lines += _compiled_step(framework, json.loads(compiled.read_text()))
    overheads = folder / "overheads.json"
    if overheads.exists():
        lines += _tables("Overheads", json.loads(overheads.read_text()))
    exact = folder / "reproducible.json"
    if exact.exists():
        lines += _tables("The same bits on any number of ranks", json.loads(exact.read_text()))
    shares = folder / "balance.json"
    if shares.exists():
        lines += _balance(json.loads(shares.read_text()))
    faults = folder / "goodput.json"
    if faults.exists():
        lines += _goodput(json.loads(faults.read_text()))
    control_plane = folder / "control_plane.json"
    if control_plane.exists():
        lines += _control_plane(json.loads(control_plane.read_text()))
    starting = folder / "start.json"
    if starting.exists():
        lines += _start(json.loads(starting.read_text()))
    hosts = folder / "hosts.json"
    if hosts.exists():
        lines += _hosts(json.loads(hosts.read_text()))
    compressed = folder / "compressed_step.json"
    if compressed.exists():
        lines += _compressed_step(json.loads(compressed.read_text()))
    forecasts = folder / "predict.json"
    if forecasts.exists():
        lines += _predict(json.loads(forecasts.read_text()))
    rare = folder / "low_communication.json"
    if rare.exists():
        lines += _low_communication(json.loads(rare.read_text()))
    small = folder / "small_sums.json"
    if small.exists():
        lines += _small_sums(json.loads(small.read_text()))
    path = folder / "README.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def _allreduce(result: Result) -> list[str]:
    lines = [f"## Allreduce, {result['ranks']} ranks: median time, GB/s", ""]
    lines += [*_sums(result["timings"]), ""]
    # Older results have no such table.
    if REFUSED in result:
        lines += [f"{REFUSED}:", "", *_sums(result[REFUSED]), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _sums(by_size: Result) -> list[str]:
    timings = {int(size): by_name for size, by_name in by_size.items()}
    names = list(next(iter(timings.values())))
    rows = [["Bytes", *names]]
    for size, by_name in timings.items():
        cells = [", ".join(show_cells(size, by_name.get(name))) for name in names]
        rows.append([show_bytes(size), *cells])
    return _markdown(rows)


def _control_plane(result: Result) -> list[str]:
    table = _markdown(control_plane_rows(result["worlds"]))
    title = "## Control plane: agreeing on one operation, 8 simulated ranks a host"
    return [title, "", *table, "", *_targets(result), "", *_origin(result)]


def _train_step(result: Result) -> list[str]:
    lines = [f"## Training step, {result['ranks']} ranks", ""]
    for name, case in result["cases"].items():
        for memory, seconds in case["seconds"].items():
            rows = [["", "Median", "10 %", "90 %", "Efficiency"]]
            for contender, quantiles in seconds.items():
                shown = [show_seconds(quantiles[key]) for key in ("median", "p10", "p90")]
                efficiency = case["efficiency"][memory].get(contender)
                rows.append([contender, *shown, "" if efficiency is None else f"{efficiency:.2f}"])
            title = f"{name}, {case['parameters'] / 1e6:.1f} M parameters, {memory}:"
            lines += [title, "", *_markdown(rows), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _compiled_step(framework: str, result: Result) -> list[str]:
    rows = [["", "Median", "10 %", "90 %"]]
    for name, taken in result["timings"].items():
        rows.append([name, *(show_seconds(taken[key]) for key in ("median", "p10", "p90"))])
    title = f"## {framework}, 2 ranks: 3 layers of {result['width']}x{result['width']}"
    return [title, "", *_markdown(rows), "", *_targets(result), "", *_origin(result)]


def _pairs(result: Result) -> list[str]:
    lines = []
    for title, timings in result["cases"].items():
        rows = [["Bytes", *next(iter(timings.values()))]]
        for size, by_name in timings.items():
            medians = [taken["median"] for taken in by_name.values()]
            cells = [f"{show_seconds(m)}, {show_rate(2 * int(size), m)}" for m in medians]
            rows.append([show_bytes(int(size)), *cells])
        lines += [f"## Messages there and back, {title}: median time, GB/s", ""]
        lines += [*_markdown(rows), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _torch_distributed(result: Result) -> list[str]:
    title = f"## torch.distributed, {result['ranks']} ranks"
    return [
        title,
        "",
        *_markdown(rows(result["cases"])),
        "",
        *_targets(result),
        "",
        *_origin(result),
    ]


def _hosts(result: Result) -> list[str]:
    lines = ["## Several hosts", ""]
    for title, case in result["cases"].items():
        rows = [["", "Bytes", "Median"]]
        for size, by_name in case.get("sums", {}).items():
            for name, taken in by_name.items():
                rows.append([name, show_bytes(int(size)), show_seconds(taken["median"])])
        rows += [[n, "", show_seconds(t["median"])] for n, t in case.get("steps", {}).items()]
        lines += [f"{title[0].upper()}{title[1:]}:", "", *_markdown(rows), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _start(result: Result) -> list[str]:
    lines = ["## Starting, ending and watching a job", ""]
    for title, case in result["cases"].items():
        rows = [["", ""], *([name, start.shown(title, value)] for name, value in case.items())]
        lines += [f"{title[0].upper()}{title[1:]}:", "", *_markdown(rows), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _compressed_step(result: Result) -> list[str]:
    lines = ["## Compressed gradients", ""]
    for title, case in result["cases"].items():
        lines += [f"{title}, {case['parameters']} parameters, {case['steps']} steps:", ""]
        lines += [*_markdown([compressed_step.HEADER, *compressed_step.rows(case)]), ""]
    if result["machine"]["load"] > result["machine"]["cores"]:
        lines += ["The machine was not quiet: of times only the ratios count.", ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _predict(result: Result) -> list[str]:
    table = _markdown([predict.HEADER, *predict.rows(result["cases"])])
    title = "## Steps that were predicted from a trace of two ranks on one host"
    return [title, "", *table, "", *_targets(result), "", *_origin(result)]


def _low_communication(result: Result) -> list[str]:
    chosen = ", ".join(f"{k}={v}" for k, v in result["configuration"]["DiLoCo"].items())
    lines = ["## Rare exchanges", "", f"`hvd.DiLoCo` with {chosen}.", ""]
    for title, table in low_communication.tables(result["cases"]).items():
        lines += [f"{title}:", "", *_markdown(table), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _small_sums(result: Result) -> list[str]:
    late = show_seconds(result["latency_seconds"])
    lines = [f"## Small sums between hosts, {late} one way", ""]
    lines += [*_markdown(small_sums.rows(result["cases"])), ""]
    return [*lines, *_targets(result), "", *_origin(result)]


def _targets(result: Result) -> list[str]:
    return [
        f"- {'met' if target['met'] else '**missed**'}: {target['target']}: {target['measured']}"
        for target in result["targets"]
    ]


def _goodput(result: Result) -> list[str]:
    title = "## 8 processes on 3 virtual hosts, while processes, hosts and links fail"
    table = _markdown(goodput.rows(result["cases"]))
    return [title, "", *table, "", *_targets(result), "", *_origin(result)]


def _balance(result: Result) -> list[str]:
    lines = ["## Two ranks, one of which has half of its core", ""]
    return [*lines, *_markdown(balance.rows(result)), "", *_origin(result)]


def _tables(heading: str, result: Result) -> list[str]:
    lines = [f"## {heading}", ""]
    for title, table in result["tables"].items():
        rows = [["", "Median"], *([name, show_seconds(t["median"])] for name, t in table.items())]
        lines += [f"{title[0].upper()}{title[1:]}:", "", *_markdown(rows), ""]
    return [*lines, *_origin(result)]


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    header, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [header, "|" + "---|" * len(rows[0]), *body]


def _origin(result: Result) -> list[str]:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [
        f"`{result['command']}` on {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['cache_bytes'] / 2**20:.0f} MiB cache, Linux {machine['kernel']}, "
        f"load {machine['load']} before, Python {machine['python']}, {versions}.",
        "",
    ]
