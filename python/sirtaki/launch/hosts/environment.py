"""The variables that give a worker its place in the job."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.sent import may_be_secret, sent
from sirtaki.launch.hosts.slots import Slot
from sirtaki.schedulers.start import PLACE_VARIABLES, SET_FOR_TORCH

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
# The agent of a host needs these itself, so they cannot come with the job.
_OF_AGENTS = ("PATH", "LD_LIBRARY_PATH")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def base_environment(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all workers share: ours without a place in another job."""
    stale = {prefix + name for name in _PLACE for prefix in ("HOROVOD_", _OVERRIDING_PREFIX)}
    # The variables of a pod or of another launcher would be the same for all ranks.
    stale |= {*PLACE_VARIABLES, SET_FOR_TORCH, *environ.get(SET_FOR_TORCH, "").split(",")}
    # SIRTAKI_X wins over HOROVOD_X, so a flag must replace both.
    stale |= {
        _OVERRIDING_PREFIX + name.removeprefix("HOROVOD_")
        for name in variables
        if name.startswith("HOROVOD_")
    }
    kept = {name: value for name, value in environ.items() if name not in stale}
    return {**kept, **variables, "PYTHONUNBUFFERED": "1"}


def sent_environment(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that all workers of another host get."""
    return base_environment(sent(environ), variables)


def is_private(name: str, value: str, forwarded: Container[str]) -> bool:
    """Return whether a variable looks like a secret or was named by -x."""
    if may_be_secret(name, value):
        return True
    return name in forwarded and name not in _OF_AGENTS and not name.startswith("PYTHON")


def forwarded_variables(requests: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Parse the values of -x: "NAME=VALUE", or "NAME" for our own value. Raises LaunchError."""
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
    """Remove the assignments "NAME=value" before a command, as a shell does; return them."""
    variables = {}
    while command:
        name, given, value = command[0].partition("=")
        if not given or _VARIABLE.fullmatch(name) is None:
            break
        variables[name] = value
        del command[0]
    return variables


# Those of the following that give the place in a world, which changes in an elastic job.
NAMES_OF_PLACE = frozenset(f"HOROVOD_{name}" for name in _PLACE[:6])


def rank_environment(slot: Slot, rendezvous: str) -> dict[str, str]:
    """Return the variables of one rank. rendezvous: the address of the store."""
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
