"""`horovodrun` and `sirtaki run`: from the arguments to the exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence

import sirtaki
from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.job import run_job
from sirtaki.launch.parser import make_parser
from sirtaki.launch.plan import Job, describe
from sirtaki.launch.schedulers import Allocation, take_allocation
from sirtaki.launch.settings import Settings, bring_in_config, make_settings
from sirtaki.launch.supervise import Failure, Outcome, SignalWatch


def run(arguments: Sequence[str], prog: str) -> int:
    """Do what the arguments say; returns the exit code.

    0: all workers ended well, 1: one failed, 2: the arguments are wrong, 126 and 127: the command
    cannot be executed or found, 128 + n: ended by signal n.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not end the job.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        args = make_parser(prog).parse_args(arguments)
        if args.version:
            print(sirtaki.__version__)
            return 0
        if args.check_build:
            from sirtaki.launch.check_build import print_check_build

            print_check_build()
            return 0
        bring_in_config(args)
        allocation = take_allocation(args, os.environ)
        if allocation is not None:
            return _launch_scheduled(allocation, args)
        settings = make_settings(args, os.environ)
        if settings.mpi is not None:
            # Here, because other jobs start faster without it.
            from sirtaki.launch import mpi

            return mpi.run(settings, os.environ)
        if args.mpi_args or args.binding_args:
            print(f"{prog}: --mpi-args and --binding-args have no effect here", file=sys.stderr)
        if settings.dry_run:
            print("\n".join(describe(settings)))
            return 0
        return _launch(settings)
    except LaunchError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return error.exit_code


def _launch(settings: Settings) -> int:
    job = Job(settings)
    with SignalWatch() as signals, job.server:
        outcome = run_job(job, sys.stdout, sys.stderr, signals)
    return _exit_code(outcome, settings)


def _launch_scheduled(allocation: Allocation, args: argparse.Namespace) -> int:
    # Here, because jobs outside of allocations start faster without it.
    from sirtaki.launch import scheduled

    settings = scheduled.scheduled_settings(allocation, args, os.environ)
    if settings.dry_run:
        print("\n".join(scheduled.describe(allocation, settings, os.environ)))
        return 0
    with SignalWatch() as signals:
        outcome = scheduled.run_scheduled(allocation, settings, os.environ, _report, signals)
    return _exit_code(outcome, settings)


def _report(message: str) -> None:
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def _exit_code(outcome: Outcome, settings: Settings) -> int:
    if outcome.signal_number is not None:
        if outcome.signal_number == signal.SIGPIPE:
            # Otherwise Python complains about the reader's absence once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + outcome.signal_number
    if outcome.failure is not None:
        print(_explain(outcome.failure, settings), file=sys.stderr)
        return FAILED
    return 0


def _explain(failure: Failure, settings: Settings) -> str:
    host = settings.slots[failure.rank].host
    cause = ""
    if failure.signal_name is not None:
        cause = f" (killed by {failure.signal_name})"
        if failure.signal_name == "SIGKILL":
            cause = " (killed by SIGKILL; often because memory ran out)"
    return (
        "One or more processes exited with non-zero status, so the job was terminated. "
        "The first process to do so was:\n"
        f"Process name: rank {failure.rank} on {host}\n"
        f"Exit code: {failure.exit_code}{cause}\n"
        f"Command: {shlex.join(settings.command)}"
    )
