"""`run`: call a function on several processes, from a script or a notebook."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sirtaki import shipped
from sirtaki.launch import task
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.flags.flags import Flags, flags_of
from sirtaki.launch.flags.settings import Mpi, Settings, make_settings
from sirtaki.launch.hosts import shared_folder
from sirtaki.launch.job import run_job
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.output.tracebacks import shortened_text
from sirtaki.launch.plan import PlannedJob
from sirtaki.launch.processes.outcome import Failure
from sirtaki.launch.starters.allocation import as_flag, find_allocation, take_allocation
from sirtaki.rendezvous.stores.store import open_store

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

T = TypeVar("T")
_STORE_SECONDS = 60.0
# Callers search the error's message for these words.
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

    The function, its arguments and its results are pickled with cloudpickle, so functions defined
    in a script or notebook work too. executable: the workers' Python interpreter, by default this
    one. host_discovery: called once a second; it returns the hosts that an elastic job may use
    now with their slots, such as {"node-a": 4}. The other arguments correspond to the flags of
    `horovodrun`. Under a scheduler the processes start on the hosts that it allocated. Returns the
    results in rank order; an elastic job (min_num_proc, host_discovery_script or host_discovery is
    given) returns those of the processes that were running at the end. Raises RuntimeError naming
    the rank when a worker fails, chained to the exception that its function raised, or naming the
    host that cannot be reached or is lost; ValueError for arguments that contradict each other.
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
    if isinstance(settings.kind, Elastic):
        return _run_elastic(settings, settings.kind, leave)
    return _run(settings, leave)


def _renamed(old: str, old_value: int | None, new: str, new_value: int | None) -> int | None:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    if new_value is not None and new_value != old_value:
        raise LaunchError(f"{old}={old_value} and {new}={new_value} contradict each other")
    return old_value


def _settings(given: Mapping[str, Any]) -> Settings:
    """Make a job's settings from the arguments, of which some have the names of flags.

    Jobs started by mpirun and jobs whose hosts a function returns get no allocation. Neither does
    a rank of a job that calls `run`: it starts its processes on its own host.
    """
    flags = flags_of(given)
    if given["num_proc"] < 1:
        raise LaunchError(f"num_proc={flags.num_proc} must be >= 1")
    if flags.controller == "mpi":
        return _settings_of_mpirun(flags)
    allocation = None
    if flags.host_discovery is None and "HOROVOD_RANK" not in os.environ:
        flags, allocation = take_allocation(flags, os.environ)
    return make_settings(flags, os.environ, allocation)


def _settings_of_mpirun(flags: Flags) -> Settings:
    """Place ranks on the given hosts, or on the several that a scheduler passes to mpirun."""
    given = flags.hosts is not None or flags.hostfile is not None
    found = None if given else find_allocation(os.environ)
    if found is not None and len(found.hosts) > 1:
        flags = flags.but(hosts=as_flag(found.hosts))
    settings = make_settings(flags, os.environ)
    assert isinstance(settings.kind, Mpi)
    return settings._replace(kind=settings.kind._replace(hosts_given=given))


def _run(settings: Settings, leave: Callable[..., None]) -> list[Any]:
    job = PlannedJob(settings)
    with job.server as server:
        leave(server, job.secret)
        start = _run_by_mpi if isinstance(settings.kind, Mpi) else _run_by_launcher
        return _values(server, start(job), settings)


def leave_call(
    server: JobServer,
    secret: bytes,
    func: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Put the function that the workers call, and its arguments, in the job's store."""
    path = [str(Path(entry).absolute()) for entry in sys.path]
    surroundings = {"python": sys.version_info[:2], "path": path}
    call = shipped.dumps((func, tuple(args), dict(kwargs)))
    store = open_store(server.address, _STORE_SECONDS, secret)
    task.put(store, f"{task.PREFIX}/surroundings", json.dumps(surroundings).encode())
    task.put(store, f"{task.PREFIX}/call", call)


def _run_elastic(settings: Settings, elastic: Elastic, leave: Callable[..., None]) -> list[Any]:
    """Return the results of the processes that were running at the end, in rank order."""
    from sirtaki.launch.elastic.job import ElasticJob

    with ElasticJob(settings, elastic) as job:
        leave(job.server, job.secret)
        job.run(sys.stdout, sys.stderr, signals=None)
        return elastic_results(job.server, job.started)


def elastic_results(server: JobServer, started: int) -> list[Any]:
    """Return the results of those of the started processes that ran to the end, by rank."""
    found = [
        pickle.loads(data)
        for number in range(started)
        if (data := task.peek(server, f"{task.PREFIX}/result/{number}")) is not None
    ]
    returned = [result for result in found if "text" not in result]
    ordered = sorted(returned, key=lambda result: int(result["rank"]))
    return [shipped.value_of(result["value"], result["rank"]) for result in ordered]


def _run_by_launcher(job: PlannedJob) -> Failure | str | None:
    """Start the workers without mpirun; return the first failure. Raises LaunchError."""
    return run_job(job, sys.stdout, sys.stderr, signals=None).failure


def _run_by_mpi(job: PlannedJob) -> Failure | str | None:
    """Start the workers with mpirun; return the failure, if any. Raises LaunchError.

    The secret is in a private folder on a file system that all hosts of the job share.
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
        settings = settings._replace(variables={**settings.variables, **meeting})
        launch = mpi.prepare(settings, os.environ)
        if settings.verbose:
            print(f"start: {shlex.join(launch.argv)}", file=sys.stderr)
        code = _run_and_show(launch.argv, launch.variables)
    finally:
        shared_folder.remove_folder(folder)
    return f"mpirun exited with code {code}" if code != 0 else None


def _run_and_show(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program and copy its output to ours, which may be a notebook's."""
    try:
        program = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
        )
    except OSError as error:
        raise LaunchError(f"{argv[0]} cannot be started: {error.strerror}", FAILED) from None
    with program:
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
    """Return the results in rank order, or raise the first failure."""
    slots = settings.slots
    results: dict[int, dict[str, Any]] = {}
    for slot in slots:
        data = task.peek(server, f"{task.PREFIX}/result/{slot.rank}")
        if data is not None:
            results[slot.rank] = pickle.loads(data)
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
        error, text = shipped.error_of(results[first]["error"]), results[first]["text"]
        if not settings.verbose:
            text = shortened_text(text)
        where = f"rank {first} ({slots[first].host})"
        raise RuntimeError(f"{NON_ZERO_STATUS}; the first: {where} failed:\n{text}") from error
    missing = [slot.rank for slot in slots if slot.rank not in results]
    if missing:
        how = f" ({failure})" if isinstance(failure, str) else ""
        raise RuntimeError(f"ranks {missing} ended without a result from their function{how}")
    return [shipped.value_of(results[slot.rank]["value"], slot.rank) for slot in slots]
