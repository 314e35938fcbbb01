"""The processes of this host: started, reported on and ended through one guardian."""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sirtaki.launch.cores import binding
from sirtaki.launch.cores.shared_heap import described, with_heap
from sirtaki.launch.cores.shares import Share
from sirtaki.launch.errors import CANNOT_EXECUTE, FAILED, NOT_FOUND, LaunchError
from sirtaki.launch.hosts.torch_variables import complete, free_port
from sirtaki.launch.processes import open_files
from sirtaki.launch.processes.events import Event, HostJob, HostProcesses, Process
from sirtaki.launch.processes.guarding.process import take_guardian
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.out_of_memory import Killed, newly_killed, own_killed
from sirtaki.rendezvous.network.local_socket import receive_some
from sirtaki.rendezvous.trust.secret import sealed_secret

_EVENT_BYTES = 4096
# What the guardian is told lies in a file in memory; what ranks share they ask for themselves.
_FILE_BYTES = 1 << 20
# How much longer than the grace after SIGINT and that after SIGTERM the guardian may take.
_ENDING_MARGIN = 20.0


def enter_folder(folder: str) -> None:
    """Make the working folder of a job ours. Raises LaunchError."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise LaunchError(
            f"the working folder {folder!r} cannot be entered there ({error.strerror}); start from "
            "a folder that all hosts have"
        ) from None


def require_system() -> None:
    """Raise LaunchError unless this machine lets processes be watched and share memory."""
    host = socket.gethostname()
    try:
        os.close(memory_file.create("sirtaki-probe"))
    except OSError as error:
        raise LaunchError(f"no file in memory can be made: {error.strerror}", FAILED) from None
    if not Path("/proc/self/fd").is_dir():
        raise LaunchError(
            f"/proc is not mounted on {host}, and without it nobody sees which processes belong to "
            "the job: mount it (mount -t proc proc /proc)",
            FAILED,
        )
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if most != resource.RLIM_INFINITY and most < _FILE_BYTES:
        raise LaunchError(
            f"files on {host} may have {most} bytes (ulimit -f), those in memory too, by which the "
            "processes of a job share data: raise that limit",
            FAILED,
        )


def require_command(command: Sequence[str], path: str | None = None) -> None:
    """Raise LaunchError (exit code 127 or 126) unless the command's program can be executed."""
    program = command[0]
    if shutil.which(program, path=path) is not None:
        return
    on_path = os.sep not in program
    if not on_path and Path(program).is_dir():
        raise LaunchError(f"cannot execute {program!r}: it is a directory", CANNOT_EXECUTE)
    if not on_path and Path(program).exists():
        raise LaunchError(f"cannot execute {program!r}: permission denied", CANNOT_EXECUTE)
    where = "no such program on the PATH" if on_path else "no such file"
    if on_path and Path(program).is_file():
        where += f"; a script here is run as 'python {program}' or './{program}'"
    raise LaunchError(f"command not found: {program!r} ({where})", NOT_FOUND)


def _file(content: bytes) -> BinaryIO:
    """Make a file in memory that holds this, to be read from its start."""
    file = os.fdopen(memory_file.create("sirtaki-job"), "w+b")
    file.write(content)
    file.seek(0)
    return file


