"""The command line of the system's ssh, and what its failures mean."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

AGENT = "sirtaki.launch.processes.agent"
_SSH_FAILED = 255
_NEW_HOST = "Warning: Permanently added "
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_SHELL_FOUND_NOTHING = r"(?i)command not found|no such file or directory|permission denied"
# The share of the start timeout, so that ssh can still report why it could not connect.
_CONNECT_SHARE = 0.8
# These override a user's configuration that would break the protocol or weaken security.
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


class Ssh(NamedTuple):
    """How to reach hosts by ssh.

    port: of all hosts but those in `ports`; None for the one in ssh's configuration. remote_python:
    the Python interpreter there, which has Sirtaki installed.
    """

    port: int | None = None
    identity_file: str | None = None
    remote_python: str = sys.executable
    ports: Mapping[str, int] = MappingProxyType({})


def ssh_command(ssh: Ssh, host: str, connect_seconds: float, module: str = AGENT) -> list[str]:
    """Return program and arguments that run the agent, or another module, on `host`.

    host: a name that `parse_hosts` accepted. connect_seconds: the timeout of the whole start.
    """
    command = ["ssh", "-T"]
    for option in (*_OPTIONS, f"ConnectTimeout={max(1, int(connect_seconds * _CONNECT_SHARE))}"):
        command += ["-o", option]
    port = ssh.ports.get(host, ssh.port)
    if port is not None:
        command += ["-p", str(port)]
    if ssh.identity_file is not None:
        command += ["-i", ssh.identity_file]
    # "--" keeps a host from being parsed as an option. A shell on the host runs the command.
    return [*command, "--", host, f"exec {shlex.quote(ssh.remote_python)} -u -m {module}"]


def explain_end(ssh: Ssh, exit_code: int | None, lines: Sequence[str]) -> str:
    """Explain in one sentence why ssh ended before the agent was ready.

    lines: standard error of ssh and of the remote shell.
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
    # Some shells, such as tcsh, exit with 1.
    unfound = python in text and re.search(_SHELL_FOUND_NOTHING, text) is not None
    if unfound or exit_code in (_NOT_EXECUTABLE, _NOT_FOUND):
        return f"there is no Python at {python}; say where it is with --remote-python{said}"
    return f"the agent ended with code {exit_code} before it was ready{said}"
