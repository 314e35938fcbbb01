"""Keras's models, losses and optimizers as bytes, and predictions in Spark's tasks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki.spark.messages import pickled


def to_bytes(model: Any) -> bytes:
    """Return the file that Keras makes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        return path.read_bytes()


def from_bytes(data: bytes, custom_objects: Mapping[str, Any], load: Any, **options: Any) -> Any:
    """Load a model. load: `keras.models.load_model`, or that of `horovod.keras`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        path.write_bytes(data)
        return load(path, custom_objects=dict(custom_objects), **options)


def described(thing: Any) -> Any:
    """Return a loss, metric or optimizer of Keras in a form that can be pickled; else itself."""
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


def restored(thing: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return what `described` was given."""
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
    """Have Keras work on a backend in this process, where it is not imported yet."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = name


def fitting(array: np.ndarray[Any, Any], shape: tuple[int | None, ...], what: str) -> Any:
    """Return an array in the shape of a model's input.

    Args:
        array: Rows.
        shape: Of the input, with the rows first; None where it is not known.
        what: The column and the number of the input, for the error.

    Raises:
        ValueError: Rows have another number of elements.
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
    """Return columns as a model takes them: one array, or a tuple."""
    shapes = model.input_shape
    shapes = [shapes] if isinstance(shapes, tuple) else list(shapes)
    if len(shapes) != len(arrays):
        raise ValueError(
            f"the model has {len(shapes)} inputs, and there are {len(arrays)} feature columns"
        )
    each = zip(arrays, shapes, names, strict=True)
    fit = [fitting(a, shape, f"{name}@{n}") for n, (a, shape, name) in enumerate(each)]
    return fit[0] if len(fit) == 1 else tuple(fit)


def predictor(
    data: bytes, custom_objects: Mapping[str, Any], backend: str, names: list[str]
) -> Any:
    """Return what makes, in a task, the function that predicts with a model."""
    objects = pickled(dict(custom_objects))

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
