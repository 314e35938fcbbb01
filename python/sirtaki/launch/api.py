"""`run`: call a function on several processes, from a script or a notebook."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sirtaki.launch import sources, task
from sirtaki.launch.elastic.settings import Elastic, elastic_settings
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import (
    MpiArguments,
    Settings,
    interface_names,
    mpi_arguments,
    network_variables,
    place,
    resolve_start_timeout,
)
from sirtaki.launch.job import run_job
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.output.tracebacks import shortened_text
from sirtaki.launch.plan import Job
from sirtaki.launch.processes.outcome import Failure
from sirtaki.launch.starters.allocation import (
    Allocation,
    as_flag,
    find_allocation,
    take_allocation,
)
from sirtaki.launch.starters.shared_folder import (
    SECRET,
    create_folder,
    remove_folder,
    shared_directory,
    write_private,
)
from sirtaki.launch.starters.ssh import Ssh
from sirtaki.rendezvous.stores.store import open_store

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

T = TypeVar("T")
_STORE_SECONDS = 60.0
# Programs look for these words in the error.
NON_ZERO_STATUS = "one or more processes exited with non-zero status"


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    host_discovery: Callable[[], Mapping[str, int]] | None = None,
) -> list[T]:
    """Call `func(*args, **kwargs)` on `num_proc` processes (default 1) that work together.

    Function, arguments and results travel by cloudpickle, so functions of a script or notebook
    work too. executable: the Python of the workers, default this one. The other arguments are
    those of the flags of `horovodrun`. In a job of Slurm, PBS or LSF the processes start on its
    hosts. host_discovery: called once a second, returns the hosts that an elastic job may use now
    with their slots, such as {"node-a": 4}. Returns the results in rank order; of an elastic job
    (min_num_proc, host_discovery_script or host_discovery is given) those of the processes that
    were there at the end. Raises
    RuntimeError naming the rank when a worker fails, from the exception that its function raised,
    or naming the host that cannot be reached or is lost; ValueError for arguments that contradict
    each other.
    """
    given = locals()
    num_proc = 1 if (size := _renamed("np", np, "num_proc", num_proc)) is None else size
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    if hosts is not None and hostfile is not None:
        raise LaunchError("give hosts or hostfile, not both")
    if use_gloo and use_mpi:
        raise LaunchError("give use_gloo or use_mpi, not both")
    where: _Where = (None, (hosts, hostfile))
    if host_discovery is None and host_discovery_script is None:
        find_hosts = _where_mpirun_starts if use_mpi else _where_we_start
        where = find_hosts(num_proc, hosts, hostfile)
    numbers = {"num_proc": num_proc, "min_num_proc": min_num_proc, "max_num_proc": max_num_proc}
    elastic = _elastic({**given, **numbers, "controller": "mpi" if use_mpi else None}, where)
    interfaces = [names for names in (network_interface, network_interfaces) if names]
    settings = _settings(
        num_proc,
        where[0],
        where[1] if elastic is None else (None, None),
        interface_names(interfaces),
        Ssh(ssh_port, ssh_identity_file, executable or sys.executable),
        start_timeout,
        executable,
        output_filename,
        bool(verbose),
        _mpi(mpi_args, hosts, hostfile) if use_mpi else None,
    )
    if elastic is not None:
        return _run_elastic(replace(settings, elastic=elastic, slots=[]), func, args, kwargs or {})
    return _run(settings, func, args, kwargs or {})


def _renamed(old: str, old_value: int | None, new: str, new_value: int | None) -> int | None:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    if new_value is not None and new_value != old_value:
        raise LaunchError(f"{old}={old_value} and {new}={new_value} contradict each other")
    return old_value


def _elastic(told: dict[str, object], where: _Where) -> Elastic | None:
    """Return how an elastic job goes on, None for one of a fixed size."""
    allocation, (told["hosts"], told["hostfile"]) = where
    return elastic_settings(told, os.environ, allocation.hosts if allocation is not None else ())


def _mpi(arguments: str | None, hosts: str | None, hostfile: str | None) -> MpiArguments | None:
    told = {"controller": "mpi", "mpi_args": arguments, "hosts": hosts, "hostfile": hostfile}
    return mpi_arguments(told)


# The scheduler's allocation to run in, if any, and the flags -H and -hostfile, given or found.
_Where = tuple["Allocation | None", tuple["str | None", "str | None"]]


def _where_mpirun_starts(_size: int, hosts: str | None, hostfile: str | None) -> _Where:
    """Return the hosts given, else those of several that a scheduler tells mpirun."""
    if hosts is None and hostfile is None:
        found = find_allocation(os.environ)
        if found is not None and len(found.hosts) > 1:
            return None, (as_flag(found.hosts), None)
    return None, (hosts, hostfile)


def _where_we_start(size: int, hosts: str | None, hostfile: str | None) -> _Where:
    """Return what a scheduler gave, unless other hosts are given.

    A rank of a job that calls `run` starts its processes on its own host.
    """
    if "HOROVOD_RANK" in os.environ:
        return None, (hosts, hostfile)
    asked = argparse.Namespace(
        num_proc=size, hosts=hosts, hostfile=hostfile, controller=None, host_discovery_script=None
    )
    allocation = take_allocation(asked, os.environ)
    return allocation, (asked.hosts, asked.hostfile)


def _settings(
    size: int,
    allocation: Allocation | None,
    where: tuple[str | None, str | None],
    interfaces: tuple[str, ...],
    ssh: Ssh,
    timeout: float | None,
    executable: str | None,
    directory: str | None,
    verbose: bool,
    mpi: MpiArguments | None,
) -> Settings:
    if size < 1:
        raise LaunchError(f"num_proc={size} must be >= 1")
    variables = network_variables(interfaces)
    if timeout is not None:
        variables["HOROVOD_START_TIMEOUT"] = f"{timeout:g}"
    return Settings(
        slots=place(size, *where, allocation),
        command=[executable or sys.executable, "-m", task.__name__],
        variables=variables,
        ssh=ssh,
        interfaces=interfaces,
        start_timeout=resolve_start_timeout(timeout, os.environ),
        output_directory=directory,
        verbose=verbose,
        mpi=mpi,
        allocation=allocation,
    )


def _run(
    settings: Settings,
    func: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[T]:
    job = Job(settings)
    with job.server as server:
        _leave_call(server, job.secret, func, args, kwargs)
        start = _run_by_launcher if settings.mpi is None else _run_by_mpi
        return _values(server, start(job), settings)


def _leave_call(
    server: JobServer,
    secret: bytes,
    func: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Leave what the workers are to call in the job's store."""
    import cloudpickle

    path = [str(Path(entry).absolute()) for entry in sys.path]
    surroundings = {"python": sys.version_info[:2], "path": path, "sources": sources.known()}
    call = cloudpickle.dumps((func, tuple(args), dict(kwargs)))
    store = open_store(server.address, _STORE_SECONDS, secret)
    task.put(store, f"{task.PREFIX}/surroundings", json.dumps(surroundings).encode())
    task.put(store, f"{task.PREFIX}/call", call)


