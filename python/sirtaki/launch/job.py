"""One job from its settings to its outcome."""

from __future__ import annotations

import os
from typing import TextIO

from sirtaki.launch.local import require_command
from sirtaki.launch.output import Outputs
from sirtaki.launch.plan import Job, describe
from sirtaki.launch.supervise import Outcome, SignalWatch, Supervisor


def run_job(job: Job, stdout: TextIO, stderr: TextIO, signals: SignalWatch | None) -> Outcome:
    """Start the workers and watch them to the end.

    job: with its store started. stdout, stderr: where the workers' lines go. signals: the watched
    signals of this process, None when they are the caller's. Raises LaunchError.
    """
    settings = job.settings
    if any(plan.argv is None for plan in job.plans):
        require_command(settings.command)
    outputs = Outputs(
        len(settings.slots), stdout, stderr, settings.output_directory, settings.timestamps
    )
    outputs.prepare()
    if settings.verbose:
        for line in describe(settings):
            outputs.say(line)
    hosts = job.hosts(os.environ)
    return Supervisor(hosts, outputs, signals, settings.start_timeout).run()
