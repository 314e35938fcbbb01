"""Starts the workers of this host and kills what is left of them, whatever happens to the launcher.

A program of its own that imports nothing but a few standard modules, so that it starts in a few
milliseconds and outlives the launcher's memory, threads and death. It is the subreaper of all
workers: a process that a worker leaves behind becomes its child, in whatever session it is. Run as
`guardian.py <fd> <secret>` with the job as JSON on standard input; the first descriptor is a
SOCK_SEQPACKET socket on which it reports events as JSON and takes the words "start" (with a file
that holds, as JSON, which workers), "signal <number> <rank>", "interrupt", "terminate" and "kill".
Its end of file means that the launcher is gone. The second is the job's secret, in a file in memory
that the workers inherit, and open through /proc where a program between has closed what it
inherited: it is on no disk, and gone with the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing it takes longer than all the rest.
    from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FOR_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
_KILL_INTERVAL = 0.01
_BEAT_BYTES = 8
_CHECKPOINT_AT, _CHECKPOINT_BYTES = 16, 4096
# With the time in which a lost launcher is noticed, all is over within 6 s.
_ORPHAN_SECONDS = 0.5
# How often workers are looked at that may not be stopped for long.
_LOOK_SECONDS = 0.5
_TOGETHER_SECONDS = 0.1
# Processes that sit in the kernel do not even die of SIGKILL; do not wait for them for ever.
_KILL_PATIENCE = 10.0
# Scripts redirect descriptors of one digit, and shells keep theirs from 10 on.
_LOWEST_DESCRIPTOR = 64


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def state_of(pid: int) -> bytes:
    """The kernel's letter for what a process does, nothing when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b""


def _children() -> dict[int, list[int]]:
    """The children of every process, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - without importing pathlib
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                # The command in parentheses may itself contain any character.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(entry))
    return children


def descendants(root: int) -> list[int]:
    """All processes below `root`, zombies left out."""
    children = _children()
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def pass_on(number: int, root: int) -> None:
    """Send a signal to the outermost processes from `root` down that await it, else to `root`.

    A shell around a script would die of what the script awaits, and the helpers that a script has
    started inherit its handlers.
    """
    children = _children()
    found: list[int] = []
    frontier = [root]
    while frontier:
        pid = frontier.pop()
        if awaits(pid, number, (b"SigCgt:", b"SigBlk:")):
            found.append(pid)
        else:
            frontier += children.get(pid, [])
    for pid in found or [root]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class _Worker:
    """A running worker. heartbeat: see `sirtaki.core.heartbeat`; None where nobody minds."""

    def __init__(self, rank: int, heartbeat: int | None) -> None:
        self.rank = rank
        self.heartbeat = heartbeat
        self._beat = bytes(_BEAT_BYTES)
        self.silent = 0.0

    def look(self, pid: int, passed: float) -> None:
        """Count for how long it has been stopped or its engine silent."""
        beat = bytes(_BEAT_BYTES)
        if self.heartbeat is not None:
            beat = os.pread(self.heartbeat, _BEAT_BYTES, 0)
        beats = beat != self._beat or not any(beat)
        self._beat = beat
        self.silent = 0.0 if beats and state_of(pid) != b"T" else self.silent + passed

    def mark_ending(self) -> None:
        """Let it know that the signal it gets is to end it."""
        if self.heartbeat is not None:
            os.pwrite(self.heartbeat, b"\1", _BEAT_BYTES)

    def checkpoint(self) -> str:
        """Return what it has noted of its last checkpoint, "" for nothing."""
        if self.heartbeat is None:
            return ""
        return os.pread(self.heartbeat, _CHECKPOINT_BYTES, _CHECKPOINT_AT).decode(errors="replace")

    def forget(self) -> None:
        """It has ended."""
        if self.heartbeat is not None:
            os.close(self.heartbeat)


def _tell_everybody(text: str) -> None:
    """Say something to who still reads our errors, and to the system's log."""
    import syslog

    syslog.openlog("sirtaki", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_ERR, text)
    errors = select.poll()
    errors.register(2, select.POLLOUT)
    # Where nobody reads them any more they must not hold us up.
    if errors.poll(0):
        with contextlib.suppress(OSError):
            os.write(2, f"sirtaki: {text}\n".encode())


def _is_traced(root: int) -> bool:
    """Whether a debugger holds a process, or one below it."""
    return any(state_of(pid) == b"t" for pid in (root, *descendants(root)))


