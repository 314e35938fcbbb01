"""Batch normalisation with the statistics of all ranks' batches together."""

from __future__ import annotations

from typing import Any

from sirtaki.core import elastic
from sirtaki.core.operations.reduce_ops import Sum
from sirtaki.core.world import state
from sirtaki.keras.backends import backend
from sirtaki.keras.library import BACKEND, LEGACY, keras

if LEGACY:
    import tensorflow as tf

# The sums of squares are subtracted from each other; XLA has no wider type by default on JAX.
_WIDE = "float32" if BACKEND == "jax" else "float64"


def _check_fused(fused: Any) -> None:
    if fused in (True, None):
        raise ValueError("SyncBatchNormalization does not support fused=True.")


def _reduced(sums: Any, channels: int, maximum: Any) -> tuple[Any, Any]:
    """Return mean and variance of each channel over all ranks.

    Args:
        sums: This rank's sums and sums of squares of each channel, then the number of values.
        channels: The number of channels.
        maximum: The elementwise maximum of two tensors.
    """
    total = backend.operations.allreduce(sums, op=Sum)
    count = maximum(total[-1], 1.0)
    mean = total[:channels] / count
    return mean, maximum(total[channels:-1] / count - mean * mean, 0.0)


class _Keras3(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalisation in which training uses the mean and variance over all ranks.

    Ranks may have batches of different sizes. Gradients of its weights are for the rank's part of
    the batch, and `DistributedOptimizer` reduces them.

    Args:
        fused: Must be False.
        kwargs: As for `keras.layers.BatchNormalization`.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        _check_fused(fused)
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        if not elastic.is_elastic() and state.size() == 1:
            return super()._moments(inputs, mask)  # type: ignore[no-any-return]
        ops = keras.ops
        axes, channels = self._reduction_axes, inputs.shape[self.axis]
        if mask is None:
            kept = ops.ones_like(inputs)
        else:
            kept = ops.cast(ops.expand_dims(mask, -1), inputs.dtype) * ops.ones_like(inputs)
        counts = ops.sum(kept, axes)
        own = ops.sum(inputs * kept, axes) / ops.maximum(counts, 1)
        shape = [1] * len(inputs.shape)
        shape[self.axis] = channels
        deviations = (inputs - ops.reshape(own, shape)) * kept
        squares = ops.cast(ops.sum(ops.square(deviations), axes), _WIDE)
        counts, own = ops.cast(counts, _WIDE), ops.cast(own, _WIDE)
        sums = ops.concatenate([counts * own, squares + counts * own * own, counts[:1]])
        mean, variance = _reduced(sums, channels, ops.maximum)
        return ops.cast(mean, inputs.dtype), ops.cast(variance, inputs.dtype)


class _Keras2(keras.layers.BatchNormalization):  # type: ignore[misc]
    __doc__ = _Keras3.__doc__

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        _check_fused(fused)
        super().__init__(fused=False, **kwargs)

    def _moments(
        self, inputs: Any, reduction_axes: Any, keep_dims: bool, mask: Any = None
    ) -> tuple[Any, Any]:
        if not elastic.is_elastic() and state.size() == 1:
            return super()._moments(inputs, reduction_axes, keep_dims, mask)  # type: ignore[no-any-return]
        wide = tf.cast(inputs, tf.float64)
        kept = tf.ones_like(wide)
        if mask is not None:
            kept *= tf.cast(tf.expand_dims(mask, -1), tf.float64)
        counts = tf.reshape(tf.reduce_sum(kept, reduction_axes), [-1])
        sums = [tf.reduce_sum(each * kept, reduction_axes) for each in (wide, wide * wide)]
        flat = tf.concat([*(tf.reshape(each, [-1]) for each in sums), counts[:1]], 0)
        mean, variance = _reduced(flat, int(counts.shape[0]), tf.maximum)
        if keep_dims:
            kept_shape = tf.shape(tf.reduce_sum(kept, reduction_axes, keepdims=True))
            mean, variance = tf.reshape(mean, kept_shape), tf.reshape(variance, kept_shape)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


SyncBatchNormalization = keras.saving.register_keras_serializable("Sirtaki")(
    type("SyncBatchNormalization", (_Keras2 if LEGACY else _Keras3,), {"__doc__": _Keras3.__doc__})
)
