"""Other MPIs beside the one that the ranks run under: each has a job of its own.

A process has room for one MPI. So each rank has a peer in the job of another, which sums an array
as long as the rank's when the rank says so, through named pipes; who is not at turn sleeps.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sirtaki.observe.contenders import Array, Run

HERE = Path(__file__).resolve().parent
MPICH = "MPICH"
INTEL_MPI = "Intel MPI"
_ENVIRONMENTS = {MPICH: ".venv-mpich", INTEL_MPI: ".venv-impi"}


def other_mpis() -> dict[str, Path]:
    """Return by name the folders of those MPIs that are here; `make bench` makes them."""
    folders = {name: HERE.parent / folder for name, folder in _ENVIRONMENTS.items()}
    return {name: path for name, path in folders.items() if (path / "bin/mpirun").exists()}


def start_job(name: str, environment: Path, ranks: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start an MPI's job; it ends with the ranks that speak to it."""
    for rank in range(ranks):
        for pipe in pipes(folder, name, rank):
            os.mkfifo(pipe)
    programs = environment / "bin"
    rank = [str(HERE / "mpi_job_rank.py"), str(folder), name]
    return subprocess.Popen(
        [programs / "mpirun", "-np", str(ranks), programs / "python", "-m", "mpi4py", *rank],
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "I_MPI_PIN": "0",  # nobody is bound
            "I_MPI_FABRICS": "shm",
        },
    )


def wait_for_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Wait until all have ended; one that fails ends the others.

    Raises:
        SystemExit: one has failed.
    """
    running = {os.pidfd_open(process.pid): process for process in processes}
    try:
        while running:
            for ended in select.select(list(running), [], [])[0]:
                process = running.pop(ended)
                os.close(ended)
                if process.wait() != 0:
                    raise SystemExit(f"exit status {process.returncode} of {process.args}")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


class Peer:
    """The process of a job that has this rank's number.

    Attributes:
        library: What its MPI calls itself.
    """

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        orders, answers = pipes(folder, name, rank)
        self._orders = orders.open("w")
        self._answers = answers.open()
        self.library: str = json.loads(self._answers.readline())

    def __call__(self, data: Array) -> Run:
        """Measure Allreduce in place of an array with as many equal numbers as `data` has."""

        def run(repeats: int) -> list[float]:
            order = {"elements": data.size, "value": float(data[0]), "repeats": repeats}
            print(json.dumps(order), file=self._orders, flush=True)
            answer = json.loads(self._answers.readline())
            data.fill(answer["highest"])
            data[0] = answer["lowest"]
            seconds: list[float] = answer["seconds"]
            return seconds

        return run


def pipes(folder: Path, name: str, rank: int) -> tuple[Path, Path]:
    """Return the pipes of a rank and its peer: of orders and of answers."""
    return folder / f"{name}-{rank}-orders", folder / f"{name}-{rank}-answers"
