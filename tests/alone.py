"""The command that runs one test alone, as a failed test shows it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

# What changes what a test does; set by the Makefile or by hand.
_CHOICES = ("KERAS_BACKEND", "OMP_NUM_THREADS", "SIRTAKI_BACKEND", "SIRTAKI_TEST_SEED")
_PYTEST = "-m pytest -p no:cacheprovider"


def command(test: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the line to type in the repository's root."""
    libraries = test.startswith("tests/distributed/libraries/")
    python = ".venv-libraries/bin/python" if libraries else ".venv/bin/python"
    chosen = [f"{name}={shlex.quote(environ[name])}" for name in _CHOICES if name in environ]
    return " ".join([*chosen, _starter(environ, python), _PYTEST, shlex.quote(test)])


def _starter(environ: Mapping[str, str], python: str) -> str:
    """Return what starts as many ranks as there are now, in the same way."""
    if "TORCHELASTIC_RUN_ID" in environ:
        ranks = environ.get("WORLD_SIZE", "1")
        return f"{python} -m torch.distributed.run --nproc-per-node {ranks}"
    if "OMPI_COMM_WORLD_SIZE" in environ:
        ranks = environ["OMPI_COMM_WORLD_SIZE"]
        return f".venv/bin/mpirun --allow-run-as-root --oversubscribe -np {ranks} {python}"
    if "PMI_SIZE" in environ:
        return f".venv-mpich/bin/mpirun -np {environ['PMI_SIZE']} .venv-mpich/bin/python"
    if "HOROVOD_SIZE" in environ:
        return f".venv/bin/horovodrun -np {environ['HOROVOD_SIZE']} {python}"
    return python
