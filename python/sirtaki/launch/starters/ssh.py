"""The command line of the system's ssh, and what its failures mean."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from sirtaki.records import dataclass

AGENT = "sirtaki.launch.processes.agent"
_SSH_FAILED = 255
_NEW_HOST = "Warning: Permanently added "
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
# Of the time for the start, so that ssh can still say itself why it did not get through.
_CONNECT_SHARE = 0.8
# Ours win over the user's configuration where that would break the protocol or weaken the job.
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=accept-new",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=2",
    "ControlMaster=no",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
)


@dataclass(frozen=True)
class Ssh:
    """How to reach hosts. remote_python: the Python there, which has Sirtaki installed."""

    port: int | None = None
    identity_file: str | None = None
    remote_python: str = sys.executable


def ssh_command(ssh: Ssh, host: str, connect_seconds: float, module: str = AGENT) -> list[str]:
    """Return program and arguments that run the agent, or another module, on `host`.

    host: a name that `parse_hosts` has accepted. connect_seconds: the time for the whole start.
    """
    command = ["ssh", "-T"]
    for option in (*_OPTIONS, f"ConnectTimeout={max(1, int(connect_seconds * _CONNECT_SHARE))}"):
        command += ["-o", option]
    if ssh.port is not None:
        command += ["-p", str(ssh.port)]
    if ssh.identity_file is not None:
        command += ["-i", ssh.identity_file]
    # Without "--" a host that looks like an option would be one. The remote side is a shell.
    return [*command, "--", host, f"exec {shlex.quote(ssh.remote_python)} -u -m {module}"]


def explain_end(ssh: Ssh, exit_code: int | None, lines: Sequence[str]) -> str:
    """Say in one sentence why ssh ended before the agent was there.

    lines: what ssh and the remote shell have printed on standard error.
    """
    lines = [line for line in lines if not line.startswith(_NEW_HOST)]
    text = "\n".join(lines)
    said = f": {'; '.join(lines)}" if lines else ""
    python = ssh.remote_python
    if exit_code == _SSH_FAILED:
        return f"ssh could not connect{said}"
    if "No module named" in text and "sirtaki" in text:
        return (
            f"Sirtaki is not installed for {python} there; install the version that runs here, or "
            f"name another Python with --remote-python ({lines[-1]})"
        )
    if exit_code in (_NOT_EXECUTABLE, _NOT_FOUND):
        return f"there is no Python at {python}; say where it is with --remote-python{said}"
    return f"the agent ended with code {exit_code} before it was ready{said}"