def _run_elastic(
    settings: Settings,
    func: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[T]:
    """Return what those processes returned that were there at the end, in rank order."""
    import cloudpickle

    from sirtaki.launch.elastic.job import ElasticJob

    assert settings.elastic is not None
    with ElasticJob(settings, settings.elastic) as job:
        _leave_call(job.server, job.secret, func, args, kwargs)
        job.run(sys.stdout, sys.stderr, signals=None)
        found = [
            cloudpickle.loads(data)
            for number in range(job.started)
            if (data := task.peek(job.server, f"{task.PREFIX}/result/{number}")) is not None
        ]
    returned = [result for result in found if "text" not in result]
    return [result["value"] for result in sorted(returned, key=lambda result: result["rank"])]


def _run_by_launcher(job: Job) -> Failure | str | None:
    """Start the workers ourselves; return what went wrong first. Raises LaunchError."""
    return run_job(job, sys.stdout, sys.stderr, signals=None).failure


def _run_by_mpi(job: Job) -> Failure | str | None:
    """Let mpirun start the workers; return what went wrong. Raises LaunchError.

    The secret lies in a private folder, on a file system that all hosts of the job share.
    """
    from sirtaki.launch.starters import mpi

    parent = shared_directory(os.environ)
    try:
        folder = create_folder(parent, "mpi")
    except OSError as error:
        raise LaunchError(f"cannot create a folder in {parent}: {error.strerror}") from None
    try:
        secret = folder / SECRET
        write_private(secret, job.secret)
        meeting = {"SIRTAKI_RENDEZVOUS": job.server.address, "SIRTAKI_SECRET_FILE": str(secret)}
        settings = job.settings
        settings = replace(settings, variables={**settings.variables, **meeting})
        launch = mpi.prepare(settings, os.environ)
        if settings.verbose:
            print(f"start: {shlex.join(launch.argv)}", file=sys.stderr)
        code = _run_and_show(launch.argv, launch.variables)
    finally:
        remove_folder(folder)
    return f"mpirun exited with code {code}" if code != 0 else None


def _run_and_show(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program, with what it prints on our output, which may be a notebook's."""
    with subprocess.Popen(
        argv,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
    ) as program:
        assert program.stdout is not None
        shown = Destination(sys.stdout)
        try:
            for line in program.stdout:
                shown.write(line)
        except BaseException:
            program.terminate()
            raise
    return program.returncode


def _values(server: JobServer, failure: Failure | str | None, settings: Settings) -> list[Any]:
    """Return the results in rank order, or raise what went wrong first."""
    import cloudpickle

    slots = settings.slots
    results: dict[int, dict[str, Any]] = {}
    for slot in slots:
        data = task.peek(server, f"{task.PREFIX}/result/{slot.rank}")
        if data is not None:
            results[slot.rank] = cloudpickle.loads(data)
    if isinstance(failure, Failure) and failure.rank not in results:
        how = f"exited with code {failure.exit_code}"
        if failure.signal_name is not None:
            how = f"was killed by {failure.signal_name}"
        raise RuntimeError(
            f"{NON_ZERO_STATUS}; the first: rank {failure.rank} ({slots[failure.rank].host}) "
            f"{how} before its function returned"
        )
    raised = [rank for rank, result in results.items() if "text" in result]
    if raised:
        first = min(raised, key=lambda rank: float(results[rank]["time"]))
        error, text = results[first]["error"], results[first]["text"]
        if not settings.verbose:
            text = shortened_text(text)
        where = f"rank {first} ({slots[first].host})"
        raise RuntimeError(f"{NON_ZERO_STATUS}; the first: {where} failed:\n{text}") from error
    missing = [slot.rank for slot in slots if slot.rank not in results]
    if missing:
        how = f" ({failure})" if isinstance(failure, str) else ""
        raise RuntimeError(f"ranks {missing} ended without a result from their function{how}")
    return [results[slot.rank]["value"] for slot in slots]
