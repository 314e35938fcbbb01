"""The settings of a job, as an object for custom launchers to fill in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any


@dataclass
class BaseSettings:
    """Settings of any job.

    Attributes:
        num_proc: The number of processes.
        verbose: The verbosity; 2 and more for debugging.
        ssh_port: The port of ssh on the hosts.
        ssh_identity_file: The key for ssh.
        extra_mpi_args: More arguments for mpirun, as one string.
        tcp_flag: Whether MPI uses TCP only.
        binding_args: Binding arguments for mpirun, as one string.
        key: The job's secret.
        start_timeout: The time limit for the start of all processes.
        output_filename: The folder for copies of the ranks' output.
        run_func_mode: Whether the job runs a function, not a command.
        nics: Names of network interfaces.
        elastic: Whether processes may join and leave.
        prefix_output_with_timestamp: Whether to prefix lines with the time.
    """

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = field(default=None, repr=False)
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
