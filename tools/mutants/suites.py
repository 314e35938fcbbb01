"""Which parts of the project there are, and which tests should notice a fault in each."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS = 2
_LAUNCHER = (
    *(sys.executable, "-c"),
    "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())",
    *("-np", str(RANKS)),
)
_TORCHRUN = (*(sys.executable, "-m", "torch.distributed.run"), f"--nproc-per-node={RANKS}")


@dataclass(frozen=True)
class Suite:
    """Tests that are started together.

    Attributes:
        name: What reports call it.
        patterns: Its files, from the root of the repository.
        starter: What starts its ranks; empty where pytest is the only process.
        marks: Which tests, as pytest's `-m` takes it.
        variables: Environment variables that it needs.
        unseen: Files of the package that its jobs run in isolated interpreters, where coverage
            sees nothing: all of its tests are taken to run them.
    """

    name: str
    patterns: tuple[str, ...]
    starter: tuple[str, ...] = ()
    marks: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    unseen: tuple[str, ...] = ()

    def files(self, root: Path = ROOT) -> list[str]:
        """Return the files, relative to the root."""
        return matched(root, self.patterns, self.name)

    def command(self, tests: list[str], options: tuple[str, ...], tracer: tuple[str, ...] = ()):
        """Return the command that runs some of the tests."""
        python = () if self.starter == _TORCHRUN else (sys.executable,)
        marks = ("-m", self.marks) if self.marks else ()
        return [*self.starter, *python, "-m", *tracer, "pytest", *options, *marks, *tests]

    def environment(self, package: Path) -> dict[str, str]:
        """Return the environment in which the tests import a copy of the package."""
        return {
            **os.environ,
            **dict(self.variables),
            "PYTHONPATH": str(package),
            "OMP_NUM_THREADS": "1",
            # A fault of the same length in the same second would look compiled already.
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def matched(root: Path, patterns: tuple[str, ...], whose: str) -> list[str]:
    """Return the files that match, relative to the root; a pattern without a file is an error."""
    found: set[str] = set()
    for pattern in patterns:
        files = {str(path.relative_to(root)) for path in root.glob(pattern) if path.is_file()}
        if not files:
            raise ValueError(f"{whose}: no file matches {pattern} below {root}")
        found |= files
    return sorted(found)


def of_ranks(name: str, *patterns: str, **variables: str) -> Suite:
    """Tests that run in the ranks of a job."""
    return Suite(name, patterns, _LAUNCHER, variables=tuple(variables.items()))


SINGLE = Suite(
    "single",
    (
        "tests/single/test_e*.py",
        "tests/single/test_l[ei]*.py",
        "tests/single/questions/test_*.py",
        "tests/single/rendezvous/**/test_*.py",
        "tests/single/test_snapshot.py",
        "tests/single/test_unpickling.py",
        "tests/single/elastic/test_*.py",
        "tests/single/torch/test_*.py",
    ),
)
LAUNCH = Suite(
    "launch",
    (
        "tests/single/doctor/test_*.py",
        "tests/single/inspect/**/test_*.py",
        "tests/single/launch/**/test_*.py",
        "tests/single/submit/test_*.py",
        "tests/single/mpi/test_mpirun.py",
        "tests/faults/test_launcher_*.py",
    ),
    unseen=(
        "sirtaki/launch/processes/agent.py",
        "sirtaki/launch/processes/guarding/watch.py",
        "sirtaki/launch/processes/guarding/workers.py",
    ),
)
PARALLEL = of_ranks("parallel", "tests/parallel/**/test_*.py")
DISTRIBUTED = Suite("distributed", ("tests/distributed/ranks/test_*.py",), _TORCHRUN)
TENSORFLOW = of_ranks("tensorflow", "tests/frameworks/tensorflow/ranks/test_*.py")
TENSORFLOW_DATA = Suite("tensorflow.data", ("tests/frameworks/tensorflow/test_data_service.py",))
TENSORFLOW_JOBS = Suite("tensorflow jobs", ("tests/frameworks/tensorflow/test_jobs.py",))
JAX = of_ranks("jax", "tests/frameworks/jax/ranks/test_*.py")
KERAS = of_ranks("keras", "tests/frameworks/keras/ranks/test_*.py", KERAS_BACKEND="tensorflow")
KERAS_ON_JAX = of_ranks(
    "keras on jax", "tests/frameworks/keras/ranks/test_*.py", KERAS_BACKEND="jax"
)
KERAS_ON_TORCH = of_ranks(
    "keras on torch", "tests/frameworks/keras/ranks/test_*.py", KERAS_BACKEND="torch"
)
NAMES = Suite(
    "names",
    (
        "tests/frameworks/test_api_coverage.py",
        "tests/frameworks/test_requirements.py",
        "tests/frameworks/tensorflow/test_names.py",
    ),
)
CAFFE = Suite("caffe", ("sirtaki-caffe/caffe_tests/**/test_*.py",), marks="not job")

# The files of a part, in their packages, and the suites that should notice.
PARTS: dict[str, tuple[tuple[str, ...], tuple[Suite, ...]]] = {
    "core": (("sirtaki/core/**/*.py", "sirtaki/numpy/*.py"), (SINGLE, PARALLEL)),
    "torch": (("sirtaki/torch/**/*.py",), (SINGLE, PARALLEL, DISTRIBUTED)),
    "schedulers": (("sirtaki/schedulers/*.py",), (SINGLE, LAUNCH)),
    "rendezvous": (("sirtaki/questions/*.py", "sirtaki/rendezvous/**/*.py"), (SINGLE,)),
    "launch": (
        (
            "sirtaki/doctor/**/*.py",
            "sirtaki/inspect/**/*.py",
            "sirtaki/launch/**/*.py",
            "sirtaki/submit/*.py",
        ),
        (LAUNCH,),
    ),
    "tensorflow": (
        ("sirtaki/tensorflow/**/*.py",),
        (NAMES, TENSORFLOW, KERAS, TENSORFLOW_DATA, TENSORFLOW_JOBS),
    ),
    "keras": (("sirtaki/keras/**/*.py",), (NAMES, KERAS, KERAS_ON_TORCH, KERAS_ON_JAX)),
    "jax": (("sirtaki/jax/*.py",), (NAMES, JAX)),
    "caffe": (("sirtaki_caffe/**/*.py",), (CAFFE,)),
}
# These parts are compiled anew for each fault.
CPP_FILES = ("cpp/*/*.cpp", "cpp/*/*/*.cpp", "cpp/*/*.h", "cpp/*/*/*.h")
CPP_ELSEWHERE = ("cpp/python/", "cpp/tensorflow/", "cpp/jax/", "cpp/ffi/")
