"""`--check-build`: the frameworks, controllers and operations that work here."""

from __future__ import annotations

import shutil

from sirtaki.doctor.probe import CORE_MODULE, FRAMEWORKS, backends, probe_modules
from sirtaki.interface import HOROVOD_VERSION

_OF_HOROVOD = ("TensorFlow", "PyTorch", "MXNet")


def print_check_build() -> None:
    """Print the table; the native transport fills the rows of Gloo, which it replaces."""
    modules = {
        framework.name: module
        for module, framework in FRAMEWORKS.items()
        if framework.install and not framework.backends
    }
    found = probe_modules([CORE_MODULE, *modules.values()])
    native = found[CORE_MODULE].works
    frameworks = {
        **dict.fromkeys(_OF_HOROVOD, False),
        **{name: native and found[module].works for name, module in modules.items()},
    }
    moves = {each.name: each.works for each in backends(found[CORE_MODULE])}
    # Scripts compare this line with versions of Horovod.
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
