"""The schedulers and starters that Sirtaki supports, in the order in which they are tried.

MPI's variables win over Slurm's, which are wrong under an mpirun inside a Slurm job. The module of
a row is imported only if its variables are set.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sirtaki.schedulers.scheduler import Scheduler
    from sirtaki.schedulers.start import Environ, Start

# By module and object, the prefixes of variables that distinguish one process or host from
# another: ranks on other hosts do not get ours.
_ROWS = {
    "nodes.TORCHRUN": ("TORCHELASTIC_", "PET_"),
    "mpi.MPI": (
        *("OMPI_", "PRTE_", "PMI_", "PMI2_", "MPI_LOCAL"),
        *("MV2_COMM_", "HYDI_", "HYDRA_", "PALS_"),
    ),
    "lsf.LSF": ("LSB_", "LSF_", "LS_", "JSM_"),
    "slurm.SLURM": ("SLURM",),
    "mpi.FLUX": ("FLUX_",),
    "mpi.PMI": ("PMI_",),
    "mpi.PMIX": ("PMIX_",),
    "pbs.PBS": ("PBS_",),
    "grid_engine.GRID_ENGINE": ("SGE_", "QRSH_", "PE_HOSTFILE"),
    "kubernetes.KUBERNETES": ("KUBERNETES_",),
}
_OF_A_HOST = tuple(prefix for prefixes in _ROWS.values() for prefix in prefixes)
# Among these, the prefixes of variables that users set for all ranks.
_OF_USERS = ("OMPI_MCA_", "PRTE_MCA_")
# Variables that also indicate a row but may go to all ranks: in general, and in `find_start` only,
# because ranks of our launcher have them too and need not import the row.
_COMMON = {"kubernetes.KUBERNETES": ("K_MPI_JOB_ROLE",)}
_COMMON_AT_START = {"nodes.TORCHRUN": ("MASTER_ADDR",)}


def here(environ: Environ, common: Mapping[str, tuple[str, ...]] = _COMMON) -> Iterator[Scheduler]:
    """Yield those with a variable in the environment. common: see `_COMMON`."""
    beginnings = tuple(chain(_OF_A_HOST, *common.values()))
    names = [name for name in environ if name.startswith(beginnings)]  # few, if any
    for row, prefixes in _ROWS.items():
        if any(name.startswith(prefixes + common.get(row, ())) for name in names):
            yield _scheduler(row)


def every() -> Iterator[Scheduler]:
    """Yield all of them."""
    return map(_scheduler, _ROWS)


def named(name: str) -> Scheduler:
    """Return the one of this name."""
    return next(each for each in every() if each.name == name)


def _scheduler(row: str) -> Scheduler:
    module, _, name = row.partition(".")
    found: Scheduler = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def find_start(environ: Environ) -> Start | None:
    """Return how this process was started among others, None if it was not.

    Raises ValueError for variables that contradict themselves.
    """
    starts = (each.find_start(environ) for each in here(environ, _COMMON_AT_START))
    return next((start for start in starts if start is not None), None)


def is_started(environ: Environ) -> bool:
    """Return whether a scheduler or an mpirun started this process, perhaps with others."""
    return any(environ.get(mark) for each in here(environ) for mark in each.marks)


def start_seconds(environ: Environ) -> float | None:
    """Return how long ranks may take to start, if that is longer than usual."""
    seconds = (each.start_seconds(environ) for each in here(environ))
    return next(filter(None, seconds), None)


def is_of_a_host(variable: str) -> bool:
    """Return whether a variable distinguishes one process or host from another."""
    return variable.startswith(_OF_A_HOST) and not variable.startswith(_OF_USERS)
