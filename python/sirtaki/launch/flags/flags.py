"""The flags of `horovodrun` and `sirtaki run`, as one typed value that nothing changes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from sirtaki.launch.flags.options import ROWS, Value
from sirtaki.launch.hosts.slots import Host, mounted_hostfile, parse_hosts, read_hostfile

_WHILE_DEBUGGING = {"stall_check": False, "start_timeout": 3600.0}


class Flags:
    """What the user asks for; None and False: not given.

    Each field but the first two and the last has the name of a flag in `parser`. knobs: the given
    flags of the tables in `options`, by name. host_discovery: an argument of `run`, which returns
    the hosts.
    """

    # A plain class, because a NamedTuple of so many fields takes a job's start 1.5 ms to make.
    command: Sequence[str] = ()
    knobs: Mapping[str, Value | bool] = MappingProxyType({})

    verbose: bool = False
    dry_run: bool = False
    config_file: str | None = None
    disable_cache: bool | None = False
    start_timeout: float | None = None
    termination_grace_seconds: float = 5.0

    output_filename: str | None = None
    tee: str | None = None
    output_ranks: frozenset[int] | None = None
    prefix_timestamp: bool = False
    debug_rank: int | None = None
    metrics_port: int | None = None
    metrics_token_file: str | None = None
    metrics_file: str | None = None
    metrics_interval: float | None = None

    num_proc: int | None = None
    hosts: str | None = None
    hostfile: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    remote_python: str | None = None
    forward: Sequence[str] | None = None
    bind_to: str | None = None
    network_interfaces: Sequence[str] | None = None
    tls: bool = False
    tcp: bool = False

    controller: str | None = None
    mpi_args: str | None = None
    binding_args: str | None = None

    nnodes: int | None = None
    node_rank: int | None = None
    nproc_per_node: str | None = None
    master_addr: str | None = None
    master_port: int | None = None

    min_num_proc: int | None = None
    max_num_proc: int | None = None
    spares: int | None = None
    slots: int | None = None
    elastic_timeout: float | None = None
    unresponsive: float | None = None
    leave_seconds: float | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    host_discovery_script: str | None = None
    host_discovery: Callable[[], Mapping[str, int]] | None = None

    def __init__(self, **given: Any) -> None:
        if unknown := given.keys() - self.__annotations__.keys():
            raise TypeError(f"there is no flag {', '.join(sorted(unknown))}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse the change; `but` returns a changed copy."""
        raise AttributeError(name)

    def but(self, **changes: Any) -> Flags:
        """Return a copy with these changes."""
        return Flags(**{**vars(self), **changes})

    @property
    def lists_hosts(self) -> bool:
        """Whether hosts are given, or they may change."""
        return any((self.hosts, self.hostfile, self.host_discovery_script, self.min_num_proc))

    def given_hosts(self) -> list[Host] | None:
        """Return the hosts of -H or --hostfile, None without. Raises LaunchError."""
        if self.hosts is not None:
            return parse_hosts(self.hosts)
        return None if self.hostfile is None else read_hostfile(self.hostfile)


def flags_of(values: Mapping[str, Any]) -> Flags:
    """Return the flags among the values, which have the names of a parser's attributes."""
    knobs = {row.dest: values[row.dest] for row in ROWS if values.get(row.dest) is not None}
    own = {name: values[name] for name in Flags.__annotations__.keys() & values.keys()}
    return Flags(**{**own, "knobs": knobs})


def read_flags(
    args: argparse.Namespace, environ: Mapping[str, str], warn: Callable[[str], object]
) -> Flags:
    """Return the flags of a command line, with those that its file and the variables determine.

    Args:
        args: The parsed command line.
        environ: The variables of this process.
        warn: Is called with each unknown key of the file.

    Raises:
        LaunchError: A value or a file is not valid.
    """
    values = dict(vars(args))
    if values["config_file"]:
        # Here, because the YAML parser takes as long to import as everything else.
        from sirtaki.launch.flags.config_file import read_config

        for name, value in read_config(values["config_file"], warn).items():
            if values[name] is None:
                values[name] = value
    if values["debug_rank"] is not None:
        # A rank that waits in a debugger must not count as stalled.
        for name, unless_given in _WHILE_DEBUGGING.items():
            if values[name] is None:
                values[name] = unless_given
    return _on_mounted_hosts(flags_of(values), environ)


def _on_mounted_hosts(flags: Flags, environ: Mapping[str, str]) -> Flags:
    """Let the job run on the hosts of a mounted file, unless hosts are given."""
    # An elastic job polls the operator's script instead.
    path = None if flags.lists_hosts else mounted_hostfile(environ)
    return flags if path is None else flags.but(hostfile=path)
