"""Nets of Caffe's: a training step beside PyTorch, a forward beside OpenCV, and building.

python benchmarks/caffe_step.py [--training]        (needs tools/requirements-caffe.txt)
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from caffe_peers import alexnet, hand_step, lenet, opencv_forward
from caffe_training import training as with_updates
from compiled_step import Timings, quantiles
from output import RESULTS, write_result
from targets import Check, at_most

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST, TRAIN, NetParameter
from sirtaki_caffe.proto.text import parse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sirtaki-caffe"))
from caffe_tests import zoo

OURS, BY_HAND, OPENCV = "Sirtaki", "PyTorch by hand", "OpenCV"
STEPS = {"LeNet": (zoo.lenet, lenet, 64, 1.15), "AlexNet": (zoo.alexnet, alexnet, 16, 1.10)}
DEPLOYS = {
    "LeNet": zoo.lenet,
    "AlexNet": zoo.alexnet,
    "GoogLeNet": zoo.googlenet,
    "ResNet-50": zoo.resnet50,
    "SqueezeNet": zoo.squeezenet,
}
DEPLOY_BATCH, MOST_OF_OPENCV = 8, 1.3
ZOO_SIZE, MOST_FOR_ZOO, MOST_FOR_RESNET152 = 300, 60.0, 2.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="of each pair (15)")
    parser.add_argument("--nets", type=int, default=ZOO_SIZE, help=f"that are built ({ZOO_SIZE})")
    parser.add_argument("--small", action="store_true", help="LeNet alone")
    parser.add_argument("--training", action="store_true", help="steps with updates alone")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    tables, checks = {}, []
    only = ["LeNet"] if args.small else None
    benchmark = "caffe_training" if args.training else "caffe_step"
    for name, timings, check in (
        with_updates(args.rounds, only, interleaved, (OURS, BY_HAND))
        if args.training
        else chain(
            training(args.rounds, only),
            deploying(args.rounds, only),
            building(args.nets, args.small),
        )
    ):
        tables[name] = timings
        checks.append(check)
    report(tables, checks)
    result = {
        "benchmark": benchmark,
        "command": shlex.join(["python", "benchmarks/caffe_step.py", *arguments]),
        "machine": facts,
        "cases": tables,
        "targets": [asdict(each) for each in checks],
    }
    write_result(Path(args.output) / f"{benchmark}.json", result)
    return 0


def training(rounds: int, only: Sequence[str] | None) -> Iterator[tuple[str, Timings, Check]]:
    """Forward and backward, on one thread and on two."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, (text, module, batch, most) in STEPS.items():
            if only and name not in only:
                continue
            net = Net(_message(text(batch=batch).text), phase=TRAIN, seed=1)
            net.forward(0, 0)
            contenders = {OURS: _step_of(net), BY_HAND: hand_step(module(), net)}
            timings, ratio = interleaved(contenders, rounds)
            title = f"{name}, step, batch {batch}, {threads} thread{'s' * (threads > 1)}"
            yield title, timings, at_most(f"{title}: of {BY_HAND}", most, ratio)
    torch.set_num_threads(1)


def deploying(rounds: int, only: Sequence[str] | None) -> Iterator[tuple[str, Timings, Check]]:
    """Forward of nets without losses, on one thread."""
    for name, net_of in DEPLOYS.items():
        if only and name not in only:
            continue
        text = net_of("deploy", DEPLOY_BATCH).text
        net = Net(_message(text), phase=TEST, seed=1)
        _set_statistics(net)
        net.blobs["data"].data.normal_(generator=torch.Generator().manual_seed(2))
        with tempfile.TemporaryDirectory() as folder:
            theirs = opencv_forward(text, net, Path(folder))
            with torch.no_grad():
                net.forward()
            (output,) = net.outputs
            np.testing.assert_allclose(
                net.blobs[output].data.ravel(), theirs(), rtol=1e-3, atol=1e-5
            )
            timings, ratio = interleaved({OURS: _forward_of(net), OPENCV: theirs}, rounds)
        title = f"{name}, forward, batch {DEPLOY_BATCH}"
        yield title, timings, at_most(f"{title}: of {OPENCV}", MOST_OF_OPENCV, ratio)


def building(count: int, small: bool) -> Iterator[tuple[str, Timings, Check]]:
    """Parsing and building of many nets, and of a deep one."""
    makers = [zoo.lenet] if small else [make for make, _ in zoo.NETS.values()]
    texts = [makers[i % len(makers)](batch=1 + i // len(makers)).text for i in range(count)]
    began = time.perf_counter()
    taken = [_built(text) for text in texts]
    total = time.perf_counter() - began
    title = f"{count} nets of a zoo, parsed and built"
    yield title, {"one": quantiles(taken)}, at_most(f"{title}: seconds", MOST_FOR_ZOO, total)
    if not small:
        deep = [_built(zoo.resnet152().text) for _ in range(3)]
        title = "ResNet-152, parsed and built"
        check = at_most(f"{title}: seconds", MOST_FOR_RESNET152, float(np.median(deep)))
        yield title, {"one": quantiles(deep)}, check


def interleaved(
    contenders: dict[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Timings, float]:
    """Seconds of each, run by turns, and the ratio of the first's median to the second's."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds + 2):
        order = list(contenders) if index % 2 else list(reversed(contenders))
        for name in order:
            began = clock()
            contenders[name]()
            if index > 1:
                seconds[name].append(clock() - began)
    first, second = (float(np.median(taken)) for taken in seconds.values())
    return {name: quantiles(taken) for name, taken in seconds.items()}, first / second


def report(tables: dict[str, Timings], checks: Sequence[Check]) -> None:
    rows = [["", "median", "10 %", "90 %"]]
    for name, timings in tables.items():
        for contender, taken in timings.items():
            shown = (show_seconds(taken[key]) for key in ("median", "p10", "p90"))
            rows.append([f"{name}: {contender}", *shown])
    print("\n".join([*aligned(rows), "", *(each.line() for each in checks)]))


def _message(text: str) -> object:
    return parse(text, NetParameter, "zoo")


def _set_statistics(net: Net) -> None:
    """Variances that keep values near 1; a BatchNorm begins with zeros."""
    for layer in net.layers:
        if layer.proto.type == "BatchNorm":
            layer.params[1].data.fill_(2)
            layer.params[2].data.fill_(1)


def _step_of(net: Net) -> Callable[[], None]:
    def step() -> None:
        net.clear_diffs()
        net.forward(1)
        net.backward()

    return step


def _forward_of(net: Net) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            net.forward()

    return forward


def _built(text: str) -> float:
    began = time.perf_counter()
    Net(_message(text), phase=TRAIN, seed=1)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
