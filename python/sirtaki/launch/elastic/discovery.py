"""Which hosts an elastic job may use now: asked again and again in a thread of its own."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping

from sirtaki.launch.elastic.settings import Elastic, hosts_in_file
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import parse_hosts

_PAUSE_SECONDS = 1.0
_SCRIPT_SECONDS = 60.0
_MOST_TEXT = 300
Find = Callable[[], Mapping[str, int]]


def finder(elastic: Elastic) -> Find:
    """Return the function that says which hosts there are now, with their slots."""
    if elastic.script:
        return lambda: hosts_of_script(elastic.script, elastic.default_slots)
    if elastic.hostfile:
        return lambda: hosts_in_file(elastic.hostfile)
    fixed = {host.name: host.slots for host in elastic.hosts}
    return lambda: fixed


def hosts_of_script(script: str, default_slots: int) -> dict[str, int]:
    """Run a discovery script in a shell and read the lines "host" or "host:slots" that it prints.

    A host that stands there twice has the slots of its last line. Raises LaunchError.
    """
    try:
        done = subprocess.run(
            script,
            shell=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SCRIPT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"the host discovery script {script!r} did not end within {_SCRIPT_SECONDS:g} s"
        ) from None
    if done.returncode != 0:
        said = done.stderr.strip()[-_MOST_TEXT:]
        raise LaunchError(
            f"the host discovery script {script!r} ended with code {done.returncode}"
            + (f": {said}" if said else "")
        )
    return read_lines(done.stdout, script, default_slots)


def read_lines(text: str, script: str, default_slots: int) -> dict[str, int]:
    """Read what a discovery script has printed. Raises LaunchError naming the line."""
    hosts: dict[str, int] = {}
    for line in map(str.strip, text.splitlines()):
        if not line:
            continue
        try:
            (host,) = parse_hosts(line)
        except (LaunchError, ValueError):
            raise LaunchError(
                f"the host discovery script {script!r} printed {line[:_MOST_TEXT]!r}: expected "
                "lines such as node-a or node-a:4"
            ) from None
        has_slots = line.endswith(f":{host.slots}")
        hosts[host.name] = host.slots if has_slots else default_slots
    return hosts


class Discovery(threading.Thread):
    """Looks for hosts once a second. found: called with them, in the thread, when they change.

    trouble: called with a sentence when they cannot be found, once each time the reason changes;
    the last hosts stay. hosts: those that were found at first.
    """

    def __init__(
        self,
        find: Find,
        hosts: Mapping[str, int],
        found: Callable[[dict[str, int]], None],
        trouble: Callable[[str], None],
    ) -> None:
        super().__init__(name="sirtaki host discovery", daemon=True)
        self._find = find
        self._found = found
        self._trouble = trouble
        self._last = dict(hosts)
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until `end`."""
        reason = ""
        while not self._ended.wait(_PAUSE_SECONDS):
            try:
                hosts = dict(self._find())
            except LaunchError as error:
                if str(error) != reason:
                    self._trouble(f"{error}; the hosts stay as they were")
                reason = str(error)
                continue
            reason = ""
            if hosts != self._last:
                self._last = hosts
                self._found(hosts)

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
