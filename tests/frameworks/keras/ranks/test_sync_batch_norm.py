"""Batch normalisation over all ranks is that of one process on the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    LEGACY,
    alone,
    assert_close,
    data,
    keras,
    model,
    together,
    weights,
)


def layers_with(kind: Any, **options: Any) -> Any:
    return lambda: [
        keras.layers.Dense(16, activation="tanh"),
        kind(**options),
        keras.layers.Reshape((2, 2, 4)),
        kind(axis=1, **options),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]


def test_training_equals_one_process_on_the_whole_batch() -> None:
    found = together(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)),
        layers_with(hvd.SyncBatchNormalization),
    )
    # The fused operation, which only Keras 2 takes, keeps another estimate of the variance.
    options = {"fused": False} if LEGACY else {}
    reference = layers_with(keras.layers.BatchNormalization, **options)
    expected = alone(keras.optimizers.SGD(0.05), reference)
    assert_close(found, expected, tolerance=1e-4)


def test_ranks_may_have_batches_of_different_sizes() -> None:
    x, _ = data(1)
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    parts = np.split(x, [5] if hvd.size() == 2 else [5, 7])[: hvd.size()]
    mine = x if hvd.size() == 1 else parts[hvd.rank()]
    layer(mine, training=True)
    np.testing.assert_allclose(np.asarray(layer.moving_mean), x.mean(0), atol=1e-5)
    np.testing.assert_allclose(np.asarray(layer.moving_variance), x.var(0), atol=1e-5)


def test_what_is_masked_does_not_count() -> None:
    x, _ = data(1)
    x = x.reshape(2, 6, 8)
    mask = np.zeros((2, 6), bool)
    mask[:, : 2 + hvd.rank()] = True
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer(keras.ops.convert_to_tensor(x) if not LEGACY else x, training=True, mask=mask)
    rows = [x[:, : 2 + rank].reshape(-1, 8) for rank in range(hvd.size())]
    whole = np.concatenate(rows)
    np.testing.assert_allclose(np.asarray(layer.moving_mean), whole.mean(0), atol=1e-5)
    np.testing.assert_allclose(np.asarray(layer.moving_variance), whole.var(0), atol=1e-5)


def test_evaluation_uses_the_moving_statistics() -> None:
    trained = keras.Sequential([keras.Input((3,)), hvd.SyncBatchNormalization(epsilon=0.0)])
    x = np.full((2 + hvd.rank(), 3), 5.0, "float32")
    np.testing.assert_allclose(trained.predict(x, verbose=0), x, rtol=1e-6)


@pytest.mark.parametrize("fused", [True, None])
def test_it_is_never_fused(fused: bool | None) -> None:
    with pytest.raises(ValueError, match="does not support fused=True"):
        hvd.SyncBatchNormalization(fused=fused)


def test_a_model_with_it_is_saved_and_loaded(tmp_path: Path) -> None:
    saved = model(layers_with(hvd.SyncBatchNormalization))
    saved.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is hvd.SyncBatchNormalization
    assert_close(weights(loaded), weights(saved), tolerance=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")
def test_it_is_a_name_of_horovod_tensorflow() -> None:
    import horovod.tensorflow

    assert horovod.tensorflow.SyncBatchNormalization is hvd.SyncBatchNormalization
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        _ = horovod.tensorflow.Unknown
