"""Steps of training with updates, of Caffe's nets beside the same nets in plain PyTorch.

python benchmarks/caffe_step.py --training        (needs tools/requirements-caffe.txt)
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from caffe_peers import alexnet, lenet, resnet18
from caffe_ssd import Ssd300
from targets import Check, at_most
from torch import nn

import caffe
from sirtaki.observe.measure import Timings
from sirtaki_caffe.net.net import Net

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sirtaki-caffe"))
from caffe_tests import zoo, zoo_detectors

Step = Callable[[], float]
#: Of each net: its text, its module, batches, whether dropout keeps losses apart, and how often it
#: runs for one of an AlexNet.
NETS = {
    "LeNet": (zoo.lenet, lenet, (8, 32), True, 10),
    "AlexNet": (zoo.alexnet, alexnet, (8, 32), False, 1),
    "ResNet-18": (zoo.resnet18, resnet18, (8, 32), True, 1),
    "SSD300": (zoo_detectors.ssd300, Ssd300, (4,), True, 1),
}
RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
MOST = 1.05


def training(
    rounds: int,
    only: Sequence[str] | None,
    interleaved: Callable[..., tuple[Timings, float]],
    names: Sequence[str],
) -> Iterator[tuple[str, Timings, Check]]:
    """Seconds of the processor on one thread, which other programs disturb little."""
    torch.set_num_threads(1)
    for name, (text, module, batches, alike, often) in NETS.items():
        for batch in batches:
            if only and name not in only:
                continue
            ours, theirs = _contenders(text("fed", batch).text, module)
            first, second = ours(), theirs()
            if alike and abs(first - second) > 1e-3 * abs(second):
                raise AssertionError(f"{name}: the losses are {first} and {second}")
            contenders = dict(zip(names, (ours, theirs), strict=True))
            timings, ratio = interleaved(contenders, rounds * often, time.process_time)
            title = f"{name}, step with update, batch {batch}"
            yield title, timings, at_most(f"{title}: of {names[1]}", MOST, ratio)


def _contenders(text: str, module: Callable[..., nn.Module]) -> tuple[Step, Step]:
    with tempfile.TemporaryDirectory() as folder:
        net, solver = Path(folder) / "net.prototxt", Path(folder) / "solver.prototxt"
        net.write_text(text)
        solver.write_text(
            f'net: "{net}" base_lr: {RATE} momentum: {MOMENTUM} weight_decay: {DECAY} '
            f'lr_policy: "fixed" random_seed: 1 snapshot_prefix: "{folder}/s"'
        )
        trained = caffe.SGDSolver(str(solver))
    engine = trained.net.engine
    _feed(engine)

    def ours() -> float:
        trained.step(1)
        return float(engine.blobs[engine.outputs[-1]].data)

    engine.forward()
    made = module(engine.blobs["mbox_priorbox"].data) if module is Ssd300 else module()
    return ours, _by_hand(made, engine)


def _feed(net: Net) -> None:
    """Random images, and a label or three boxes each."""
    random = torch.Generator().manual_seed(2)
    data = net.blobs["data"].data.normal_(generator=random)
    label = net.blobs["label"]
    if len(label.shape) == 1:
        label.data.random_(0, 10, generator=random)
        return
    label.reshape((1, 1, 3 * len(data), 8))
    rows = torch.rand(len(data), 3, 8, generator=random)
    rows[..., 0] = torch.arange(len(data))[:, None]
    rows[..., 1] = 1 + (rows[..., 1] * 20).floor()
    rows[..., 2] = torch.arange(3)
    rows[..., 3:5] *= 0.5
    rows[..., 5:7] = rows[..., 3:5] + 0.1 + 0.3 * rows[..., 5:7]
    rows[..., 7] = 0
    label.data.copy_(rows.reshape(label.shape))


def _by_hand(module: nn.Module, net: Net) -> Step:
    data, label = (net.blobs[name].data for name in ("data", "label"))
    parameters = module.ordered() if isinstance(module, Ssd300) else list(module.parameters())
    learning = [param for param in net.learnable if param.learns]
    with torch.no_grad():
        for parameter, param in zip(parameters, learning, strict=True):
            parameter.copy_(param.data.reshape(parameter.shape))
    optimizer = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def loss() -> torch.Tensor:
        if isinstance(module, Ssd300):
            return module.loss(data, label)
        return nn.functional.cross_entropy(module(data), label.long())

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return float(value.detach())

    return step
