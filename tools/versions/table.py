"""What is tried: packages of which ages, on which Pythons, by which tests."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch

RANKS = ("horovodrun", "-np", "2")


@dataclass(frozen=True)
class Suite:
    """Tests that a version of a package can break.

    Attributes:
        paths: What pytest is given.
        launcher: A command of the environment that starts pytest, if any.
        marks: Which of the tests, as pytest's `-m`.
        variables: What the processes find in their environment.
    """

    paths: tuple[str, ...]
    launcher: tuple[str, ...] = RANKS
    marks: str = "not slow and not nightly"
    variables: tuple[tuple[str, str], ...] = ()


def _keras(backend: str) -> Suite:
    return Suite(("tests/frameworks/keras/ranks",), variables=(("KERAS_BACKEND", backend),))


# By the names that the page has for them.
SUITES = {
    "`hvd`": Suite(("tests/parallel/torch",)),
    "groups": Suite(("tests/distributed/ranks",)),
    "one process": Suite(("tests/single/torch", "tests/single/test_frameworks.py"), ()),
    "jobs": Suite(
        (
            "tests/single/repository/test_example_scripts.py::test_an_example_trains_on_two_processes",
            "tests/distributed/test_jobs.py",
        ),
        (),
        "",
    ),
    "PyTorch's own tests": Suite(("tests/distributed/test_pytorch_suite.py",), (), "not nightly"),
    "TensorFlow": Suite(("tests/frameworks/tensorflow/ranks",)),
    "Keras on TensorFlow": _keras("tensorflow"),
    "Keras on JAX": _keras("jax"),
    "Keras on PyTorch": _keras("torch"),
    "JAX": Suite(("tests/frameworks/jax/ranks",)),
    "Ray": Suite(("tests/clusters/ray",), (), ""),
    "Dask": Suite(("tests/clusters/dask",), (), ""),
    "Spark": Suite(("tests/clusters/spark",), (), ""),
    "Lightning": Suite(("tests/distributed/libraries/test_lightning.py",), (), ""),
}
TORCH = ("`hvd`", "groups", "one process")
ALL_OF_TORCH = (*TORCH, "jobs", "PyTorch's own tests")


@dataclass(frozen=True)
class Environment:
    """Packages that are installed together.

    Attributes:
        title: What the page calls the first of them.
        age: oldest, pinned (what the other tests run on) or newest.
        requirements: As pip takes them.
        pythons: The interpreters, each of which gets an environment of its own.
        suites: Names of what is run.
        variables: What the processes of all suites find in their environment.
    """

    title: str
    age: str
    requirements: tuple[str, ...]
    pythons: tuple[str, ...]
    suites: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def package(self) -> str:
        """The package whose version the page names."""
        return self.requirements[0].partition("==")[0]


OLDEST, PINNED, ALL = ("3.10",), ("3.11",), ("3.10", "3.11", "3.12", "3.13", "3.14")
# Those that are large or slow.
ENDS = ("3.10", "3.13", "3.14")
COMMS = (("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "1"),)
PINNED_TORCH = "torch==2.13.0"
TENSORFLOW_CPU = ("tensorflow-cpu", "tf_keras")
# The first one is that of the page.
RAY = ("ray", "ray[client,train]", "pandas", "pyarrow", PINNED_TORCH)
SPARK = ("pyspark", "pandas<3", "pyarrow", PINNED_TORCH, "lightning", "keras")

ENVIRONMENTS = (
    Environment("PyTorch", "oldest", ("torch==2.4.0",), OLDEST, ("`hvd`", "one process")),
    # The oldest whose groups can be ours. How many of PyTorch's own tests must pass is known of the
    # newer ones only.
    Environment("PyTorch", "between", ("torch==2.7.0",), OLDEST, (*TORCH, "jobs")),
    Environment("PyTorch", "pinned", (PINNED_TORCH, "keras"), PINNED,
                (*ALL_OF_TORCH, "Keras on PyTorch")),
    Environment("PyTorch", "newest", ("torch", "keras"), ENDS, (*TORCH, "Keras on PyTorch")),
    Environment("PyTorch", "newest", ("torch",), ("3.12",), ALL_OF_TORCH),
    Environment("PyTorch with torchcomms", "newest", ("torch",), ("3.12",), ALL_OF_TORCH, COMMS),
    Environment("TensorFlow", "oldest", ("tensorflow-cpu==2.16.1", "tf_keras==2.16.0"), OLDEST,
                ("TensorFlow",)),
    Environment("TensorFlow", "pinned", ("tensorflow-cpu==2.21.0", "tf_keras==2.21.0"), PINNED,
                ("TensorFlow",)),
    Environment("TensorFlow", "newest", TENSORFLOW_CPU, ENDS, ("TensorFlow",)),
    Environment("Keras", "oldest", ("keras==3.8.0", *TENSORFLOW_CPU, "jax<0.7"), OLDEST,
                ("Keras on TensorFlow",)),
    Environment("Keras", "pinned", ("keras==3.15.1", "tensorflow-cpu==2.21.0", "tf_keras==2.21.0",
                                    "jax==0.10.2"), PINNED,
                ("Keras on TensorFlow", "Keras on JAX")),
    Environment("Keras", "newest", ("keras", *TENSORFLOW_CPU, "jax"), ENDS,
                ("Keras on TensorFlow", "Keras on JAX")),
    Environment("JAX", "oldest", ("jax==0.6.0", "jaxlib==0.6.0", "optax"), OLDEST, ("JAX",)),
    Environment("JAX", "pinned", ("jax==0.10.2", "jaxlib==0.10.2", "optax"), PINNED, ("JAX",)),
    Environment("JAX", "newest", ("jax", "optax"), ALL, ("JAX",)),
    Environment("Ray", "newest", RAY, ENDS, ("Ray",)),
    Environment("Dask", "newest", ("dask", "distributed", PINNED_TORCH), ENDS, ("Dask",)),
    Environment("Spark", "newest", SPARK, ENDS, ("Spark",)),
    Environment("Lightning", "newest", ("lightning", PINNED_TORCH), ENDS, ("Lightning",)),
)  # fmt: skip


def chosen(patterns: list[str]) -> list[tuple[Environment, str]]:
    """Return environments and their Pythons whose names, as torch-newest-3.13, fit a pattern."""
    return [
        (environment, python)
        for environment in ENVIRONMENTS
        for python in environment.pythons
        if any(fnmatch(name(environment, python), pattern) for pattern in patterns)
    ]


def name(environment: Environment, python: str) -> str:
    """Return what the command line calls an environment on a Python."""
    comms = "-torchcomms" if environment.variables else ""
    return f"{environment.package}-{environment.age}-{python}{comms}"