class LocalProcesses(HostProcesses):
    """Some ranks on this machine, one process group each, in the session of a guardian.

    host: the name for messages. planned: which. job: `environment` is all that they have in common,
    and they work where we do. together: whether who signals the guardian has signalled the ranks
    too. The guardian ends everything when this process dies, even by SIGKILL. Raises LaunchError
    for CPUs that are not there, and a SIRTAKI_SHARED_HEAP that is no value of it.
    """

    def __init__(
        self, host: str, planned: Sequence[Process], job: HostJob, together: bool = False
    ) -> None:
        self.host = host
        self.planned = planned
        self._job = job
        self._base = dict(job.environment)
        self._together = together
        self._shares = binding.shares_here(job.places, job.bind_to, self._base, job.cpus)
        # What is wrong with it is said before anything is started.
        with_heap(self._base)
        self._processes: dict[int, Process] = {}
        # That of the ranks: ours may be raised before they start.
        self._open_files = open_files.limit()
        self._groups: set[int] = set()
        self._killed: list[Killed] = []
        with contextlib.suppress(OSError, ValueError):
            self._killed = own_killed()
        self._control: socket.socket | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def free_port(self) -> int:
        """Return a port of this machine."""
        return free_port()

    def start(self, processes: Sequence[Process]) -> None:
        """Start processes. Raises LaunchError when one of them runs already."""
        for process in processes:
            if process.id in self._processes:
                raise LaunchError(f"rank {process.id} runs already", FAILED)
        if self._control is None:
            self._control = self._start_guardian()
        self._processes |= {process.id: process for process in processes}
        told = [
            {
                "rank": process.id,
                "environment": self._complete_environment(process),
                "cpus": self._share(process).cpus,
            }
            for process in processes
        ]
        with _file(marshal.dumps(told)) as file:
            socket.send_fds(self._control, [b"start"], [file.fileno()])

    def _start_guardian(self) -> socket.socket:
        job = {
            "command": list(self._job.command),
            "environment": self._base,
            "grace": self._job.grace,
            "room": open_files.limit(),
            "open_files": self._open_files,
            "together": self._together,
            "silent_seconds": self._job.silent_seconds,
        }
        guardian = take_guardian()
        self._guardian = guardian.program
        # Through files in memory: an environment on a command line would be visible to everybody.
        with _file(marshal.dumps(job)) as file, sealed_secret(self._job.secret) as secret:
            socket.send_fds(guardian.control, [b"job"], [file.fileno(), secret.fileno()])
        return guardian.control

    def _complete_environment(self, process: Process) -> dict[str, str]:
        own = {
            **process.environment,
            **binding.gpu_share(process.place, self._job.gpus, self._base),
        }
        defaults = {**process.defaults, **binding.default_threads(self._share(process))}
        return {**complete(self._base, own, defaults), **with_heap({**self._base, **own})}

    def _share(self, process: Process) -> Share:
        """What a process has of the host; some share one where the host got more slots later."""
        return self._shares[process.place % len(self._shares)]

    def channels(self) -> list[int]:
        """The guardian's socket once it is started."""
        return [] if self._control is None else [self._control.fileno()]

    def receive(self) -> list[Event]:
        """Return the guardian's next event, waiting for it; "done" from the end on."""
        try:
            data, streams = self._receive_message()
        except ConnectionResetError:
            # Said once when the guardian ended without hearing us out; its reports still follow.
            data, streams = self._receive_message()
        if not data:
            return [Event("done")]
        message: dict[str, Any] = marshal.loads(data)
        kind, rank = message["event"], message["rank"]
        if kind == "started":
            first = not self._groups
            self._groups.add(message["pid"])
            process = self._processes[rank]
            share = binding.describe_share(self._share(process), self._base)
            share += described({**self._base, **process.environment})
            started = Event(kind, rank, pid=message["pid"], streams=streams, text=share)
            return [started, *(self._neighbours() if first else [])]
        if kind == "failed":
            why = f"cannot execute the command: {os.strerror(message['errno'])}"
            return [Event(kind, rank, code=message["errno"], text=why)]
        if kind == "said":
            return [Event(kind, rank, text=message["text"])]
        del self._processes[rank]
        code = message["code"]
        killed = newly_killed(self._killed) if code == -signal.SIGKILL else None
        return [Event(kind, rank, code, text=str(killed or ""))]

    def _neighbours(self) -> list[Event]:
        """Say which of the user's jobs are bound to the same CPUs."""
        cpus = {cpu for share in self._shares for cpu in share.cpus}
        return [Event("said", text=line) for line in binding.bound_neighbours(cpus)]

    def _receive_message(self) -> tuple[bytes, list[int]]:
        assert self._control is not None
        return receive_some(self._control, _EVENT_BYTES, open_files.STREAMS_OF_A_RANK)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank, to those of its processes that await it."""
        self._say(b"signal %d %d" % (number, rank))

    def running(self) -> list[int]:
        """Return which ranks run here now."""
        return list(self._processes)

    def interrupt(self) -> None:
        """Ask all processes to end: SIGINT, SIGTERM after the grace, SIGKILL after another."""
        self._say(b"interrupt")

    def terminate(self) -> None:
        """Ask all processes to end: SIGTERM, SIGKILL after the grace."""
        self._say(b"terminate")

    def orphan(self) -> None:
        """Let all processes end because the launcher, on another host, is gone."""
        self._say(b"orphaned" if self._job.silent_seconds else b"terminate")

    def kill(self) -> None:
        """Kill all processes at once."""
        self._say(b"kill")

    def close(self) -> bool:
        """End what still runs and wait for it; False when the guardian itself had come to harm."""
        if self._control is None or self._guardian is None:
            return True
        self._control.close()
        self._control = None
        try:
            healthy = _await(self._guardian, 2 * self._job.grace + _ENDING_MARGIN) == 0
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()
            healthy = False
        if not healthy:
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        presence.sweep()
        return healthy

    def _say(self, word: bytes) -> None:
        if self._control is not None:
            with contextlib.suppress(ConnectionError):
                self._control.send(word)


def _await(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Return its exit code as soon as it ends. Raises TimeoutExpired."""
    # `wait` looks again and again, in intervals that grow to 50 ms. Old kernels cannot do better.
    with contextlib.suppress(AttributeError, OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll(1000 * seconds)
        finally:
            os.close(descriptor)
        seconds = 0.0
    return process.wait(seconds)
