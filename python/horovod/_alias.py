"""Imports `horovod.X` as the module `sirtaki.X` itself, so that each object exists once."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

import sirtaki
from sirtaki.interface import HOROVOD_VERSION

# Modules whose names or contents differ in Horovod; this package defines them.
_OWN = ("horovod.common", "horovod.runner", "horovod._alias")


class _AliasLoader(Loader):
    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that `python -m horovod.X` runs."""
        spec = importlib.util.find_spec(self._target)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            return None
        return spec.loader.get_code(self._target)

    def exec_module(self, module: ModuleType) -> None:
        # It was executed under its own name; the import system has just set the alias's spec.
        module.__spec__ = self._spec


# Parts of Horovod that are missing here, and their descriptions in the message.
_MISSING = {"mxnet": "the binding for MXNet"}
# Modules of elastic jobs that this package does not define.
_ELASTIC = "horovod.runner.elastic."
_WRITTEN = ("discovery", "settings")


def _explain_missing(name: str) -> None:
    """Raise ModuleNotFoundError for a module of Horovod that is missing here."""
    for prefix, what in _MISSING.items():
        if f"{name}.".startswith(f"horovod.{prefix}."):
            raise ModuleNotFoundError(
                f"there is no {name}: Sirtaki {sirtaki.__version__} stands in for Horovod, but "
                f"does not have {what} yet; a later version will. What needs it runs with "
                f"Horovod {HOROVOD_VERSION} in an environment without Sirtaki; the rest of horovod "
                "(torch, tensorflow, keras, data, runner) is here",
                name=name,
            )
    module = name.removeprefix(_ELASTIC)
    if module != name and module not in _WRITTEN:
        raise ModuleNotFoundError(
            f"there is no {name}: Sirtaki's launcher drives elastic jobs its own way. Start "
            "them by horovodrun --min-np … --host-discovery-script …, "
            "horovod.run(min_num_proc=…, host_discovery=…), horovod.spark.run_elastic or "
            "horovod.ray.ElasticRayExecutor; hosts are found by classes of "
            f"{_ELASTIC}discovery",
            name=name,
        )


class _AliasFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != "horovod" or not rest:
            return None
        _explain_missing(fullname)
        if fullname.startswith(_OWN):
            return None
        real = f"sirtaki.{rest}"
        if importlib.util.find_spec(real) is None:
            return None
        return ModuleSpec(fullname, _AliasLoader(real))


def install(meta_path: list[Any]) -> None:
    """Insert the finder before those that search for files, once."""
    if not any(isinstance(finder, _AliasFinder) for finder in meta_path):
        meta_path.insert(0, _AliasFinder())
