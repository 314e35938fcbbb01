"""Folders with nets, solvers and data, and running `caffe` in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from caffe_tests.data.records import write_images
from sirtaki_caffe.proto.weights import read_weights

CAFFE = (
    sys.executable,
    "-c",
    "import sys; from sirtaki_caffe.commands.main import main; sys.exit(main())",
)
HOROVODRUN = (
    sys.executable,
    "-c",
    "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())",
)
LIMIT = 300.0
SIZE = 12
CLASSES = 4

DATA = """
layer {
  name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 }
  data_param { source: "train_lmdb" batch_size: BATCH backend: LMDB }
}
layer {
  name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 }
  data_param { source: "test_lmdb" batch_size: 4 backend: LMDB }
}
"""
LEARNS = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }"
FILLER = 'weight_filler { type: "xavier" }'


def conv(name: str, bottom: str, count: int, kernel: int, extra: str = "") -> str:
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {LEARNS} '
        f"convolution_param {{ num_output: {count} kernel_size: {kernel} {extra} {FILLER} }}"
        " }\n"
    )


def product(name: str, bottom: str, count: int) -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {LEARNS} '
        f"inner_product_param {{ num_output: {count} {FILLER} }} }}\n"
    )


def pool(name: str, bottom: str) -> str:
    return (
        f'layer {{ name: "{name}" type: "Pooling" bottom: "{bottom}" top: "{name}" '
        "pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    )


def in_place(kind: str, name: str, blob: str) -> str:
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{blob}" top: "{blob}" }}\n'


def loss(bottom: str, extra: str = "") -> str:
    return f"""
layer {{
  name: "accuracy" type: "Accuracy" bottom: "{bottom}" bottom: "label" top: "accuracy"
  include {{ phase: TEST }}
}}
layer {{
  name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" {extra}
}}
"""


LENET = (
    'name: "LeNet"\n'
    + DATA
    + conv("conv1", "data", 4, 5)
    + pool("pool1", "conv1")
    + product("ip1", "pool1", 10)
    + in_place("ReLU", "relu1", "ip1")
    + product("ip2", "ip1", CLASSES)
    + loss("ip2")
)
ALEXNET = (
    'name: "AlexNet"\n'
    + DATA
    + conv("conv1", "data", 4, 3, "stride: 2")
    + in_place("ReLU", "relu1", "conv1")
    + conv("conv2", "conv1", 6, 3, "pad: 1 group: 2")
    + in_place("ReLU", "relu2", "conv2")
    + pool("pool2", "conv2")
    + product("fc6", "pool2", 12)
    + in_place("ReLU", "relu6", "fc6")
    + product("fc8", "fc6", CLASSES)
    + loss("fc8")
)
AUTOENCODER = (
    'name: "Autoencoder"\n'
    + DATA.replace('top: "label"', "")
    + 'layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }\n'
    + product("encode", "data", 8)
    + in_place("Sigmoid", "encode_neuron", "encode")
    + product("decode", "encode", SIZE * SIZE)
    + """
