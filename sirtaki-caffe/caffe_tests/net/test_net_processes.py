"""Nets of several processes: their mean gradient is that of one net with the whole batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from caffe_tests.nets import build, inputs
from sirtaki_caffe.layers.base import World
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST

ITEMS = 12
PYTHON = 'python_param { module: "caffe_tests.layers.python_layers" layer: "%s" }'


def layer(kind: str, bottoms: str, top: str, more: str = "") -> str:
    named = " ".join(f'bottom: "{name}"' for name in bottoms.split())
    return f'layer {{ name: "{top}" type: "{kind}" {named} top: "{top}" {more} }}\n'


def reduction(operation: str, axis: int = 0, more: str = "", bottom: str = "scores") -> str:
    fields = f"reduction_param {{ operation: {operation} axis: {axis} coeff: 0.3 }}"
    return layer("Reduction", bottom, f"{operation}{axis}", f"{fields} {more}")


def softmax(fields: str = "", bottoms: str = "scores label", more: str = "loss_weight: 1") -> str:
    return layer("SoftmaxWithLoss", bottoms, "softmax", f"loss_param {{ {fields} }} {more}")


PRODUCT = layer("InnerProduct", "data", "scores", "inner_product_param { num_output: 3 }")
EUCLIDEAN = layer("EuclideanLoss", "scores target", "euclidean", "loss_weight: 0")
SUM = reduction("SUMSQ")
BOTH = EUCLIDEAN + SUM
COUNTED = "loss_weight: 1"
PARAMETER = layer("Parameter", "", "own", "parameter_param { shape { dim: 3 dim: 2 } }")
FILTERED = (
    'layer { name: "chosen" type: "Filter" bottom: "scores" bottom: "target" bottom: "label" '
    'bottom: "selector" top: "some" top: "wanted" top: "classes" }\n'
)

LOSSES = {
    # Sums, made by layers that are no losses.
    **{f"Reduction {op}": reduction(op, more=COUNTED) for op in ("SUM", "ASUM", "SUMSQ")},
    "Reduction MEAN": reduction("MEAN", more=COUNTED),
    "Reduction of each item": reduction("SUMSQ", 1, COUNTED),
    "mean of each item": reduction("MEAN", -1, COUNTED),
    "loss_weight of any top": layer("Sigmoid", "scores", "y", "loss_weight: 0.5"),
    "loss_weight of a blob that others read": layer("Sigmoid", "scores", "y", "loss_weight: 0.5")
    + layer("EuclideanLoss", "y target", "loss"),
    # Losses, by what they are divided by.
    **{
        f"normalization {mode}{ignored}": softmax(f"normalization: {mode} {ignored}")
        for mode in ("VALID", "FULL", "BATCH_SIZE", "NONE")
        for ignored in ("", " ignore_label: 1")
    },
    "weights of labels": softmax(bottoms="scores label weight"),
    "SigmoidCrossEntropyLoss": layer("SigmoidCrossEntropyLoss", "scores target", "loss"),
    "HingeLoss": layer("HingeLoss", "scores label", "loss"),
    "ContrastiveLoss": layer("ContrastiveLoss", "scores target label", "loss"),
    "SmoothL1Loss": layer("SmoothL1Loss", "scores target", "loss", "loss_weight: 2"),
    "SmoothL1LossOHEM": layer("SmoothL1LossOHEM", "scores target", "loss"),
    "SoftmaxWithLossOHEM": layer("SoftmaxWithLossOHEM", "scores label", "loss"),
    "MultinomialLogisticLoss": layer("Softmax", "scores", "p")
    + layer("MultinomialLogisticLoss", "p label", "loss"),
    # Items that are chosen, so that processes have different numbers of them.
    "SoftmaxWithLoss of chosen items": FILTERED
    + softmax("", "some classes", "propagate_down: true propagate_down: false"),
    "EuclideanLoss of chosen items": FILTERED + layer("EuclideanLoss", "some wanted", "loss"),
    "mean of chosen items": FILTERED + reduction("MEAN", 0, COUNTED, "some"),
    "sum of chosen items": FILTERED + reduction("SUM", 0, COUNTED, "some"),
    # Losses that are put together.
    "mean and sum": BOTH + layer("Eltwise", "euclidean SUMSQ0", "loss", COUNTED),
    "a sum of halves and a mean": BOTH
    + layer("Power", "SUMSQ0", "half", "power_param { scale: 0.5 shift: 3 }")
    + layer("Eltwise", "half euclidean", "loss", "eltwise_param { coeff: 2 coeff: 3 } " + COUNTED),
    "root of a mean": EUCLIDEAN
    + layer("Power", "euclidean", "root", "power_param { power: 0.5 } " + COUNTED),
    "product of a mean and a sum": BOTH
    + layer("Eltwise", "euclidean SUMSQ0", "loss", "eltwise_param { operation: PROD } " + COUNTED),
    "each item by the mean": EUCLIDEAN
    + layer("Scale", "scores euclidean", "y", "scale_param { axis: 0 } " + COUNTED),
    # Losses without items.
    "params alone": PARAMETER + reduction("SUMSQ", 0, COUNTED, "own"),
    "params of any top": PARAMETER + layer("Sigmoid", "own", "y", COUNTED),
    # Layers of the user's.
    "Python, a mean": layer("Python", "scores target", "mine", PYTHON % "Euclidean" + COUNTED),
    "Python, a mean in a sum": SUM
    + layer("Python", "scores target", "mine", PYTHON % "Euclidean")
    + layer("Reshape", "SUMSQ0", "one", "reshape_param { shape { dim: 1 } }")
    + layer("Eltwise", "one mine", "loss", COUNTED),
}


class Processes:
    """Processes that are threads, and meet to find the means of tensors.

    Args:
        size: How many.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=30)
        self._given: list[tuple[str, torch.Tensor] | None] = [None] * size

    def world(self, rank: int) -> World:
        def mean(value: torch.Tensor, name: str) -> torch.Tensor:
            self._given[rank] = (name, value.detach())
            self._barrier.wait()
            given = [each for each in self._given if each is not None]
            self._barrier.wait()
            assert {each for each, _ in given} == {name}
            return torch.stack([value for _, value in given]).mean(0)

        return World(rank, self.size, mean)

    def run(self, work: Callable[[int], None]) -> None:
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                work(rank)
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def made(losses: str, items: int, world: World) -> Net:
    data = ("data", (items, 4), "target", (items, 3), "label", (items,), "weight", (items,))
    text = inputs(*data, "selector", (items,)) + PRODUCT + losses
    return build(text, world=world)


