"""What a job is, as one object that launchers of their own fill in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass
class BaseSettings:
    """Settings of any job.

    Attributes:
        num_proc: How many processes.
        verbose: How much is said; 2 and more is debugging.
        ssh_port: The port of ssh on the hosts.
        ssh_identity_file: The key for ssh.
        extra_mpi_args: More arguments for mpirun, as one text.
        tcp_flag: Whether MPI is to use TCP only.
        binding_args: Binding arguments for mpirun, as one text.
        key: The job's secret.
        start_timeout: How long all processes may take to start.
        output_filename: The folder for copies of what ranks print.
        run_func_mode: Whether a function is run, not a command.
        nics: Names of network interfaces.
        elastic: Whether processes may come and go.
        prefix_output_with_timestamp: Whether lines begin with the time.
    """

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None
    start_timeout: Any = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Collection[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass
class Settings(BaseSettings):
    """Settings of a job with a fixed number of processes. hosts: "name:slots[,name:slots…]"."""

    hosts: str | None = None
