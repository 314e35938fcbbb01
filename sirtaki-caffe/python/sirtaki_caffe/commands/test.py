"""`caffe test`."""

from __future__ import annotations

import torch

from sirtaki_caffe.commands import devices, terminal
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import read_weights
from sirtaki_caffe.solver.detection import Detections, check_outputs, precision_lines
from sirtaki_caffe.solver.evaluation import Sums, own_batches
from sirtaki_caffe.solver.report import tail


def run(flags: Flags, log: Log) -> int:
    """Score a net, with its batches divided among the processes; return the exit code.

    Raises:
        CaffeError: A file or a flag cannot be used.
    """
    if not flags.model:
        raise CaffeError("Need a model definition to score: --model=FILE")
    if not flags.weights:
        raise CaffeError("Need model weights to score: --weights=FILE")
    processes = Processes.join()
    device = devices.device(flags, processes, log)
    net = Net(
        read_net(flags.model),
        phase=TEST,
        level=flags.level,
        stages=[stage for stage in flags.stage.split(",") if stage],
        world=processes.world,
        engine=flags.engine,
        shared_seed=processes.seed(-1),
        device=device,
        log=log.info,
        warn=log.warning,
        file=flags.model,
    )
    if flags.detection:
        check_outputs(net)
    try:
        for path in flags.weights.split(","):
            net.load(read_weights(path), log.info)
        if not flags.sampling:
            _score(net, flags, processes, log)
    finally:
        net.close()
    return 0


def _score(net: Net, flags: Flags, processes: Processes, log: Log) -> None:
    log.info("caffe.cpp", f"Running for {flags.iterations} iterations.")
    sums = Sums(net)
    found = {name: Detections() for name in net.outputs if flags.detection}
    done = 0
    size = processes.size
    with terminal.watched(flags.sigint_effect, flags.sighup_effect) as requests, torch.no_grad():
        for number in range(own_batches(flags.iterations, 0, size)):
            if processes.sum([float(requests().stop)], "stop")[0]:
                break
            if number >= own_batches(flags.iterations, processes.rank, size):
                continue
            loss = float(net.forward())
            done += 1
            for name, each in found.items():
                each.add(net.blobs[name].data.cpu().numpy(), number, processes.rank)
            if found:
                continue
            row = sums.add(loss)
            for name, values in zip(net.outputs, sums.split(row), strict=True):
                for value in values:
                    log.info("caffe.cpp", f"Batch {number * size}, {name} = {value:g}")
    if found:
        _show_precisions(found, processes, log)
        return
    *totals, count = processes.sum([*sums.numbers, float(done)], "score")
    means = [total / count if count else float("nan") for total in totals]
    log.info("caffe.cpp", f"Loss: {means[0]:g}")
    for name, values in zip(net.outputs, sums.split(means), strict=True):
        for value in values:
            weight = net.loss_weights.get(name, 0.0)
            log.info("caffe.cpp", f"{name} = {value:g}{tail(name, value, weight)}")


def _show_precisions(found: dict[str, Detections], processes: Processes, log: Log) -> None:
    for name, each in found.items():
        each.join(processes.gather(each, f"detections.{name}"))

    def missing(label: int) -> None:
        log.warning("solver.cpp", f"Missing true_pos for label: {label}")

    for line in precision_lines(found, "11point", missing):
        log.info("caffe.cpp", line)
