"""The lines of `debug_info`: mean absolute values of a net's data."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sirtaki_caffe.layers.base import Layer, Param
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.solver.report import Log

AfterLayer = Callable[[Layer, list[Param]], None] | None


def _mean(values: torch.Tensor | None) -> str:
    if values is None or not values.numel():
        return "0"
    return f"{float(values.detach().abs().mean()):g}"


def forward_backward(net: Net, log: Log, after_layer: AfterLayer) -> float:
    """Run a forward and a backward pass and log each layer's values; return the loss."""
    loss = 0.0
    for index, step in enumerate(net.steps):
        loss += float(net.forward(index, index))
        for top in step.tops:
            say(log, "Forward", step.layer, f"top blob {top.name} data: {_mean(top.data)}")
        for i, param in enumerate(step.layer.params):
            say(log, "Forward", step.layer, f"param blob {i} data: {_mean(param.data)}")
    for index, step in reversed(list(enumerate(net.steps))):
        net.backward(index, index, after_layer)
        if not step.needs_backward:
            continue
        for bottom, wants in zip(step.bottoms, step.wants, strict=True):
            if wants:
                words = f"bottom blob {bottom.name} diff: {_mean(bottom.diff)}"
                say(log, "Backward", step.layer, words)
        for i, param in enumerate(step.layer.params):
            if param.learns:
                words = f"param blob {i} diff: {_mean(param.owner.diff)}"
                say(log, "Backward", step.layer, words)
    _show_norms(net, log)
    return loss


def _show_norms(net: Net, log: Log) -> None:
    data = [p.data.detach() for p in net.learnable]
    diffs = [p.diff for p in net.learnable if p.diff is not None]
    sums = [sum(float(t.abs().sum()) for t in each) for each in (data, diffs)]
    roots = [sum(float(t.double().pow(2).sum()) for t in each) ** 0.5 for each in (data, diffs)]
    log(
        "net.cpp",
        f"    [Backward] All net params (data, diff): L1 norm = ({sums[0]:g}, {sums[1]:g}); "
        f"L2 norm = ({roots[0]:g}, {roots[1]:g})",
    )


def show_update(net: Net, log: Log) -> None:
    """Log the values about to be subtracted from each param."""
    shown: set[int] = set()
    for layer in net.layers:
        for i, param in enumerate(layer.params):
            owner = param.owner
            if owner.learns and id(owner) not in shown:
                shown.add(id(owner))
                numbers = f"data: {_mean(owner.data)}; diff: {_mean(owner.diff)}"
                say(log, "Update", layer, f"param {i} {numbers}")


def say(log: Log, what: str, layer: Layer, words: str) -> None:
    """Write a line about a layer."""
    log("net.cpp", f"    [{what}] Layer {layer.name}, {words}")
