"""Host discovery for elastic jobs: a thread polls for the hosts that a job may use now."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

from sirtaki.launch.elastic.settings import Elastic, FindHosts, hosts_in_file
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import parse_hosts, refuse_ports
from sirtaki.rendezvous.threads import Lasting, start_thread

_PAUSE_SECONDS = 1.0
_SCRIPT_SECONDS = 60.0
_MOST_TEXT = 300
Find = Callable[[], Mapping[str, int]]
Warn = Callable[[str], object]


def finder(elastic: Elastic, warn: Warn = str) -> Find:
    """Return the function that returns the current hosts with their slots.

    warn: called once with each problem that is not an error; by default nothing is said.
    """
    if elastic.function is not None:
        return _Function(elastic.function)
    if elastic.script:
        once = functools.cache(warn)
        return lambda: hosts_of_script(elastic.script, elastic.default_slots, once)
    if elastic.hostfile:
        return lambda: hosts_in_file(elastic.hostfile)
    fixed = {host.name: host.slots for host in elastic.hosts}
    return lambda: fixed


def hosts_of_script(script: str, default_slots: int, warn: Warn = str) -> dict[str, int]:
    """Run a discovery script in a shell and read the lines "host" or "host:slots" that it prints.

    A host listed twice has the slots of its last line. warn: called if the lines differ.
    Raises LaunchError.
    """
    try:
        # In a session of its own, so that all its processes can be killed after the timeout.
        running = subprocess.Popen(
            script,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(
            f"the host discovery script {script!r} cannot be started: {error.strerror}"
        ) from None
    with running:
        try:
            printed, said = running.communicate(timeout=_SCRIPT_SECONDS)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise LaunchError(
                f"the host discovery script {script!r} did not end within {_SCRIPT_SECONDS:g} s"
            ) from None
    if running.returncode != 0:
        said = said.strip()[-_MOST_TEXT:]
        raise LaunchError(
            f"the host discovery script {script!r} ended with code {running.returncode}"
            + (f": {said}" if said else "")
        )
    return read_lines(printed, script, default_slots, warn)


class _Function:
    """Calls the user's function, which returns a mapping from host names to slots."""

    def __init__(self, function: FindHosts) -> None:
        self._function = function
        self._name = getattr(function, "__qualname__", repr(function))
        self._answers: queue.SimpleQueue[Mapping[str, int] | BaseException] = queue.SimpleQueue()
        self._asked = False

    def __call__(self) -> dict[str, int]:
        """Call the function in a thread, so that it cannot block this one. Raises LaunchError."""
        if not self._asked:
            start_thread(self._ask, "sirtaki host discovery")
            self._asked = True
        try:
            answer = self._answers.get(timeout=_SCRIPT_SECONDS)
        except queue.Empty:
            raise LaunchError(
                f"the host discovery function {self._name} did not return within "
                f"{_SCRIPT_SECONDS:g} s"
            ) from None
        self._asked = False
        if isinstance(answer, BaseException):
            raise LaunchError(
                f"the host discovery function {self._name} raised {type(answer).__name__}: {answer}"
            ) from answer
        return self._checked(answer)

    def _ask(self) -> None:
        try:
            self._answers.put(self._function())
        except BaseException as error:  # SystemExit too, or it would be lost
            self._answers.put(error)

    def _checked(self, answer: object) -> dict[str, int]:
        try:
            if not isinstance(answer, Mapping):
                raise TypeError(answer)
            named = {parse_hosts(str(name))[0]: int(slots) for name, slots in answer.items()}
            refuse_ports(named, "an elastic job")
            hosts = {host.name: slots for host, slots in named.items()}
            if any(slots < 0 for slots in hosts.values()):
                raise ValueError(hosts)
        except (TypeError, ValueError):
            raise LaunchError(
                f"the host discovery function {self._name} returned {repr(answer)[:_MOST_TEXT]}: "
                'expected a mapping such as {"node-a": 4}'
            ) from None
        return hosts


def read_lines(text: str, script: str, default_slots: int, warn: Warn = str) -> dict[str, int]:
    """Parse the output of a discovery script. Raises LaunchError naming the line.

    warn: called with each problem that is not an error.
    """
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
        refuse_ports([host], "an elastic job")
        has_slots = line.endswith(f":{host.slots}")
        slots = host.slots if has_slots else default_slots
        if hosts.setdefault(host.name, slots) != slots:
            warn(
                f"the host discovery script {script!r} printed {host.name} with {hosts[host.name]} "
                f"and with {slots} slots: the last line counts"
            )
        hosts[host.name] = slots
    return hosts


class Discovery(threading.Thread):
    """Polls for hosts once a second. found: called with them, in the thread, when they change.

    trouble: called with a message when discovery fails, once each time the reason changes; the
    last hosts stay in use. hosts: those of the first discovery.
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
        self._reason = ""
        self._lasting = Lasting("the search for hosts", trouble)
        self._last = dict(hosts)
        self._ended = threading.Event()

    def run(self) -> None:
        """Poll until `end`."""
        while not self._ended.wait(_PAUSE_SECONDS):
            with self._lasting:
                self._look()

    def _look(self) -> None:
        try:
            hosts = dict(self._find())
        except (LaunchError, OSError) as error:
            if str(error) != self._reason:
                self._trouble(f"{error}; the hosts stay as they were")
            self._reason = str(error)
            return
        self._reason = ""
        if hosts != self._last:
            self._found(hosts)
            self._last = hosts

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()