def trained(net: Net, part: slice) -> tuple[float, list[torch.Tensor]]:
    """The loss and the gradients of some of the items."""
    random = np.random.default_rng(5)
    values = {
        "data": random.standard_normal((ITEMS, 4)),
        "target": random.standard_normal((ITEMS, 3)),
        "label": random.integers(0, 3, ITEMS),
        "weight": random.uniform(0.5, 2, ITEMS),
        "selector": np.array([1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1]),
    }
    for name, array in values.items():
        net.blobs[name].data.copy_(torch.tensor(array[part]))
    with torch.no_grad():
        for param in net.learnable:
            param.data.copy_(torch.from_numpy(random.standard_normal(param.data.shape)))
    loss = float(net.forward())
    net.backward()
    return loss, [torch.zeros(()) if p.diff is None else p.diff for p in net.learnable]


def together(losses: str, size: int) -> tuple[float, Sequence[torch.Tensor]]:
    """The means of the losses and of the gradients of several processes."""
    processes = Processes(size)
    nets = [made(losses, ITEMS // size, processes.world(rank)) for rank in range(size)]
    found: list[tuple[float, list[torch.Tensor]]] = [(0.0, [])] * size

    def work(rank: int) -> None:
        part = slice(rank * ITEMS // size, (rank + 1) * ITEMS // size)
        found[rank] = trained(nets[rank], part)

    processes.run(work)
    gradients = zip(*(gradients for _, gradients in found), strict=True)
    return sum(loss for loss, _ in found) / size, [torch.stack(each).mean(0) for each in gradients]


@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES.keys())
def test_the_mean_over_processes_is_that_of_the_whole_batch(losses: str) -> None:
    loss, gradients = trained(made(losses, ITEMS, World()), slice(None))
    mean_loss, mean_gradients = together(losses, 2)
    assert any(gradient.any() for gradient in gradients)
    assert mean_loss == pytest.approx(loss, rel=1e-12)
    for mean, gradient in zip(mean_gradients, gradients, strict=True):
        torch.testing.assert_close(mean, gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("fields", ["", "top_k: 2 ignore_label: 1"])
@pytest.mark.parametrize("chosen", ["target label", "wanted classes"])
def test_the_mean_accuracy_in_training_is_that_of_the_whole_batch(chosen: str, fields: str) -> None:
    text = FILTERED.replace('bottom: "scores"', "").replace('top: "some"', "")
    text += layer("Accuracy", chosen, "part", f"accuracy_param {{ {fields} }} loss_weight: 1")
    whole, _ = trained(made(text, ITEMS, World()), slice(None))
    assert 0 < whole < 1
    assert together(text, 2)[0] == pytest.approx(whole, rel=1e-12)


def test_a_process_whose_items_are_all_left_out_adds_nothing() -> None:
    none = "power_param { scale: 0 shift: %d }"
    losses = layer("Power", "selector", "all", none % 0) + FILTERED.replace('"selector"', '"all"')
    losses += layer("EuclideanLoss", "some wanted", "loss")
    losses += softmax("", "some classes", "propagate_down: true propagate_down: false")
    loss, gradients = together(losses, 2)
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients)


def test_a_net_for_tests_sums_the_items_of_its_process_alone() -> None:
    def never(value: torch.Tensor, name: str) -> torch.Tensor:
        raise AssertionError(name)

    text = inputs("data", (2,)) + layer("Reduction", "data", "sum", COUNTED)
    net = build(text, world=World(0, 2, never), phase=TEST)
    net.blobs["data"].data.fill_(3)
    assert float(net.forward()) == float(net.blobs["sum"].data) == 6


def test_a_python_layer_that_makes_a_number_of_items_is_told_to_count_as_a_mean() -> None:
    lines: list[str] = []
    build(
        inputs("a", (4, 2), "b", (4, 2))
        + layer("Python", "a b", "mine", PYTHON % "Euclidean" + COUNTED),
        world=World(0, 2),
        log=lambda source, text: lines.append(text),
    )
    (line,) = (line for line in lines if "one number" in line)
    assert line.startswith("Layer mine: a top of one number counts as the mean over the items")