def awaits(pid: int, number: int, masks: tuple[bytes, ...]) -> bool:
    """Whether a signal is in one of a process's masks: SigCgt: has a handler, SigBlk: blocked."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except OSError:
        return False
    found = [int(line[7:], 16) for line in lines if line.startswith(masks)]
    return any(mask >> (number - 1) & 1 for mask in found)


class Guardian:
    """The workers, from the first fork to the last grave."""

    def __init__(self, control: socket.socket, job: dict[str, Any]) -> None:
        self._control = control
        self._command: list[str] = job["command"]
        self._grace: float = job["grace"]
        self._open_files: int = job["open_files"]
        # Whether who signals us has signalled the workers too, as a scheduler does.
        self._together: bool = job["together"]
        self._workers: dict[int, _Worker] = {}  # that run, by process id
        # 0 where nobody minds that workers are silent, and the failure of one ends all.
        self._silent_seconds: float = job["silent_seconds"]
        self._looked_at = time.monotonic()
        self._has_started = False
        self._has_children = False
        self._terminate_at: float | None = None
        self._kill_at: float | None = None
        self._killing_since: float | None = None
        self._wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        # A scheduler may signal all processes of a job; those for the workers are not our end.
        # What is ignored stays so in the workers, unlike what is handled.
        for number in (signal.SIGCHLD, *_FOR_WORKERS):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._take_sigterm())
        if self._together:
            signal.signal(signal.SIGINT, lambda *_: self._interrupt(sent=True))

    def _start(self, processes: list[dict[str, Any]]) -> None:
        """Start workers and report each, with the read ends of its output.

        Each has a rank, variables, and the CPUs to which it is bound, none where it is not.
        """
        self._has_started = self._has_children = True
        outcomes = []
        for process in processes:
            rank: int = process["rank"]
            variables = {**os.environ, **process["environment"]}
            heartbeat = self._make_heartbeat(variables)
            pid, streams, outcome = self._spawn(variables, process["cpus"], heartbeat)
            self._workers[pid] = _Worker(rank, heartbeat)
            outcomes.append((rank, outcome))
            self._tell({"event": "started", "rank": rank, "pid": pid}, streams)
            for descriptor in streams:
                os.close(descriptor)
        for rank, outcome in outcomes:
            with open(outcome, "rb") as file:  # noqa: PTH123
                error = file.read()
            if error:
                self._tell({"event": "failed", "rank": rank, "errno": int(error)})

    def watch(self) -> None:
        """Start workers, report exits and obey the launcher until no process is left."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            self._reap()
            if not self._has_children and (self._has_started or self._kill_at is not None):
                return
            if self._has_started and not self._workers:
                # The job is over; what its processes left running goes with it.
                self._terminate()
            if not self._hurry():
                return
            if self._silent_seconds:
                self._kill_silent()
            for descriptor, _ in poll.poll(self._patience()):
                if descriptor == self._wake_reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(descriptor, 4096)
                elif not self._obey():
                    poll.unregister(self._control)

    def _make_heartbeat(self, variables: dict[str, str]) -> int | None:
        """Make the file of a worker's heartbeat, where anybody minds and it can be made."""
        if not self._silent_seconds or not hasattr(os, "memfd_create"):
            return None
        file = os.memfd_create("sirtaki-heartbeat", os.MFD_CLOEXEC)
        os.ftruncate(file, _BEAT_BYTES + 1)
        descriptor = _high(file)
        variables["SIRTAKI_HEARTBEAT_FILE"] = f"/proc/{os.getpid()}/fd/{descriptor}"
        return descriptor

    def _spawn(
        self, environment: dict[str, str], cpus: list[int], heartbeat: int | None
    ) -> tuple[int, list[int], int]:
        """Fork and execute; returns the process id, read ends of its output, and of its error."""
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        outcome_reader, outcome_writer = os.pipe()
        guardian = os.getpid()
        pid = os.fork()
        if pid == 0:
            if heartbeat is not None:
                os.set_inheritable(heartbeat, True)
            writers = (out_writer, err_writer, outcome_writer)
            _become(self._command, environment, cpus, guardian, writers, self._open_files)
        for descriptor in (out_writer, err_writer, outcome_writer):
            os.close(descriptor)
        return pid, [out_reader, err_reader], outcome_reader

    def _tell(self, event: dict[str, object], descriptors: list[int] | None = None) -> None:
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._control, [json.dumps(event).encode()], descriptors or [])

    def _obey(self) -> bool:
        """Do as the launcher says; False when it is gone."""
        word, files = b"", list[int]()
        with contextlib.suppress(ConnectionError):
            word, files, _, _ = socket.recv_fds(self._control, 64, 1)
        name, *arguments = word.split() or [b""]
        if name == b"start":
            with open(files[0], "rb") as file:  # noqa: PTH123
                processes = json.load(file)
            self._start(processes)
        elif name == b"signal":
            self._signal(*map(int, arguments))
        else:
            if self._together:
                # Who has told the launcher may be about to tell all of us.
                time.sleep(_TOGETHER_SECONDS)
            if name == b"interrupt":
                self._interrupt()
            elif name in (b"", b"orphaned") and self._silent_seconds:
                self._end_orphans()
            elif self._terminate_at is None:
                # What was interrupted has its grace first.
                self._terminate()
        if name == b"kill":
            self._kill_at = time.monotonic()
        return bool(word)

    def _signal(self, number: int, rank: int) -> None:
        for pid in [pid for pid, worker in self._workers.items() if worker.rank == rank]:
            pass_on(number, pid)

    def _take_sigterm(self) -> None:
        """End all; but where processes may leave one by one they are asked to, if they were not."""
        if not self._silent_seconds:
            self._terminate(sent=self._together)
        elif not self._together:
            for pid in self._workers:
                pass_on(signal.SIGTERM, pid)

    def _reap(self) -> None:
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                break
            if pid == 0:
                break
            if pid in self._workers:
                code = os.waitstatus_to_exitcode(status)
                worker = self._workers.pop(pid)
                worker.forget()
                ended.append((worker.rank, code))
                if self._silent_seconds and code != 0:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
        # Of those found dead together, one killed by a signal is the likelier cause of the others.
        for rank, code in sorted(ended, key=lambda end: end[1] >= 0):
            self._tell({"event": "exited", "rank": rank, "code": code})

    def _kill_silent(self) -> None:
        """Kill workers that have been silent for too long, unless a debugger holds them."""
        now = time.monotonic()
        # We may have been stopped with all of them, so what we have not seen does not count.
        passed, self._looked_at = min(now - self._looked_at, 2 * _LOOK_SECONDS), now
        for pid, worker in self._workers.items():
            worker.look(pid, passed)
            if worker.silent < self._silent_seconds:
                continue
            worker.silent = 0.0
            if not _is_traced(pid):
                text = (
                    f"process {worker.rank} was stopped, or its engine silent, for "
                    f"{self._silent_seconds:g} s, and is killed"
                )
                self._tell({"event": "said", "rank": worker.rank, "text": text})
                os.kill(pid, signal.SIGKILL)

    def _interrupt(self, sent: bool = False) -> None:
        """Begin with SIGINT; sent: they have it."""
        if self._terminate_at is None and self._kill_at is None:
            self._terminate_at = time.monotonic() + self._grace
            self._mark_ending()
            _signal_all(*[] if sent else [signal.SIGINT], signal.SIGCONT)

    def _terminate(self, sent: bool = False) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._mark_ending()
            # A stopped process takes SIGTERM only once it continues.
            _signal_all(*[] if sent else [signal.SIGTERM], signal.SIGCONT)

    def _end_orphans(self) -> None:
        """The launcher is gone without a word: say so, and end the processes soon."""
        if self._terminate_at is not None or self._kill_at is not None:
            return
        checkpoints = {text for worker in self._workers.values() if (text := worker.checkpoint())}
        where = f"; the last checkpoint is {', '.join(checkpoints)}" if checkpoints else ""
        if self._workers:
            _tell_everybody(f"the launcher is gone, so the processes here are ended{where}")
        self._terminate()
        self._kill_at = time.monotonic() + min(self._grace, _ORPHAN_SECONDS)

    def _mark_ending(self) -> None:
        for worker in self._workers.values():
            worker.mark_ending()

    def _hurry(self) -> bool:
        """End more firmly what has outlived its grace; False when even SIGKILL does not help."""
        now = time.monotonic()
        if self._terminate_at is not None and now >= self._terminate_at:
            self._terminate()
        if self._kill_at is None or now < self._kill_at:
            return True
        if self._killing_since is None:
            self._killing_since = now
        if now - self._killing_since > _KILL_PATIENCE:
            return False
        _signal_all(signal.SIGKILL)
        return True

    def _patience(self) -> float | None:
        """Milliseconds until there is something to do without being told."""
        if self._killing_since is not None:
            return _KILL_INTERVAL * 1000
        next_at = self._terminate_at if self._kill_at is None else self._kill_at
        if self._silent_seconds and next_at is None:
            return _LOOK_SECONDS * 1000
        return None if next_at is None else max(0.0, next_at - time.monotonic()) * 1000 + 1


