"""Checks for available features, and other small helpers."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from sirtaki.core.world import state

# Caches a function's result for the same arguments.
_cache = functools.cache
# Numbers, and the suffix of versions before that release.
_VERSION = re.compile(
    r"v?([0-9]+(?:\.[0-9]+)+)([-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|dev))?", re.IGNORECASE
)


def get_ext_suffix() -> str:
    """Return the file name suffix of compiled modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError unless the binding `ext_name`, such as "horovod.torch", can be imported."""
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(
            f"Extension {ext_name} has not been built: there is no {framework} here, or no binding "
            "for it"
        )


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether the binding of a framework can be imported: "torch", "tensorflow", "jax"."""
    installed = importlib.util.find_spec(ext_base_name) is not None
    return installed and importlib.util.find_spec(f"sirtaki.{ext_base_name}") is not None


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether the framework sees a GPU; False for those without a binding."""
    if ext_base_name != "torch" or not extension_available(ext_base_name):
        return False
    import torch

    return torch.cuda.is_available()


def mpi_built(verbose: bool = False) -> bool:
    """Return whether MPI can be used."""
    return state.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Return whether the native transport, which takes Gloo's place, can be used."""
    return state.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Return whether NCCL can be used."""
    return bool(state.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """Return whether IBM DDL can be used."""
    return state.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Return whether Intel oneCCL can be used."""
    return state.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Return whether CUDA tensors are reduced on the GPU."""
    return state.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Return whether ROCm tensors are reduced on the GPU."""
    return state.rocm_built()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Return whether a version is at least another.

    Args:
        ver: A version, such as "2.16.1", "2.5.0a0+git" or "2.4".
        target: The minimum version, as "major.minor.patch".

    Raises:
        ValueError: One of them is not a version.
    """
    if not isinstance(target, str) or not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", target):
        raise ValueError(f"target={target!r} is not a version as major.minor.patch")
    found = _VERSION.match(ver) if isinstance(ver, str) else None
    if found is None:
        raise ValueError(f"ver={ver!r} is not a version as major.minor.patch")
    numbers = [int(number) for number in found[1].split(".")]
    least = [int(number) for number in target.split(".")]
    numbers += [0] * (len(least) - len(numbers))
    # A prerelease of the target does not reach it.
    return numbers > least or (numbers == least and found[2] is None)


def split_list(items: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """Cut a list into `parts` lists that differ in length by at most one."""
    bounds = [len(items) * i // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(bounds)]


def is_iterable(x: object) -> bool:
    """Return whether `x` can be iterated over."""
    return isinstance(x, Iterable)


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Set environment variables, or unset those given as None, within the context."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
