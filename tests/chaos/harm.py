"""Does to the processes, hosts and links of a job what a schedule says."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.schedule import OF_A_HOST, UNDONE_AFTER, Fault, Kind
from tests.hosts.bed import Bed, VirtualHost

_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY_BYTES = 64 << 20
_SLOW_SECONDS, _LOSS = 0.1, 0.01


class Cgroup:
    """A cgroup of one process with little memory, v1 or v2, whichever rules memory here."""

    def __init__(self, pid: int) -> None:
        is_first = (_CGROUPS / "memory").is_dir()
        self._folder = (_CGROUPS / "memory" if is_first else _CGROUPS) / f"sirtaki-chaos-{pid}"
        if not is_first:
            with contextlib.suppress(OSError):  # it is on already
                (_CGROUPS / "cgroup.subtree_control").write_text("+memory")
        self._folder.mkdir()
        limit = "memory.limit_in_bytes" if is_first else "memory.max"
        (self._folder / limit).write_text(str(_MEMORY_BYTES))
        (self._folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove it; fails as long as a process is in it."""
        self._folder.rmdir()


def ranks_on(host: VirtualHost) -> dict[int, int]:
    """The processes of the job that run on a host: machine's process ids by the job's numbers."""
    found = {}
    for pid, command in host.processes().items():
        if "tests/chaos/" not in command or "-m" in command.split():
            continue
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            for variable in variables:
                if variable.startswith(b"SIRTAKI_PROCESS="):
                    found[int(variable.partition(b"=")[2])] = pid
    return found


class Harm:
    """Faults of one job. folder: the job's CHAOS_FOLDER. The first host has the launcher."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self._bed = bed
        self._folder = folder
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._cgroups: list[Cgroup] = []

    def ranks(self) -> dict[int, int]:
        """The processes of the job on all hosts, in the order of their numbers."""
        every = [pair for host in self._bed.hosts for pair in ranks_on(host).items()]
        return dict(sorted(every))

    def do(self, fault: Fault) -> str:
        """Let a fault happen; returns to whom it did."""
        if fault.kind in OF_A_HOST:
            host = self._bed.hosts[1 + fault.chosen(len(self._bed.hosts) - 1)]
            self._harm_host(host, fault)
            return host.name
        ranks = self.ranks()
        if not ranks:
            return "nobody, as no rank is left"
        number = list(ranks)[fault.chosen(len(ranks))]
        with contextlib.suppress(ProcessLookupError):  # it may end at any time
            self._harm_rank(number, ranks[number], fault)
        return f"process {number}"

    def _harm_host(self, host: VirtualHost, fault: Fault) -> None:
        if fault.kind is Kind.AGENT_KILLED:
            for pid, command in host.processes().items():
                if "sirtaki.launch.processes.agent" in command:
                    kill(pid, signal.SIGKILL)
        elif fault.kind is Kind.HOST_GONE:
            for pid in host.processes():
                kill(pid, signal.SIGKILL)
            host.kill_sshd()
            host.start_sshd()
        elif fault.kind is Kind.CUT_ONE_WAY:
            host.reconnect()
            host.cut_one_way(inwards=fault.pick % 4 < 2)
        elif fault.kind is Kind.SLOW:
            host.reconnect()
            host.slow_down(_SLOW_SECONDS, _LOSS, fault.pick)
        else:
            host.cut_off()
        if seconds := UNDONE_AFTER.get(fault.kind):
            self._undo.append((time.monotonic() + seconds, host.reconnect))

    def _harm_rank(self, number: int, pid: int, fault: Fault) -> None:
        if fault.kind is Kind.KILLED:
            os.kill(pid, signal.SIGKILL)
        elif fault.kind in (Kind.PAUSED, Kind.STOPPED):
            os.kill(pid, signal.SIGSTOP)
        elif fault.kind is Kind.MEMORY:
            self._cgroups.append(Cgroup(pid))
            self._order(number, "memory")
        elif fault.kind is Kind.EXITS:
            self._order(number, "exit")
        else:
            # Another text each time: the same would be the program's fault, and end the job.
            self._order(number, f"raise of somebody's program, {fault.at:g} s")
        if seconds := UNDONE_AFTER.get(fault.kind):
            self._undo.append((time.monotonic() + seconds, lambda: kill(pid, signal.SIGCONT)))

    def _order(self, number: int, word: str) -> None:
        whole = self._folder / f"order-{number}.new"
        whole.write_text(word)
        whole.rename(self._folder / f"order-{number}")

    def undo_what_is_due(self) -> None:
        """End those faults that end by themselves and whose time has come."""
        now = time.monotonic()
        due = [undo for at, undo in self._undo if at <= now]
        self._undo = [(at, undo) for at, undo in self._undo if at > now]
        for undo in due:
            undo()

    def undo_all(self) -> None:
        """End all faults that end by themselves."""
        for _, undo in self._undo:
            undo()
        self._undo.clear()

    def clean_up(self) -> None:
        """Remove what it has made, when no process of the job is left."""
        for cgroup in self._cgroups:
            cgroup.remove()
        self._cgroups.clear()


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
