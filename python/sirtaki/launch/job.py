"""One job from its settings to its outcome."""

from __future__ import annotations

import os
from functools import partial
from typing import TextIO

from sirtaki.inspect.live import open_metrics
from sirtaki.inspect.postmortem import kept_if_it_fails
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.sent import kept_back
from sirtaki.launch.job_watch import watch_of
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.output.progress import Progress
from sirtaki.launch.plan import PlannedJob, describe
from sirtaki.launch.processes.channels import FILES_OF_A_HOST, STREAMS_OF_A_RANK, room_for_files
from sirtaki.launch.processes.local import require_command, require_system
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.rendezvous.world.membership import Membership


def run_job(
    job: PlannedJob, stdout: TextIO, stderr: TextIO, signals: SignalWatch | None
) -> Outcome:
    """Start the workers and watch them to the end.

    job: with its store started. stdout, stderr: where the workers' lines go. signals: the watched
    signals of this process, None when they are the caller's. Raises LaunchError.
    """
    settings = job.settings
    require_system()
    if not all(plan.way for plan in job.plans):
        require_command(settings.command, {**os.environ, **settings.forwarded}.get("PATH"))
    outputs = outputs_of(settings, len(settings.slots), stdout, stderr)
    if settings.verbose:
        for line in describe(settings, os.environ):
            outputs.say(line)
    if any(plan.argv for plan in job.plans) and (left := kept_back(os.environ, settings.forwarded)):
        outputs.say(left)
    ranks = len(settings.slots)
    everybody = Membership.of(0, range(ranks))
    some_wait = partial(job.server.forms_world, everybody)
    progress = Progress(
        None if settings.verbose else stderr,
        ranks,
        len(job.plans),
        partial(job.server.joined, everybody),
    )
    watch = watch_of(settings, job.server.address, outputs.say)
    metrics = open_metrics(settings, job.server.address, outputs.say)
    with metrics, job.hosts(os.environ) as hosts, room_for_files(_open_files(job)):
        supervisor = Supervisor(
            hosts,
            outputs,
            signals,
            settings.start_timeout,
            some_wait,
            settings.verbose,
            progress=progress,
            watch=watch,
        )
        with kept_if_it_fails(settings, job.server.address, watch, outputs.say) as kept:
            return kept(supervisor.run())


def outputs_of(settings: Settings, ranks: int, stdout: TextIO, stderr: TextIO) -> Outputs:
    """Return the output streams of `ranks` ranks. Raises LaunchError."""
    outputs = Outputs(
        ranks,
        stdout,
        stderr,
        settings.output_directory,
        settings.timestamps,
        errors=Errors(settings.verbose),
        tee=settings.tee,
        shown=settings.output_ranks,
    )
    outputs.prepare()
    return outputs


def _open_files(job: PlannedJob) -> int:
    """Count the files we open: streams of local ranks and of hosts, store connections."""
    settings = job.settings
    here = sum(len(plan.slots) for plan in job.plans if not plan.way)
    directories = (settings.output_directory, settings.tee)
    kinds = sum(directory is not None for directory in directories)
    copies = kinds * STREAMS_OF_A_RANK * len(settings.slots)
    return (
        STREAMS_OF_A_RANK * here + FILES_OF_A_HOST * len(job.plans) + len(settings.slots) + copies
    )
