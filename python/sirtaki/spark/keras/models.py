"""Keras models, losses and optimizers as bytes, and predictions in Spark's tasks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki import shipped


def to_bytes(model: Any) -> bytes:
    """Return the contents of Keras's file of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        return path.read_bytes()


def from_bytes(data: bytes, custom_objects: Mapping[str, Any], load: Any, **options: Any) -> Any:
    """Load a model. load: `keras.models.load_model`, or the one of `horovod.keras`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        path.write_bytes(data)
        return load(path, custom_objects=dict(custom_objects), **options)


def described(thing: Any) -> Any:
    """Return a Keras loss, metric or optimizer in a picklable form; other objects unchanged."""
    import keras

    if isinstance(thing, (list, tuple)):
        return [described(each) for each in thing]
    if isinstance(thing, dict):
        return {name: described(each) for name, each in thing.items()}
    kinds = (keras.losses.Loss, keras.metrics.Metric, keras.optimizers.Optimizer)
    return (
        _Described(keras.saving.serialize_keras_object(thing))
        if isinstance(thing, kinds)
        else thing
    )


def functions_of(thing: Any) -> dict[str, Any]:
    """Return the user's functions among losses and metrics, by the names that Keras saves."""
    if isinstance(thing, dict):
        thing = [*thing.values()]
    if isinstance(thing, (list, tuple)):
        return {name: each for part in thing for name, each in functions_of(part).items()}
    return {thing.__name__: thing} if hasattr(thing, "__name__") else {}


def restored(thing: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return the object that was passed to `described`."""
    import keras

    if isinstance(thing, list):
        return [restored(each, custom_objects) for each in thing]
    if isinstance(thing, dict):
        return {name: restored(each, custom_objects) for name, each in thing.items()}
    if isinstance(thing, _Described):
        return keras.saving.deserialize_keras_object(thing.config, custom_objects=custom_objects)
    return thing


class _Described:
    def __init__(self, config: Any) -> None:
        self.config = config


def choose_backend(name: str) -> None:
    """Select Keras's backend in this process, unless Keras is already imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = name


def fitting(array: np.ndarray[Any, Any], shape: tuple[int | None, ...], what: str) -> Any:
    """Return an array in the shape of a model's input.

    Args:
        array: The rows.
        shape: The shape of the input, rows first; None where unknown.
        what: The column and the index of the input, for the error.

    Raises:
        ValueError: The number of elements per row differs.
    """
    known = [number for number in shape[1:] if number is not None]
    if len(known) != len(shape) - 1:
        return array
    wanted, found = int(np.prod(known)), int(np.prod(array.shape[1:]))
    if wanted != found:
        column, _, number = what.partition("@")
        raise ValueError(
            f"Feature column {column!r} with size {found} must equal that of the model input at "
            f"index {number} with size {wanted}"
        )
    return array.reshape(-1, *known)


def inputs_of(model: Any, arrays: list[Any], names: list[str]) -> Any:
    """Return columns in the form of a model's inputs: one array, or a tuple."""
    shapes = model.input_shape
    shapes = [shapes] if isinstance(shapes, tuple) else list(shapes)
    if len(shapes) != len(arrays):
        raise ValueError(
            f"the model has {len(shapes)} inputs, and there are {len(arrays)} feature columns"
        )
    each = zip(arrays, shapes, names, strict=True)
    fit = [fitting(a, shape, f"{name}@{n}") for n, (a, shape, name) in enumerate(each)]
    return fit[0] if len(fit) == 1 else tuple(fit)


def labels_of(model: Any, arrays: list[Any]) -> list[Any]:
    """Return labels in the shape of the model's outputs with as many numbers per row.

    Functions as metrics would broadcast [n] and [n, 1] to [n, n] without an error.
    """
    shapes = model.output_shape
    shapes = [shapes] if isinstance(shapes, tuple) else shapes
    if not isinstance(shapes, list) or len(shapes) != len(arrays):
        return arrays
    return [_alike(array, shape) for array, shape in zip(arrays, shapes, strict=True)]


def _alike(array: np.ndarray[Any, Any], shape: tuple[int | None, ...]) -> Any:
    inner = [number for number in shape[1:] if number is not None]
    fits = len(inner) == len(shape) - 1 and np.prod(inner) == np.prod(array.shape[1:])
    return array.reshape(len(array), *inner) if fits else array


def predictor(
    data: bytes, custom_objects: Mapping[str, Any], backend: str, names: list[str]
) -> Any:
    """Return a function that makes, within a task, the prediction function of a model."""
    objects = shipped.dumps(dict(custom_objects))

    def make() -> Any:
        import pickle

        choose_backend(backend)
        import keras

        load = keras.models.load_model
        model = from_bytes(data, pickle.loads(objects), load, compile=False)

        def predict(arrays: list[Any]) -> list[Any]:
            found = model.predict_on_batch(inputs_of(model, arrays, names))
            outputs = found if isinstance(found, (list, tuple)) else [found]
            return [np.asarray(output) for output in outputs]

        return predict

    return make
