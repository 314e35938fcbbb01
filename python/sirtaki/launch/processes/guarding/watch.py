"""Starts the workers of this host and kills what they leave, whatever happens to the launcher.

It imports only a few standard modules, so that it starts in a few milliseconds and survives the
launcher's memory, threads and death. It is the subreaper of all workers: a process that a worker
leaves behind becomes its child, in any session. The program's argument is a SOCK_SEQPACKET socket.
On it the guardian reports events and receives the commands "job" (with two files: the job and its
secret), "start" (with a file that lists the workers), "signal <number> <rank>", "interrupt",
"terminate" and "kill". End of file means that the launcher is gone, or has no job for it. Other
data is marshalled, as both ends run the same Python. The secret is in a memory file that the
workers inherit; if a program in between has closed it, they open it through /proc. So the secret is
on no disk, and disappears with the job.
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
    # Importing `signal`, `socket`, `json`, `contextlib` and `typing` takes longer than the rest.
    import _signal as signal

_FOR_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
_KILL_INTERVAL = 0.01
# Together with the time until a lost launcher is noticed, the job ends within 6 s.
_ORPHAN_SECONDS = 0.5
_TOGETHER_SECONDS = 0.1
# The grace of helpers, which are asked to end only after the processes that they help.
_HELPERS_SECONDS = 0.5
# A process blocked in the kernel does not even die of SIGKILL; do not wait for it for ever.
_KILL_PATIENCE = 10.0
# The exit code reported for a worker of an elastic job that could not be started.
_NOT_STARTED = 1
_INVALID = 22  # EINVAL
# Scripts redirect descriptors of one digit, and shells use those from 10 on.
_LOWEST_DESCRIPTOR = 64


class Guardian:
    """The workers, from the first fork to the end of the last one."""

    def __init__(self, control: socket, job: dict[str, Any]) -> None:
        self._control = control
        self._command: list[str] = job["command"]
        self._environment: dict[str, str] = job["environment"]
        self._grace: float = job["grace"]
        self._open_files: int = job["open_files"]
        # Whether senders of signals send them to the workers too, as a scheduler does.
        self._together: bool = job["together"]
        self._workers: dict[int, workers.Worker] = {}  # those that run, by process id
        # 0 if workers may be silent for ever, and the failure of one ends all.
        self._silent_seconds: float = job["silent_seconds"]
        self._look_seconds: float = min(workers.LOOK_SECONDS, self._silent_seconds / 5)
        self._looked_at = time.monotonic()
        self._has_started = False
        self._has_children = False
        self._terminate_at: float | None = None
        self._kill_at: float | None = None
        self._killing_since: float | None = None
        self._kills = False
        # The processes that have been asked to end.
        self._asked: set[int] = set()
        self._wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        # A scheduler may signal all processes of a job; signals for the workers must not end us.
        # The workers inherit ignored signals, but not handled ones.
        for number in (signal.SIGCHLD, *_FOR_WORKERS):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._take_sigterm())
        if self._together:
            signal.signal(signal.SIGINT, lambda *_: self._interrupt(sent=True))

    def _start(self, processes: list[dict[str, Any]]) -> None:
        """Start workers and report each, with the read ends of its output.

        Each has a rank, variables, the CPUs to which it is bound (empty: unbound) and possibly a
        terminal.
        """
        self._has_started = self._has_children = True
        outcomes = []
        for process in processes:
            rank: int = process["rank"]
            variables = {**self._environment, **process["environment"]}
            try:
                heartbeat = self._make_heartbeat(variables)
                pid, streams, outcome = self._spawn(process, variables, heartbeat)
            except OSError as why:
                self._refuse(rank, why)
                continue
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

    def _refuse(self, rank: int, error: OSError) -> None:
        """Report that a process, descriptor or memory for a worker is lacking."""
        if self._silent_seconds:
            text = f"process {rank} cannot be started now: {error.strerror}"
            self._tell({"event": "said", "rank": rank, "text": text})
            self._tell({"event": "exited", "rank": rank, "code": _NOT_STARTED})
        else:
            self._tell({"event": "failed", "rank": rank, "errno": error.errno})

    def watch(self) -> None:
        """Start workers, report exits and execute commands until no process is left."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            self._reap()
            if not self._has_children and (self._has_started or self._kill_at is not None):
                return
            if self._has_started and not self._workers and not self._saves():
                # The job is over: end what its processes left running.
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
        """Create the file of a worker's heartbeat, if it is needed and possible."""
        if not self._silent_seconds or not hasattr(os, "memfd_create"):
            return None
        file = os.memfd_create("sirtaki-heartbeat", os.MFD_CLOEXEC)
        os.ftruncate(file, workers.BEAT_BYTES + 1)
        descriptor = _high(file)
        variables["SIRTAKI_HEARTBEAT_FILE"] = f"/proc/{os.getpid()}/fd/{descriptor}"
        return descriptor

    def _spawn(
        self, process: dict[str, Any], environment: dict[str, str], heartbeat: int | None
    ) -> tuple[int, list[int], int]:
        """Fork and execute; returns the process id and the read ends of output and of errno."""
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            guardian = os.getpid()
            pid = os.fork()
        except OSError:
            for descriptor in pipes if heartbeat is None else [*pipes, heartbeat]:
                os.close(descriptor)
            raise
        out_reader, out_writer, err_reader, err_writer, outcome_reader, outcome_writer = pipes
        if pid == 0:
            if heartbeat is not None:
                os.set_inheritable(heartbeat, True)
            writers = (out_writer, err_writer, outcome_writer)
            _become(self._command, process, environment, guardian, writers, self._open_files)
        for descriptor in (out_writer, err_writer, outcome_writer):
            os.close(descriptor)
        return pid, [out_reader, err_reader], outcome_reader

    def _tell(self, event: dict[str, object], descriptors: list[int] | None = None) -> None:
        sent = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors or [])
        with workers.Tolerate(ConnectionError):
            along = [(SOL_SOCKET, SCM_RIGHTS, sent)] if sent else []
            self._control.sendmsg([marshal.dumps(event)], along)

    def _obey(self) -> bool:
        """Execute a command of the launcher; False when it is gone."""
        word, files = _receive(self._control)
        name, *arguments = word.split() or [b""]
        if name == b"start":
            self._start(_read(files[0]))
        elif name == b"signal":
            self._signal(*map(int, arguments))
        else:
            if self._together:
                # The sender of the launcher's signal may be about to signal the workers too.
                time.sleep(_TOGETHER_SECONDS)
            if name == b"interrupt":
                self._interrupt()
            elif name in (b"", b"orphaned") and self._silent_seconds:
                self._end_orphans()
            elif self._terminate_at is None:
                # Interrupted processes have their grace first.
                self._terminate()
        if name == b"kill":
            self._kills = True
            self._kill_at = time.monotonic()
        return bool(word)

    def _signal(self, number: int, rank: int) -> None:
        for pid in [pid for pid, worker in self._workers.items() if worker.rank == rank]:
            workers.pass_on(number, pid)

    def _take_sigterm(self) -> None:
        """End all workers; if they may leave one by one, pass the signal on unless they got it."""
        if not self._silent_seconds:
            self._terminate(sent=self._together)
        elif not self._together:
            for pid in self._workers:
                workers.pass_on(signal.SIGTERM, pid)

    def _reap(self) -> None:
        ended, reaped = [], False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                break
            if pid == 0:
                break
            reaped = True
            if pid in self._workers:
                code = os.waitstatus_to_exitcode(status)
                worker = self._workers.pop(pid)
                worker.forget()
                ended.append((worker.rank, code))
                if self._silent_seconds and code != 0:
                    workers.send(os.killpg, pid, signal.SIGKILL)
        if reaped and self._kill_at is not None:
            # Helpers left running by these are not needed any more.
            self._ask(signal.SIGTERM)
        # Of workers that died together, one killed by a signal more likely caused the rest.
        for rank, code in sorted(ended, key=lambda end: end[1] >= 0):
            self._tell({"event": "exited", "rank": rank, "code": code})

    def _kill_silent(self) -> None:
        """Kill workers that have been silent for too long, unless a debugger holds them."""
        now = time.monotonic()
        # This process may have been stopped too, so time that it did not observe does not count.
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
                workers.send(os.kill, pid, signal.SIGKILL)

    def _interrupt(self, sent: bool = False) -> None:
        """Ask the workers to end, beginning with SIGINT; sent: they got it already."""
        if self._terminate_at is None and self._kill_at is None:
            self._terminate_at = time.monotonic() + self._grace
            self._mark_ending()
            if not sent:
                self._ask(signal.SIGINT)
            _signal_all(signal.SIGCONT)

    def _terminate(self, sent: bool = False) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._mark_ending()
            self._asked.clear()
            if sent:
                self._asked.update(workers.descendants(os.getpid()))
            else:
                self._ask(signal.SIGTERM)
            # A stopped process takes SIGTERM only once it continues.
            _signal_all(signal.SIGCONT)

    def _saves(self) -> bool:
        """Return whether an interrupted process outlives its worker, as a shell's child does."""
        if self._terminate_at is None or self._kill_at is not None:
            return False
        return any(pid in self._asked for pid in workers.descendants(os.getpid()))

    def _ask(self, number: int) -> None:
        """Send a signal that asks to end, to each process once; helpers come later."""
        children = workers.children_of_all()
        for root in children.get(os.getpid(), ()):
            for pid in workers.asked_first(number, root, children)[0]:
                if pid not in self._asked:
                    self._asked.add(pid)
                    workers.send(os.kill, pid, number)

    def _ask_the_rest(self) -> bool:
        """Ask the remaining processes to end; False if there is none."""
        rest = [pid for pid in workers.descendants(os.getpid()) if pid not in self._asked]
        for pid in rest:
            self._asked.add(pid)
            workers.send(os.kill, pid, signal.SIGTERM)
        return bool(rest)

    def _end_orphans(self) -> None:
        """Report that the launcher vanished, and end the processes soon."""
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
        """Escalate after a grace has passed; False when even SIGKILL does not help."""
        now = time.monotonic()
        if self._terminate_at is not None and now >= self._terminate_at:
            self._terminate()
        if self._kill_at is None or now < self._kill_at:
            return True
        if self._killing_since is None:
            if self._grace > 0 and not self._kills and self._ask_the_rest():
                self._kill_at = now + min(self._grace, _HELPERS_SECONDS)
                return True
            self._killing_since = now
        if now - self._killing_since > _KILL_PATIENCE:
            return False
        _signal_all(signal.SIGKILL)
        return True

    def _patience(self) -> float | None:
        """Return the milliseconds until the next deadline, or None."""
        if self._killing_since is not None:
            return _KILL_INTERVAL * 1000
        next_at = self._terminate_at if self._kill_at is None else self._kill_at
        if self._silent_seconds and next_at is None:
            return self._look_seconds * 1000
        return None if next_at is None else max(0.0, next_at - time.monotonic()) * 1000 + 1


