"""TensorFlow on a GPU: through CPU memory, and the results are right and on the GPU again.

`check_tensorflow.py [DEVICE]`; CPU:1 stands for a GPU where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

try:
    import tensorflow as tf
except ImportError:
    sys.exit("not tried: TensorFlow is not installed")

import sirtaki.tensorflow as hvd


def expect(what: str, tensor: Any, values: Any, device: str) -> None:
    """Compare a result with its values, and its place with the device."""
    if not bool(tf.reduce_all(tensor == values)):
        raise AssertionError(f"{what}: {tensor} instead of {values}")
    if not tensor.device.endswith(device):
        raise AssertionError(f"{what}: the result is on {tensor.device}")


def collectives(ones: Any) -> dict[str, Any]:
    """Call operations that reduce, that move, and that have several tensors."""
    rank = hvd.rank()
    return {
        "allreduce": hvd.allreduce(ones * (rank + 1.0), op=hvd.Sum, name="sum"),
        "group": hvd.grouped_allreduce([ones, ones * 2], op=hvd.Sum, name="group")[1],
        "allgather": hvd.allgather(ones[: rank + 1], name="gather"),
        "broadcast": hvd.broadcast(ones * (rank + 1.0), hvd.size() - 1, name="broadcast"),
    }


def rows(ones: Any) -> Any:
    """Reduce a sparse gradient: each rank has one row, and all have the same number."""
    mine = tf.IndexedSlices(ones[:1, None], tf.constant([7]), tf.constant([10, 1]))
    return tf.reduce_sum(hvd.allreduce(mine, op=hvd.Sum, name="rows").values)


def gradient(variable: Any) -> Any:
    """Differentiate on each rank something else, and average."""
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(variable) * (hvd.rank() + 1.0)
    return tape.gradient(loss, [variable])[0]


def check(device: str, way: Callable[[Any], Any]) -> None:
    size = hvd.size()
    total = size * (size + 1) / 2
    with tf.device(device):
        ones, variable = tf.ones(1000), tf.Variable(tf.ones(10))
        expected = {"allreduce": total, "group": 2.0 * size, "allgather": 1.0, "broadcast": size}
        for name, result in way(collectives)(ones).items():
            expect(name, result, expected[name], device)
        expect("IndexedSlices", way(rows)(ones), size, device)
        expect("gradient", way(gradient)(variable), total / size, device)


def main(device: str = "GPU:0") -> None:
    hvd.init()
    if device.startswith("CPU"):
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    elif not tf.config.list_physical_devices("GPU"):
        sys.exit("not tried: TensorFlow sees no GPU")
    else:
        # Ranks that share a card share its memory.
        for card in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(card, True)
    check(device, lambda function: function)
    check(device, tf.function)


if __name__ == "__main__":
    main(*sys.argv[1:])
