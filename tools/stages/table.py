"""The stages of testing: what each tier runs, and how long a stage may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One call of make.

    Attributes:
        name: What reports call it.
        make: The target and the variables that it is given.
        minutes: Its budget on two cores, others beside it; more is told, and is no failure.
        cores: How many of the two it keeps busy: two stages of one core run side by side.
        after: Stages that must have passed before it starts.
    """

    name: str
    make: tuple[str, ...]
    minutes: float
    cores: int = 1
    after: tuple[str, ...] = ()


QUICK_CPP = "CPP_CHOICE=--test-suite-exclude=slow"
QUICK = "MARKS=not slow and not nightly"
SLOW = "MARKS=slow and not nightly"
BUILD = ("build",)

_BUILD = Stage("build", ("install",), 2, cores=2)
_CHECK = (
    Stage("lint", ("check-lint",), 1),
    Stage("build", ("install",), 1.5, cores=1),
    Stage("cpp", ("check-cpp",), 1.5, after=BUILD),
    Stage("single", ("check-single",), 1, after=BUILD),
    Stage("core", ("check-core",), 1, after=BUILD),
)
_TEST = (
    _BUILD,
    Stage("cpp", ("test-cpp", QUICK_CPP), 4, after=BUILD),
    Stage("hosts", ("test-hosts", QUICK), 3, after=BUILD),
    Stage("single", ("test-single", QUICK), 3, after=BUILD),
    Stage("framework ranks", ("test-framework-ranks", "FRAMEWORK_RANKS=2", "KERAS_RANKS=2",
                              "KERAS_BACKENDS=torch"), 3, after=BUILD),
    Stage("frameworks", ("test-framework-jobs", f"{QUICK} and not job", "WORKERS=1"), 1,
          after=BUILD),
    Stage("faults", ("test-faults", QUICK), 3, after=BUILD),
    Stage("caffe", ("test-caffe", QUICK), 2, after=BUILD),
    Stage("parallel", ("test-parallel", QUICK, "RANKS=2"), 2, after=BUILD),
    Stage("core", ("test-parallel", QUICK, "RANKS=3", "RANK_TESTS=tests/parallel/core"), 1,
          after=BUILD),
    Stage("group jobs", ("test-group-jobs", QUICK), 2, after=BUILD),
    Stage("group ranks", ("test-group-ranks", "GROUP_RANKS=2"), 1, after=BUILD),
    Stage("open mpi", ("test-open-mpi", QUICK, "MPI_BACKENDS="), 1, after=BUILD),
)  # fmt: skip
_TEST_ALL = (
    _BUILD,
    Stage("cpp", ("test-cpp", "CPP_CHOICE=--test-suite=slow"), 3, after=BUILD),
    Stage("cpp thread", ("test-cpp-thread", QUICK_CPP), 4),
    Stage("group jobs", ("test-group-jobs", SLOW), 4, after=BUILD),
    Stage("single", ("test-single", SLOW), 6, after=BUILD),
    Stage("framework jobs", ("test-framework-jobs", "MARKS=(slow or job) and not nightly"), 6,
          after=BUILD),
    Stage("hosts", ("test-hosts", SLOW), 4, after=BUILD),
    Stage("faults", ("test-faults", SLOW), 4, after=BUILD),
    Stage("caffe", ("test-caffe", SLOW), 2, after=BUILD),
    Stage("core", ("test-parallel", QUICK, "RANKS=1 4", "RANK_TESTS=tests/parallel/core"), 1,
          after=BUILD),
    Stage("parallel slow", ("test-parallel", SLOW, "RANKS=2"), 2, after=BUILD),
    Stage("group ranks", ("test-group-ranks", "GROUP_RANKS=3"), 1, after=BUILD),
    Stage("libraries", ("test-libraries", SLOW, "LIBRARIES=.venv-trainers"), 1, after=BUILD),
    Stage("open mpi", ("test-open-mpi", "MARKS=not nightly"), 3, after=BUILD),
    Stage("mpich", ("test-mpich", QUICK), 2, after=BUILD),
    Stage("fuzz", ("fuzz-python", "FUZZ_SECONDS=15"), 1, after=BUILD),
    # The same schedule each time, so that a failure is due to the change; nightly draws a new one.
    Stage("chaos", ("chaos", "MINUTES=2", "SEED=1", "REPRODUCIBLE=1"), 4, after=BUILD),
    Stage("simulation", ("simulate", "SEEDS=1000"), 1, cores=2, after=BUILD),
)  # fmt: skip
_REST = (
    _BUILD,
    Stage("lint", ("lint",), 3),
    Stage("docs", ("docs",), 1.5, after=BUILD),
    Stage("demo", ("demo",), 1.5, cores=2, after=BUILD),
    Stage("install", ("test-install",), 1, after=BUILD),
)
_NIGHTLY = (
    _BUILD,
    Stage("mutants", ("mutants", "MUTANTS=64"), 90, cores=2, after=BUILD),
    Stage("mutants in C++", ("mutants", "MUTANTS=16", "MUTANTS_OF=cpp"), 60, cores=2),
    Stage("cpp thread", ("test-cpp-thread",), 10),
    Stage("cpp address", ("test-cpp-address",), 15),
    Stage("fuzz", ("fuzz", "FUZZ_SECONDS=1200"), 65, after=BUILD),
    Stage("simulation", ("simulate", "SEEDS=50000", "FIRST=10000"), 40, cores=2, after=BUILD),
    Stage("chaos", ("chaos", "MINUTES=30"), 40, after=BUILD),
    Stage("chaos in parts", ("chaos", "MINUTES=15", "REPRODUCIBLE=1"), 20, after=BUILD),
    Stage("simulation faults", ("simulate-faults",), 20),
    Stage("single", ("test-single", "MARKS=nightly"), 8, after=BUILD),
    Stage("faults", ("test-faults", "MARKS=nightly"), 3, after=BUILD),
    Stage("hosts", ("test-hosts", "MARKS=nightly"), 20, after=BUILD),
    Stage("parallel", ("test-parallel", "RANKS=1 2 3 4"), 6, after=BUILD),
    Stage("distributed", ("test-distributed",), 8, after=BUILD),
    Stage("libraries", ("test-libraries",), 12, after=BUILD),
    Stage("loggers", ("test-loggers",), 1, after=BUILD),
    Stage("kubernetes", ("test-kubernetes",), 1, after=BUILD),
    Stage("ray", ("test-ray",), 8, after=BUILD),
    Stage("dask", ("test-dask",), 2, after=BUILD),
    Stage("spark", ("test-spark",), 10, after=BUILD),
    Stage("frameworks", ("test-frameworks",), 12, after=BUILD),
    Stage("mpi", ("test-mpi",), 6, after=BUILD),
    Stage("install", ("test-install", "FROM=. ./compat/horovod"), 3, after=BUILD),
    Stage("wheels", ("test-wheels",), 25, cores=2, after=BUILD),
    Stage("containers", ("test-containers",), 15, cores=2, after=BUILD),
    Stage("newest versions", ("try-frameworks", "TRY=*-newest-*"), 90, cores=2, after=BUILD),
)  # fmt: skip
TIERS = {
    "check": _CHECK,
    "test": _TEST,
    "test-all": _TEST_ALL,
    "rest": _REST,
    "nightly": _NIGHTLY,
}
