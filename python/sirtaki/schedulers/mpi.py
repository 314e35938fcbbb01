"""MPI's starters: the mpirun of Open MPI, MPICH, Intel MPI and MVAPICH, PALS, Flux and others."""

from __future__ import annotations

from sirtaki.schedulers.scheduler import Scheduler
from sirtaki.schedulers.start import JOB, Environ, Start, joined, started


class Mpi(Scheduler):
    """An mpirun whose variables show which ranks share a host."""

    name = "mpi"
    shown = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "COBALT_JOBID")
    marks = ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")

    def find_start(self, environ: Environ) -> Start | None:
        """See `Scheduler`."""
        finders = (_open_mpi, _hydra, _mvapich, _pals)
        starts = (find(environ) for find in finders)
        return next((start for start in starts if start is not None), None)


def _open_mpi(environ: Environ) -> Start | None:
    names = (f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    job = joined("pmix", environ.get("PMIX_NAMESPACE"))
    return started(environ, "Open MPI's mpirun", *names, job=job)


def _hydra(environ: Environ) -> Start | None:
    if "MPI_LOCALRANKID" not in environ:
        return None
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    # MPICH sets none: use our launcher's, if it called mpirun, or the user's.
    own = environ.get("I_MPI_HYDRA_UUID") or environ.get("PMI_JOBID") or environ.get(JOB)
    return started(environ, "MPICH's mpiexec", *names, job=joined("hydra", own))


def _mvapich(environ: Environ) -> Start | None:
    names = (f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    return started(environ, "MVAPICH's mpirun", *names, job="")


def _pals(environ: Environ) -> Start | None:
    if "PALS_RANKID" not in environ:
        return None
    names = ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
    return started(environ, "PALS", *names, job=joined("pals", environ.get("PALS_APID")))


class Flux(Scheduler):
    """`flux run`, whose variables do not show how many tasks share a host."""

    name = "flux"
    shown = ("FLUX_JOB_ID",)
    marks = ("FLUX_TASK_RANK",)

    def find_start(self, environ: Environ) -> Start | None:
        """See `Scheduler`."""
        job = joined("flux", environ.get("FLUX_JOB_ID"))
        return started(environ, "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", job=job)


class Pmi(Scheduler):
    """A process manager whose variables do not describe hosts."""

    name = "pmi"
    shown = ("PMI_SIZE", "PMI_RANK")
    marks = ("PMI_RANK",)

    def find_start(self, environ: Environ) -> Start | None:
        """See `Scheduler`."""
        job = environ.get("PMI_JOBID", "")
        return started(environ, "a PMI starter", "PMI_RANK", "PMI_SIZE", job=job)


class Pmix(Scheduler):
    """A starter whose variables contain only the rank."""

    name = "pmix"
    shown = ("PMIX_RANK",)
    marks = ("PMIX_RANK",)

    def find_start(self, environ: Environ) -> Start | None:
        """See `Scheduler`."""
        if "PMIX_RANK" not in environ or environ.get("SLURM_STEP_NUM_TASKS") == "1":
            return None
        if not environ.get("WORLD_SIZE"):
            raise ValueError(
                f"PMIx says that this is rank {environ['PMIX_RANK']}, and not of how many: give "
                "all ranks their number in WORLD_SIZE (prterun -x WORLD_SIZE=4)"
            )
        job = joined("pmix", environ.get("PMIX_NAMESPACE"))
        return started(environ, "a PMIx starter", "PMIX_RANK", "WORLD_SIZE", job=job)


MPI = Mpi()
FLUX = Flux()
PMI = Pmi()
PMIX = Pmix()
