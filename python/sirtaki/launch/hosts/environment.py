"""The variables through which a worker learns its place in the job."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Slot
from sirtaki.rendezvous.world.started_by import SET_FOR_TORCH

_PLACE = (
    "RANK",
    "SIZE",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "CROSS_RANK",
    "CROSS_SIZE",
    "EPOCH",
    "HOSTNAME",
    "RENDEZVOUS",
    "SECRET_FILE",
    "PROCESS",
    "ELASTIC",
    "WATCHED",
)
_OVERRIDING_PREFIX = "SIRTAKI_"
# What a rank on another host gets of our environment, so that all ranks compute alike: settings of
# the job, of Python, of frameworks, and of the libraries below them. The rest is that host's own.
_SENT_PREFIXES = (
    *("HOROVOD_", _OVERRIDING_PREFIX, "PYTHON"),
    *("TORCH", "PYTORCH_", "TF_", "TENSORFLOW_", "KERAS_", "XLA_", "JAX_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_"),
    *("NCCL_", "RCCL_", "UCX_", "CUBLAS_", "CUDNN_"),
)
_SENT_NAMES = ("PATH", "LD_LIBRARY_PATH", "MASTER_ADDR", "MASTER_PORT", "CUDA_LAUNCH_BLOCKING")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def base_environment(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return what all workers share: our environment less the place we may have in another job."""
    stale = {prefix + name for name in _PLACE for prefix in ("HOROVOD_", _OVERRIDING_PREFIX)}
    stale |= {SET_FOR_TORCH, *environ.get(SET_FOR_TORCH, "").split(",")}
    # SIRTAKI_X wins over HOROVOD_X, so a flag must replace both.
    stale |= {
        _OVERRIDING_PREFIX + name.removeprefix("HOROVOD_")
        for name in variables
        if name.startswith("HOROVOD_")
    }
    kept = {name: value for name, value in environ.items() if name not in stale}
    return {**kept, **variables, "PYTHONUNBUFFERED": "1"}


def sent_environment(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return what all workers of another host get: of our environment only what is listed."""
    allowed = {name: value for name, value in environ.items() if _is_sent(name)}
    return base_environment(allowed, variables)


def _is_sent(name: str) -> bool:
    return (name.startswith(_SENT_PREFIXES) or name in _SENT_NAMES) and not _SECRET.search(name)


def is_private(name: str, forwarded: Container[str]) -> bool:
    """Tell whether a variable may be a secret, by its name or because -x has named it."""
    return bool(_SECRET.search(name)) or (name in forwarded and not _is_sent(name))


def forwarded_variables(requests: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read the values of -x: "NAME=VALUE", or "NAME" for what we have. Raises LaunchError."""
    variables = {}
    for request in requests:
        name, given, value = request.partition("=")
        if _VARIABLE.fullmatch(name) is None or "\0" in value:
            raise LaunchError(f"-x {request}: expected NAME or NAME=VALUE")
        if not given and name not in environ:
            raise LaunchError(f"-x {name}: this variable is not set here; give {name}=VALUE")
        variables[name] = value if given else environ[name]
    return variables


def take_assignments(command: list[str]) -> dict[str, str]:
    """Remove what stands before a command as "NAME=value", as a shell does, and return it."""
    variables = {}
    while command:
        name, given, value = command[0].partition("=")
        if not given or _VARIABLE.fullmatch(name) is None:
            break
        variables[name] = value
        del command[0]
    return variables


def rank_environment(slot: Slot, rendezvous: str) -> dict[str, str]:
    """Return what one rank has in addition. rendezvous: the address of the store."""
    return {
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_HOSTNAME": slot.host,
        "SIRTAKI_RENDEZVOUS": rendezvous,
        "SIRTAKI_WATCHED": "1",
    }
