"""A small problem, and models that learn it: on all ranks, or alone on the whole batch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import sirtaki.keras as hvd

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
keras: Any = importlib.import_module("tf_keras" if LEGACY else "keras")
BACKEND = "tensorflow" if LEGACY else keras.backend.backend()

STEPS = 20
BATCH = 12  # of all ranks together: of one, two and three

Arrays = list[np.ndarray]


def data(steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.standard_normal((steps * BATCH, 8)).astype("float32")
    return x, np.tanh(x[:, :1] - x[:, 1:2])


def share(array: np.ndarray) -> np.ndarray:
    """This rank's part of every batch, in the order of the batches."""
    parts = array.reshape(-1, hvd.size(), BATCH // hvd.size(), *array.shape[1:])
    return np.concatenate(parts[:, hvd.rank()])


def layers() -> list[Any]:
    return [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)]


def model(make_layers: Callable[[], list[Any]] = layers, seed: int = 3) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((8,)), *make_layers()])


def weights(trained: Any) -> Arrays:
    return [np.array(weight) for weight in trained.get_weights()]


def fit(trained: Any, x: np.ndarray, y: np.ndarray, ranks: int, **options: Any) -> Any:
    """Train one epoch of batches that hold BATCH samples over all ranks."""
    return trained.fit(
        x, y, batch_size=BATCH // ranks, shuffle=False, verbose=0, **{"epochs": 1, **options}
    )


def alone(
    optimizer: Any,
    make_layers: Callable[[], list[Any]] = layers,
    compile_options: dict[str, Any] | None = None,
    **options: Any,
) -> Arrays:
    """Weights after one process has trained on the whole batches."""
    single = model(make_layers)
    single.compile(optimizer, "mse", **(compile_options or {}))
    fit(single, *data(), 1, **options)
    return weights(single)


def together(
    optimizer: Any,
    make_layers: Callable[[], list[Any]] = layers,
    compile_options: dict[str, Any] | None = None,
    **options: Any,
) -> Arrays:
    """Weights after all ranks have trained, each on its share of every batch."""
    # Only the root starts with the weights that `alone` starts with.
    shared = model(make_layers, seed=3 + hvd.rank())
    shared.compile(optimizer, "mse", **(compile_options or {}))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *options.pop("callbacks", ())]
    x, y = data()
    fit(shared, share(x), share(y), hvd.size(), callbacks=callbacks, **options)
    return weights(shared)


def assert_close(found: Arrays, expected: Arrays, tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def assert_equal_on_all_ranks(arrays: Arrays) -> None:
    flat = np.concatenate([np.ravel(array) for array in arrays])
    for other in hvd.allgather(flat[np.newaxis]):
        np.testing.assert_array_equal(flat, other)