def _keep_secret(file: int) -> str:
    """Keep the secret in a descriptor of this process, for the workers; returns its path.

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


def _signal_all(number: int) -> None:
    for pid in workers.descendants(os.getpid()):
        workers.send(os.kill, pid, number)


def _read(descriptor: int) -> Any:
    """Read and close a file that the launcher wrote."""
    with open(descriptor, "rb") as file:
        return marshal.load(file)


def _become(
    command: list[str],
    process: dict[str, Any],
    environment: dict[str, str],
    guardian: int,
    writers: tuple[int, int, int],
    open_files: int,
) -> NoReturn:
    """Execute the worker in this fork, or write the errno of the failure to the last writer."""
    out_writer, err_writer, outcome_writer = writers
    try:
        # No session of its own: the kernel may divide cores among sessions first, and then a rank
        # that yields has no other to yield to.
        os.setpgid(0, 0)
        workers.die_with_parent()
        if os.getppid() == guardian:
            # Python ignores these two, and an executed program inherits ignored signals.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            terminal = process["terminal"]
            reader = os.open(terminal or os.devnull, os.O_RDWR | os.O_NOCTTY)
            os.dup2(reader, 0)
            os.dup2(reader if terminal else out_writer, 1)
            os.dup2(reader if terminal else err_writer, 2)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
            if process["cpus"]:
                # Before the program runs, so that its first touch puts memory on its NUMA node.
                os.sched_setaffinity(0, process["cpus"])
            os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(outcome_writer, str(error.errno).encode())
    except ValueError:  # a NUL in an argument, a variable without a name
        os.write(outcome_writer, str(_INVALID).encode())
    finally:
        os._exit(127)


def _receive(control: socket) -> tuple[bytes, list[int]]:
    """Return the launcher's next command, empty when it is gone, and the files sent with it."""
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
    # The launcher may have raised its limit after it started this process.
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (job["room"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    job["environment"]["SIRTAKI_SECRET_FILE"] = _keep_secret(files[1])
    Guardian(control, job).watch()
    return 0