def _keep_secret(file: int) -> str:
    """Put the secret where the workers find it for as long as we live; returns the path.

    They inherit the descriptor, because /proc does not lead from one user or PID namespace to
    another.
    """
    descriptor = _high(file)
    os.set_inheritable(descriptor, True)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _high(file: int) -> int:
    """Move a file to a descriptor that scripts do not use; it is not inherited."""
    lowest = min(_LOWEST_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(file)
    return descriptor


def _signal_all(*signals: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        for number in signals:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _become(
    command: list[str],
    environment: dict[str, str],
    cpus: list[int],
    guardian: int,
    writers: tuple[int, int, int],
    open_files: int,
) -> NoReturn:
    """Turn this fork into the worker, or write the errno of the failure to the last writer."""
    out_writer, err_writer, outcome_writer = writers
    try:
        # No session of its own: the kernel may share out cores by sessions first, and a rank that
        # yields then has nobody to yield to.
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guardian:
            # Python ignores these two, and what is ignored stays so in the program executed.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out_writer, 1)
            os.dup2(err_writer, 2)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
            if cpus:
                # Before the program runs, so that it touches its memory first on its own NUMA node.
                os.sched_setaffinity(0, cpus)
            os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(outcome_writer, str(error.errno).encode())
    finally:
        os._exit(127)


def main() -> int:
    """Run the job on standard input; see the module."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    job = json.load(sys.stdin)
    # What is read stays readable through /proc otherwise, for as long as this process lives.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["SIRTAKI_SECRET_FILE"] = _keep_secret(int(sys.argv[2]))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Guardian(control, job).watch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
