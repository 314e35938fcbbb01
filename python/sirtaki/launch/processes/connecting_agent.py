"""The agent that a scheduler starts on each host; it connects to the launcher.

Run as `connecting_agent.py FOLDER [HOST]`, see `shared_folder`. HOST is a number; without it, the
variables of the step give the number of this host.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Replace the folder of this file by that of the package, wherever it is on this host.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import sirtaki
from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.hosts.shared_folder import SECRET, read_job
from sirtaki.launch.processes.agent import Agent
from sirtaki.launch.processes.agent_server import secure
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.rendezvous.network.dial import dial
from sirtaki.rendezvous.stores.tcp_store import endpoints_of
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.schedulers import table

_FLUSH_SECONDS = 5.0
_READ_BYTES = 1 << 16


def host_and_count(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of this host and the number of hosts, from a step's own variables only.

    Raises LaunchError when this process is not a task of a step.
    """
    for each in table.here(environ):
        if each.has_task(environ):
            _, number, count = each.task
            with contextlib.suppress(KeyError, ValueError):
                return int(environ[number]), int(environ[count])
    raise LaunchError("no scheduler has started this agent: which host it is for is unknown")


def call(
    job: Mapping[str, Any], secret: bytes, number: int, patient: bool = False
) -> socket.socket:
    """Connect to the launcher as the agent of a host. Raises LaunchError, with the reason.

    job: as `read_job` returns it. patient: whether the launcher may still be about to start.
    """
    claim = number.to_bytes(auth.CLAIM_BYTES, "big")
    try:
        sock, _ = dial(
            endpoints_of(job["address"]),
            lambda: auth.Dialer(secret, auth.AGENT, auth.own_identity(), claim),
            "the launcher",
            time.monotonic() + job["seconds"],
            patient=patient,
            tls=True,
        )
    except auth.AuthenticationError as error:
        raise LaunchError(str(error), FAILED) from None
    except OSError as error:
        raise LaunchError(
            f"{error}. The launcher may have ended, or a firewall lets no connection from this "
            "host in there: open it for the hosts of the job, or choose another network with "
            "--network-interfaces",
            FAILED,
        ) from None
    return sock


def _take_all_cores() -> None:
    """Run on all CPUs of the step: Slurm may bind a task to the CPUs of a single task.

    An option of srun prevents that, but srun complains about it where it binds nothing. The step's
    cgroup, not the binding, keeps us off other jobs' cores.
    """
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def serve(job: Mapping[str, Any], secret: bytes, number: int, patient: bool = False) -> Agent:
    """Serve as the agent of a host until the job is over; returns the agent. See `call`."""
    relay = secure(call(job, secret, number, patient))
    with SignalWatch() as signals:
        # Nothing else may read our input.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        ours = relay.socket.fileno()
        # A step's signals go to all its processes, others only to the agent's session.
        together = any(
            each.signals_all and each.has_task(os.environ) for each in table.here(os.environ)
        )
        if together:
            _take_all_cores()
        agent = Agent(ours, os.dup(ours), signals, together)
        agent.run()
    # A close before the launcher has hung up could lose data in flight.
    deadline = time.monotonic() + _FLUSH_SECONDS
    relay.socket.settimeout(_FLUSH_SECONDS)
    with contextlib.suppress(OSError):
        while relay.socket.recv(_READ_BYTES) and time.monotonic() < deadline:
            pass
    relay.finish(deadline)
    return agent


def main(arguments: list[str]) -> int:
    """Serve the launcher that the folder names; returns the exit code."""
    who = f"sirtaki agent on {socket.gethostname()}"
    # A relative path would change with the working folder.
    folder = Path(arguments[0]).absolute()
    try:
        job, secret = read_job(folder), read_secret(str(folder / SECRET))
    except OSError as error:
        hint = "every host of the job must see that folder: set SIRTAKI_SHARED_DIR to one on a file"
        print(f"{who}: {error}; {hint} system that they share", file=sys.stderr)
        return FAILED
    try:
        if job["version"] != sirtaki.__version__:
            raise LaunchError(
                f"Sirtaki {sirtaki.__version__} is installed here, {job['version']} has started "
                "the job; install the same version on all hosts"
            )
        count = job["hosts"]
        number, found = (int(arguments[1]), count) if arguments[1:] else host_and_count(os.environ)
        if found != count or not 0 <= number < count:
            raise LaunchError(f"host {number} of {found} was started in a job of {count} hosts")
        serve(job, secret, number)
    except LaunchError as error:
        print(f"{who}: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
