"""`horovodrun` and `sirtaki run`: from the arguments to the exit code."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence

import sirtaki
from sirtaki.interface import HOROVOD_VERSION, both_versions
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.errors import FAILED, STALLED, LaunchError
from sirtaki.launch.flags.flags import read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import Mpi, Settings, make_settings
from sirtaki.launch.hosts.nodes import take_nodes
from sirtaki.launch.job import run_job
from sirtaki.launch.output.destination import Destination
from sirtaki.launch.output.first_error import FirstError
from sirtaki.launch.output.summary import summary
from sirtaki.launch.plan import PlannedJob, describe
from sirtaki.launch.processes.guarding.process import drop_guardian
from sirtaki.launch.processes.outcome import Failure, Outcome
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.starters.allocation import take_allocation
from sirtaki.rendezvous.stores.store import TIMES_KEY


def run(arguments: Sequence[str], prog: str) -> int:
    """Run the job that the arguments describe; returns the exit code.

    0: all workers succeeded, 1: one failed, 2: the arguments are wrong, 70: ranks waited too long
    for others, 75: an elastic job left after a warning signal and should be requeued, 126 and 127:
    the command cannot be executed or does not exist, 128 + n: ended by signal n.
    """
    try:
        return _run(arguments, prog)
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except LaunchError as error:
        _say(f"{prog}: error: {error}")
        return error.exit_code
    except OSError as error:
        _say(f"{prog}: error: {error}")
        return FAILED


def _run(arguments: Sequence[str], prog: str) -> int:
    args = make_parser(prog).parse_args(arguments)
    if args.version:
        # Scripts compare the first line.
        _show(HOROVOD_VERSION if prog == "horovodrun" else sirtaki.__version__)
        _say(both_versions())
        return 0
    if args.check_build:
        from sirtaki.doctor.probe import print_check_build

        print_check_build()
        return 0
    return run_parsed(args, prog)


def run_parsed(args: argparse.Namespace, prog: str) -> int:
    """Run the job that the flags describe; see `run`. Raises LaunchError."""
    flags = read_flags(args, os.environ, lambda text: _say(f"{prog}: warning: {text}"))
    allocation = None
    flags, nodes = take_nodes(flags, os.environ)
    if nodes is None:
        flags, allocation = take_allocation(flags, os.environ)
    settings = make_settings(flags, os.environ, nodes or allocation)
    if nodes is not None and nodes.rank > 0 and not settings.dry_run:
        # Here, because other jobs start faster without it.
        from sirtaki.launch.starters.nodes import join

        return join(nodes, settings)
    if isinstance(settings.kind, Mpi):
        drop_guardian()  # mpirun replaces this process and would not reap a child
        # Here, because other jobs start faster without it.
        from sirtaki.launch.starters import mpi

        return mpi.run(settings, os.environ)
    if allocation is None and (flags.mpi_args or flags.binding_args):
        _say(f"{prog}: --mpi-args and --binding-args have no effect here")
    if isinstance(settings.kind, Elastic):
        return _launch_elastic(settings, settings.kind)
    return _launch(settings)


def _launch(settings: Settings) -> int:
    if settings.dry_run:
        _show("\n".join(describe(settings, os.environ)))
        return 0
    job = PlannedJob(settings)
    if all(plan.way for plan in job.plans):
        drop_guardian()  # no rank is on this host
    with SignalWatch() as signals, job.server:
        outcome = run_job(job, sys.stdout, sys.stderr, signals)
    if outcome.success:
        told = [job.server.peek(f"{TIMES_KEY}{slot.rank}") for slot in settings.slots]
        if any(told) and (text := summary(told)):
            _say(text)
    return _exit_code(outcome, settings)


def _launch_elastic(settings: Settings, elastic: Elastic) -> int:
    drop_guardian()  # all ranks may be on other hosts
    # Here, because other jobs start faster without it.
    from sirtaki.launch.elastic.job import ElasticJob, describe_elastic

    if settings.dry_run:
        _show("\n".join(describe_elastic(settings, elastic)))
        return 0
    planned = ElasticJob(settings, elastic)  # before: Ctrl-C ends a search for hosts
    with SignalWatch() as signals, planned as job:
        outcome = job.run(sys.stdout, sys.stderr, signals)
    if outcome.success and job.summary:
        _say(job.summary)
    return _exit_code(outcome, settings)


def _show(text: str) -> None:
    Destination(sys.stdout).write(text + "\n")


def _say(message: str) -> None:
    Destination(sys.stderr).say(message)


def _exit_code(outcome: Outcome, settings: Settings) -> int:
    if outcome.exit_code is not None:
        return outcome.exit_code
    if outcome.signal_number is not None:
        return 128 + outcome.signal_number
    if outcome.failure is not None:
        memory = outcome.out_of_memory.get(outcome.failure.rank, "")
        _say(_explain(outcome.failure, memory, settings))
        if outcome.first_error is not None and len(settings.slots) > 1:
            _say(_first(outcome.first_error, settings))
        return STALLED if outcome.stalled else FAILED
    return 0


def _first(error: FirstError, settings: Settings) -> str:
    """Describe the first error, for the end of the output: the ranks' messages are in between."""
    who = f"The first error is that of rank {error.rank} on {settings.slots[error.rank].host}:"
    return "\n".join([who, *error.lines]) if error.lines else f"{who} {error.error}"


def _explain(failure: Failure, memory: str, settings: Settings) -> str:
    host = settings.slots[failure.rank].host
    cause = ""
    if failure.signal_name is not None:
        cause = f" (killed by {failure.signal_name})"
        if memory:
            cause = f" (killed by SIGKILL: memory ran out in {memory})"
        elif failure.signal_name == "SIGKILL":
            cause = " (killed by SIGKILL; often because memory ran out)"
    return (
        "One or more processes exited with non-zero status, so the job was terminated. "
        "The first process to do so was:\n"
        f"Process name: rank {failure.rank} on {host}\n"
        f"Exit code: {failure.exit_code}{cause}\n"
        f"Command: {shlex.join(settings.command)}"
    )
