"""`caffe time`."""

from __future__ import annotations

import time

import torch

from sirtaki_caffe.commands import devices
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.schema import TEST, TRAIN
from sirtaki_caffe.proto.text import read_net

_WARM_UP = 5
_PHASES = {"": TRAIN, "TRAIN": TRAIN, "TEST": TEST}


def run(flags: Flags, log: Log) -> int:
    """Measure a net, layer by layer, in each process separately; return the exit code.

    Raises:
        CaffeError: A file or a flag cannot be used.
    """
    if not flags.model:
        raise CaffeError("Need a model definition to time: --model=FILE")
    if flags.phase not in _PHASES:
        raise CaffeError(f"--phase={flags.phase}: must be TRAIN or TEST")
    device = devices.device(flags, Processes(), log)
    net = Net(
        read_net(flags.model),
        phase=_PHASES[flags.phase],
        level=flags.level,
        stages=[stage for stage in flags.stage.split(",") if stage],
        engine=flags.engine,
        device=device,
        log=log.info,
        warn=log.warning,
        file=flags.model,
    )
    try:
        with torch.set_grad_enabled(not flags.forward_only):
            _begin(net, flags, log)
            Benchmark(net, flags.forward_only, log).run(flags.iterations)
    finally:
        net.close()
    return 0


def _begin(net: Net, flags: Flags, log: Log) -> None:
    log.info("caffe.cpp", "Performing Forward")
    log.info("caffe.cpp", f"Initial loss: {float(net.forward()):g}")
    if not flags.forward_only:
        log.info("caffe.cpp", "Performing Backward")
        net.backward()
    for _ in range(_WARM_UP):
        net.forward()
        if not flags.forward_only:
            net.backward()


class Benchmark:
    """Times of a net's layers.

    Args:
        net: The net.
        forward_only: Whether to omit the backward pass.
        log: The log for the times.
    """

    def __init__(self, net: Net, forward_only: bool, log: Log) -> None:
        self._net = net
        self._forward_only = forward_only
        self._log = log
        count = len(net.layers)
        self._forward = [0.0] * count
        self._backward = [0.0] * count

    def run(self, iterations: int) -> None:
        """Measure the given number of passes and log the means, in milliseconds."""
        say = self._say
        say("*** Benchmark begins ***")
        say(f"Testing for {iterations} iterations.")
        start = time.perf_counter()
        for number in range(iterations):
            begin = time.perf_counter()
            self._pass()
            word = "forward" if self._forward_only else "forward-backward"
            say(f"Iteration: {number + 1} {word} time: {_ms(time.perf_counter() - begin):g} ms.")
        total = time.perf_counter() - start
        each = max(iterations, 1)
        say("Average time per layer: ")
        for index, layer in enumerate(self._net.layers):
            say(f"{layer.name:>10}\tforward: {_ms(self._forward[index]) / each:g} ms.")
            if not self._forward_only:
                say(f"{layer.name:>10}\tbackward: {_ms(self._backward[index]) / each:g} ms.")
        say(f"Average Forward pass: {_ms(sum(self._forward)) / each:g} ms.")
        if not self._forward_only:
            say(f"Average Backward pass: {_ms(sum(self._backward)) / each:g} ms.")
            say(f"Average Forward-Backward: {_ms(total) / each:g} ms.")
        say(f"Total Time: {_ms(total):g} ms.")
        say("*** Benchmark ends ***")

    def _pass(self) -> None:
        net = self._net
        net.clear_diffs()
        for index in range(len(net.layers)):
            begin = time.perf_counter()
            net.forward(index, index)
            self._forward[index] += self._since(begin)
        if self._forward_only:
            return
        for index in reversed(range(len(net.layers))):
            begin = time.perf_counter()
            net.backward(index, index)
            self._backward[index] += self._since(begin)

    def _since(self, begin: float) -> float:
        if self._net.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    def _say(self, text: str) -> None:
        self._log.info("caffe.cpp", text)


def _ms(seconds: float) -> float:
    return seconds * 1e3
