"""Loading of saved models with distributed optimizers."""

from __future__ import annotations

import json
import os
import types
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sirtaki.keras.distributed import Distributed
from sirtaki.keras.library import keras
from sirtaki.keras.optimizer import Compression, DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a model with its optimizer, and make the optimizer distributed.

    Args:
        filepath: As for `keras.models.load_model`.
        custom_optimizers: Optimizer classes from outside Keras.
        custom_objects: As for `keras.models.load_model`. In place of an optimizer's class it may
            contain a function that makes the optimizer from its configuration, distributed or not.
        compression: As for `DistributedOptimizer`.
        legacy_opts: Accepted; the optimizer has the saved class.

    Returns:
        The model; its optimizer, if it was saved with one, is distributed.

    Raises:
        ValueError, OSError: The file is missing, or contains no model of this Keras.
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or ()} | (custom_objects or {})
    functions = {name for name, each in objects.items() if isinstance(each, types.FunctionType)}
    if functions:
        for name in functions.intersection(_classes_in(_saved_optimizer(filepath))):
            objects[name] = _Maker(objects[name])
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not isinstance(optimizer, Distributed):
        model.optimizer = DistributedOptimizer(optimizer, compression=compression)
    return model


class _Maker:
    """A function that makes an optimizer, as a class: Keras does not call functions.

    Args:
        make: Takes the result of the optimizer's `get_config` as keyword arguments.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def from_config(self, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Return the optimizer of a configuration."""
        rate = config.get("learning_rate")
        if isinstance(rate, dict):
            rate = keras.optimizers.schedules.deserialize(rate, custom_objects=custom_objects)
            config = {**config, "learning_rate": rate}
        return self._make(**config)


def _saved_optimizer(filepath: Any) -> Any:
    """Return a file's configuration of its model's optimizer, or None."""
    path = Path(os.fspath(filepath))
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            compiled = json.loads(archive.read("config.json")).get("compile_config") or {}
            return compiled.get("optimizer")
    if path.suffix in (".h5", ".hdf5"):
        import h5py

        with h5py.File(path) as file:
            return json.loads(file.attrs.get("training_config", "{}")).get("optimizer_config")
    return None


def _classes_in(config: Any) -> Iterator[str]:
    """Yield the names of the classes in a configuration, at any depth."""
    if isinstance(config, dict):
        yield from (config[key] for key in ("class_name", "registered_name") if config.get(key))
        for value in config.values():
            yield from _classes_in(value)
