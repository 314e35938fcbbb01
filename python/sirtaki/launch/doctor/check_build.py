"""`--check-build`: the frameworks, controllers and operations that work here."""

from __future__ import annotations

import shutil

from sirtaki.interface import HOROVOD_VERSION
from sirtaki.launch.doctor.probe import CORE_MODULE, backends, has_adapter, probe_modules

_FRAMEWORKS = {"TensorFlow": "tensorflow", "PyTorch": "torch", "MXNet": None, "JAX": "jax"}


def print_check_build() -> None:
    """Print the table; the native transport stands in the rows named Gloo, whose part it takes."""
    modules = [module for module in _FRAMEWORKS.values() if module is not None]
    found = probe_modules([CORE_MODULE, *modules])
    native = found[CORE_MODULE].works
    frameworks = {
        name: native and module is not None and found[module].works and has_adapter(module)
        for name, module in _FRAMEWORKS.items()
    }
    moves = {each.name: each.works for each in backends(found[CORE_MODULE])}
    # Scripts compare it with the versions of Horovod.
    print(f"Horovod v{HOROVOD_VERSION}:")
    _block("Available Frameworks", frameworks)
    _block(
        "Available Controllers",
        {"MPI": native and shutil.which("mpirun") is not None, "Gloo": native},
    )
    _block(
        "Available Tensor Operations",
        {"NCCL": moves["nccl"], "DDL": False, "CCL": False, "MPI": moves["mpi"], "Gloo": native},
    )


def _block(heading: str, rows: dict[str, bool]) -> None:
    print(f"\n{heading}:")
    for name, works in rows.items():
        print(f"    [{'X' if works else ' '}] {name}")