layer {
  name: "cross_entropy" type: "SigmoidCrossEntropyLoss" bottom: "decode" bottom: "flat"
  top: "cross_entropy" loss_weight: 1
}
layer { name: "decoded" type: "Sigmoid" bottom: "decode" top: "decoded" }
layer {
  name: "l2" type: "EuclideanLoss" bottom: "decoded" bottom: "flat" top: "l2" loss_weight: 0
}
"""
)
SHARED = (
    'name: "Shared"\n'
    + DATA
    + product("ip1", "data", 6).replace("lr_mult: 1", 'name: "w" lr_mult: 1')
    + in_place("Sigmoid", "neuron1", "ip1")
    + product("ip2", "data", 6).replace("lr_mult: 1", 'name: "w"').replace("lr_mult: 2", "")
    + 'layer { name: "both" type: "Eltwise" bottom: "ip1" bottom: "ip2" top: "both" }\n'
    + product("ip3", "both", CLASSES)
    + loss("ip3")
)
IGNORING = LENET.replace(loss("ip2"), loss("ip2", "loss_param { ignore_label: 1 }"))
SUMMED = LENET.replace(loss("ip2"), loss("ip2", "loss_weight: 0")) + (
    'layer { name: "root" type: "Power" bottom: "loss" top: "root" loss_weight: 1 '
    "power_param { power: 0.5 } }\n"
    'layer { name: "sizes" type: "Reduction" bottom: "ip1" top: "sizes" loss_weight: 0.01 '
    "reduction_param { operation: SUMSQ } }\n"
)
BATCH_NORM = (
    'name: "BatchNorm"\n'
    + DATA
    + conv("conv1", "data", 4, 5)
    + 'layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "bn1" '
    + "batch_norm_param { moving_average_fraction: 0.5 } }\n"
    + product("ip2", "bn1", CLASSES)
    + loss("ip2")
)

SOLVER = """net: "{net}.prototxt"
type: "SGD"
base_lr: 0.05
lr_policy: "inv"
gamma: 0.01
power: 0.75
momentum: 0.9
weight_decay: 0.001
random_seed: 5
test_iter: 6
test_interval: 5
display: 1
max_iter: 10
snapshot_prefix: "{net}"
solver_mode: CPU
"""


def make_data(folder: Path, train: int = 60, test: int = 24) -> None:
    """LMDBs of images whose brightness depends on their class."""
    random = np.random.default_rng(3)
    for name, count in (("train_lmdb", train), ("test_lmdb", test)):
        labels = [int(value) for value in random.integers(0, CLASSES, count)]
        images = [
            (random.integers(0, 100, (1, SIZE, SIZE)) + 40 * label).astype(np.uint8)
            for label in labels
        ]
        write_images(folder / name, images, labels=labels)


def write_net(folder: Path, name: str, text: str, batch: int, more: str = "") -> Path:
    """A net and its solver; `more` goes before the solver's fields of the same names."""
    (folder / f"{name}.prototxt").write_text(text.replace("BATCH", str(batch)))
    fields = [line.split(":")[0] for line in more.splitlines()]
    kept = [
        line for line in SOLVER.format(net=name).splitlines() if line.split(":")[0] not in fields
    ]
    solver = folder / f"{name}_solver.prototxt"
    solver.write_text("\n".join([*kept, more, ""]))
    return solver


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def caffe(
    folder: Path,
    *words: str,
    processes: int = 1,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `caffe` to its end."""
    launcher = () if processes == 1 else (*HOROVODRUN, "-np", str(processes))
    return subprocess.run(
        [*launcher, *CAFFE, *words, "--logtostderr"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(**(env or {})),
        check=False,
    )


def log_text(stderr: str) -> list[str]:
    """The log's lines without the prefixes of glog and of the launcher.

    Those of threads that fetch data ahead, which come at any time, are left out, and the
    launcher's last one.
    """
    stderr = re.sub(r"^\d+ ranks, [\d.]+ s.*\n", "", stderr, flags=re.MULTILINE)
    lines = [re.sub(r"^\[\d+\]<stderr>:", "", line) for line in stderr.splitlines()]
    texts = [line.split("] ", 1)[1] if re.match(r"[IWEF]\d{4} ", line) else line for line in lines]
    return [text for text in texts if text != "Restarting data prefetching from start."]


def weights(path: Path) -> dict[str, list[np.ndarray]]:
    """The blobs of a file of weights, by layer."""
    return {layer.name: layer.blobs for layer in read_weights(path) if layer.blobs}


def assert_same_weights(
    found: Mapping[str, Sequence[np.ndarray]],
    expected: Mapping[str, Sequence[np.ndarray]],
    tolerance: float,
) -> None:
    """Every blob agrees, as far as `tolerance` of its largest entry."""
    assert found.keys() == expected.keys()
    for name, blobs in expected.items():
        for own, other in zip(found[name], blobs, strict=True):
            np.testing.assert_allclose(
                own, other, rtol=0, atol=tolerance * max(1.0, float(np.abs(other).max()))
            )
