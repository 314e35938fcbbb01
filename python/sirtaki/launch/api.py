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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sirtaki.launch import sources, task
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import Settings, make_settings
from sirtaki.launch.job import run_job
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.output.tracebacks import shortened_text
from sirtaki.launch.plan import PlannedJob
from sirtaki.launch.processes.outcome import Failure
from sirtaki.launch.starters import shared_folder
from sirtaki.launch.starters.allocation import as_flag, find_allocation, take_allocation
from sirtaki.records import replace
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
    interfaces = [names for names in (network_interface, network_interfaces) if names]
    own = {
        "num_proc": num_proc,
        "min_num_proc": min_num_proc,
        "max_num_proc": max_num_proc,
        "controller": "mpi" if use_mpi else None,
        "network_interfaces": interfaces,
        "remote_python": executable,
        "verbose": bool(verbose),
        "command": [executable or sys.executable, "-m", task.__name__],
    }
    settings = _settings({**given, **own})
    leave = partial(leave_call, func=func, args=args, kwargs=kwargs or {})
    return _run(settings, leave) if settings.elastic is None else _run_elastic(settings, leave)


def _renamed(old: str, old_value: int | None, new: str, new_value: int | None) -> int | None:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    if new_value is not None and new_value != old_value:
        raise LaunchError(f"{old}={old_value} and {new}={new_value} contradict each other")
    return old_value


def _settings(given: Mapping[str, Any]) -> Settings:
    """Make the settings of a job of the arguments, by the names of the flags' attributes.

    Jobs of mpirun, and those whose hosts a function finds, get no allocation; neither does a rank
    of a job that calls `run`, which starts its processes on its own host.
    """
    args = make_parser("run").parse_args([])
    names = {*vars(args), "host_discovery"}
    vars(args).update({name: given[name] for name in names & given.keys()})
    if args.num_proc < 1:
        raise LaunchError(f"num_proc={args.num_proc} must be >= 1")
    if args.controller == "mpi":
        return _settings_of_mpirun(args)
    own_host = args.host_discovery is not None or "HOROVOD_RANK" in os.environ
    allocation = None if own_host else take_allocation(args, os.environ)
    return make_settings(args, os.environ, allocation)


def _settings_of_mpirun(args: argparse.Namespace) -> Settings:
    """Place ranks on the hosts given, else on those of several that a scheduler tells mpirun."""
    given = args.hosts is not None or args.hostfile is not None
    found = None if given else find_allocation(os.environ)
    if found is not None and len(found.hosts) > 1:
        args.hosts = as_flag(found.hosts)
    settings = make_settings(args, os.environ)
    assert settings.mpi is not None
    return replace(settings, mpi=replace(settings.mpi, hosts_given=given))


def _run(settings: Settings, leave: Callable[..., None]) -> list[Any]:
    job = PlannedJob(settings)
    with job.server as server:
        leave(server, job.secret)
        start = _run_by_launcher if settings.mpi is None else _run_by_mpi
        return _values(server, start(job), settings)


def leave_call(
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


def _run_elastic(settings: Settings, leave: Callable[..., None]) -> list[Any]:
    """Return what those processes returned that were there at the end, in rank order."""
    from sirtaki.launch.elastic.job import ElasticJob

    assert settings.elastic is not None
    with ElasticJob(settings, settings.elastic) as job:
        leave(job.server, job.secret)
        job.run(sys.stdout, sys.stderr, signals=None)
        return elastic_results(job.server, job.started)


def elastic_results(server: JobServer, started: int) -> list[Any]:
    """Return what those of the processes started returned that were there at the end, by rank."""
    import cloudpickle

    found = [
        cloudpickle.loads(data)
        for number in range(started)
        if (data := task.peek(server, f"{task.PREFIX}/result/{number}")) is not None
    ]
    returned = [result for result in found if "text" not in result]
    return [result["value"] for result in sorted(returned, key=lambda result: result["rank"])]


def _run_by_launcher(job: PlannedJob) -> Failure | str | None:
    """Start the workers ourselves; return what went wrong first. Raises LaunchError."""
    return run_job(job, sys.stdout, sys.stderr, signals=None).failure


def _run_by_mpi(job: PlannedJob) -> Failure | str | None:
    """Let mpirun start the workers; return what went wrong. Raises LaunchError.

    The secret lies in a private folder, on a file system that all hosts of the job share.
    """
    from sirtaki.launch.starters import mpi

    parent = shared_folder.shared_directory(os.environ)
    try:
        folder = shared_folder.create_folder(parent, "mpi")
    except OSError as error:
        raise LaunchError(f"cannot create a folder in {parent}: {error.strerror}") from None
    try:
        secret = folder / shared_folder.SECRET
        shared_folder.write_private(secret, job.secret)
        meeting = {"SIRTAKI_RENDEZVOUS": job.server.address, "SIRTAKI_SECRET_FILE": str(secret)}
        settings = job.settings
        settings = replace(settings, variables={**settings.variables, **meeting})
        launch = mpi.prepare(settings, os.environ)
        if settings.verbose:
            print(f"start: {shlex.join(launch.argv)}", file=sys.stderr)
        code = _run_and_show(launch.argv, launch.variables)
    finally:
        shared_folder.remove_folder(folder)
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
