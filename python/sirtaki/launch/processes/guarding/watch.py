"""Starts the workers of this host and kills what is left of them, whatever happens to the launcher.

It imports nothing but a few standard modules, so that it starts in a few milliseconds and outlives
the launcher's memory, threads and death. It is the subreaper of all workers: a process that a
worker leaves behind becomes its child, in whatever session it is. The program's argument is a
SOCK_SEQPACKET socket on which it reports events and takes the words "job" (with two files: the job,
and its secret), "start" (with a file that holds which workers), "signal <number> <rank>",
"interrupt", "terminate" and "kill". Its end of file means that the launcher is gone, or has no job
for it. What is more than a word is marshalled, as both ends are the same Python. The secret is in a
file in memory that the workers inherit, and open through /proc where a program between has closed
what it inherited: it is on no disk, and gone with the job.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import resource
import select
import sys
import time
from _socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket

from . import workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    # `signal`, `socket`, `json`, `contextlib` and `typing` take longer than all the rest.
    import _signal as signal

_FOR_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
_KILL_INTERVAL = 0.01
# With the time in which a lost launcher is noticed, all is over within 6 s.
_ORPHAN_SECONDS = 0.5
_TOGETHER_SECONDS = 0.1
# Processes that sit in the kernel do not even die of SIGKILL; do not wait for them for ever.
_KILL_PATIENCE = 10.0
# Scripts redirect descriptors of one digit, and shells keep theirs from 10 on.
_LOWEST_DESCRIPTOR = 64


class Guardian:
    """The workers, from the first fork to the last grave."""

    def __init__(self, control: socket, job: dict[str, Any]) -> None:
        self._control = control
        self._command: list[str] = job["command"]
        self._environment: dict[str, str] = job["environment"]
        self._grace: float = job["grace"]
        self._open_files: int = job["open_files"]
        # Whether who signals us has signalled the workers too, as a scheduler does.
        self._together: bool = job["together"]
        self._workers: dict[int, workers.Worker] = {}  # that run, by process id
        # 0 where nobody minds that workers are silent, and the failure of one ends all.
        self._silent_seconds: float = job["silent_seconds"]
        self._look_seconds: float = min(workers.LOOK_SECONDS, self._silent_seconds / 5)
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
            variables = {**self._environment, **process["environment"]}
            heartbeat = self._make_heartbeat(variables)
            pid, streams, outcome = self._spawn(variables, process["cpus"], heartbeat)
            self._workers[pid] = workers.Worker(rank, heartbeat)
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
                    with workers.Tolerate(BlockingIOError):
                        os.read(descriptor, 4096)
                elif not self._obey():
                    poll.unregister(self._control)

    def _make_heartbeat(self, variables: dict[str, str]) -> int | None:
        """Make the file of a worker's heartbeat, where anybody minds and it can be made."""
        if not self._silent_seconds or not hasattr(os, "memfd_create"):
            return None
        file = os.memfd_create("sirtaki-heartbeat", os.MFD_CLOEXEC)
        os.ftruncate(file, workers.BEAT_BYTES + 1)
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
        sent = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors or [])
        with workers.Tolerate(ConnectionError):
            along = [(SOL_SOCKET, SCM_RIGHTS, sent)] if sent else []
            self._control.sendmsg([marshal.dumps(event)], along)

    def _obey(self) -> bool:
        """Do as the launcher says; False when it is gone."""
        word, files = _receive(self._control)
        name, *arguments = word.split() or [b""]
        if name == b"start":
            self._start(_read(files[0]))
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
            workers.pass_on(number, pid)

    def _take_sigterm(self) -> None:
        """End all; but where processes may leave one by one they are asked to, if they were not."""
        if not self._silent_seconds:
            self._terminate(sent=self._together)
        elif not self._together:
            for pid in self._workers:
                workers.pass_on(signal.SIGTERM, pid)

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
                    workers.send(os.killpg, pid, signal.SIGKILL)
        # Of those found dead together, one killed by a signal is the likelier cause of the others.
        for rank, code in sorted(ended, key=lambda end: end[1] >= 0):
            self._tell({"event": "exited", "rank": rank, "code": code})

    def _kill_silent(self) -> None:
        """Kill workers that have been silent for too long, unless a debugger holds them."""
        now = time.monotonic()
        # We may have been stopped with all of them, so what we have not seen does not count.
        passed, self._looked_at = min(now - self._looked_at, 2 * self._look_seconds), now
        for pid, worker in self._workers.items():
            worker.look(pid, passed)
            if worker.silent < self._silent_seconds:
                continue
            worker.silent = 0.0
            if not workers.is_traced(pid):
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
            workers.tell_everybody(f"the launcher is gone, so the processes here are ended{where}")
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
            return self._look_seconds * 1000
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


def _signal_all(*signals: int) -> None:
    for pid in workers.descendants(os.getpid()):
        for number in signals:
            workers.send(os.kill, pid, number)


def _read(descriptor: int) -> Any:
    """Read a file that the launcher has written, and close it."""
    with open(descriptor, "rb") as file:
        return marshal.load(file)


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
        workers.die_with_parent()
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


def _receive(control: socket) -> tuple[bytes, list[int]]:
    """Return the launcher's next word, nothing when it is gone, and the files that came along."""
    word, along = b"", list[tuple[int, int, bytes]]()
    with workers.Tolerate(ConnectionError):
        word, along, _, _ = control.recvmsg(64, CMSG_SPACE(8))
    return word, list(memoryview(b"".join(files for _, _, files in along)).cast("i"))


def main() -> int:
    """Run the job; see the module."""
    control = socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    workers.adopt_orphans()
    word, files = _receive(control)
    if not word:
        return 0
    job = _read(files[0])
    # The launcher may have raised its limit after it started us.
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (job["room"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    job["environment"]["SIRTAKI_SECRET_FILE"] = _keep_secret(files[1])
    Guardian(control, job).watch()
    return 0
