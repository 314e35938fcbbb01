"""The processes of this host, which one guardian starts, watches and ends."""

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
from sirtaki.launch.cores.shares import Share
from sirtaki.launch.errors import CANNOT_EXECUTE, FAILED, NOT_FOUND, LaunchError, reported
from sirtaki.launch.hosts.torch_variables import complete, free_port
from sirtaki.launch.processes.channels import STREAMS_OF_A_RANK, file_limit
from sirtaki.launch.processes.events import Event, HostJob, HostProcesses, Process
from sirtaki.launch.processes.guarding.process import take_guardian
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.out_of_memory import Killed, newly_killed, own_killed
from sirtaki.rendezvous.network.local_socket import receive_some
from sirtaki.rendezvous.trust.secret import sealed_secret
from sirtaki.rendezvous.words import refuse_shared_heap

_EVENT_BYTES = 4096
# The file size that memory files for the guardian need; ranks check that of shared memory.
_FILE_BYTES = 1 << 20
# How much longer than both graces (after SIGINT and SIGTERM) the guardian may take.
_ENDING_MARGIN = 20.0


def enter_folder(folder: str) -> None:
    """Change to the working folder of a job. Raises LaunchError."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise LaunchError(
            f"the working folder {folder!r} cannot be entered there ({error.strerror}); start from "
            "a folder that all hosts have"
        ) from None


def require_system() -> None:
    """Raise LaunchError unless processes can be watched and can share memory on this machine."""
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
    for word in command:
        if "\0" in word:
            raise LaunchError(
                f"no program takes the argument {word!r}: it has a NUL", CANNOT_EXECUTE
            )
    program = command[0]
    if shutil.which(program, path=path) is not None:
        return
    on_path = os.sep not in program
    if not on_path and Path(program).is_dir():
        raise LaunchError(f"cannot execute {program!r}: it is a directory", CANNOT_EXECUTE)
    if not on_path and Path(program).exists():
        raise LaunchError(f"cannot execute {program!r}: permission denied", CANNOT_EXECUTE)
    where, guess = "no such program on the PATH" if on_path else "no such file", ""
    if on_path and Path(program).is_file():
        where += f"; a script here is run as 'python {program}' or './{program}'"
    elif on_path:
        from sirtaki.launch.flags.guesses import program_like  # agents load no parser

        guess = program_like(program, path or os.environ.get("PATH", ""))
    raise LaunchError(f"command not found: {program!r} ({where}){guess}", NOT_FOUND)


def _file(content: bytes) -> BinaryIO:
    """Create a memory file with this content, positioned at its start."""
    file = os.fdopen(memory_file.create("sirtaki-job"), "w+b")
    file.write(content)
    file.seek(0)
    return file


class LocalProcesses(HostProcesses):
    """Some ranks on this machine, one process group each, in the session of a guardian.

    host: the name for messages. planned: the ranks. job: `environment` is all that they share; they
    run in our working folder. together: whether the sender of a signal to the guardian sends it to
    the ranks too. The guardian ends everything when this process dies, even by SIGKILL. Raises
    LaunchError for CPUs that do not exist, and for variables of --shared-heap.
    """

    def __init__(
        self, host: str, planned: Sequence[Process], job: HostJob, together: bool = False
    ) -> None:
        self.host = host
        self.planned = planned
        self._job = job
        self._base = dict(job.environment)
        self._together = together
        with reported():
            refuse_shared_heap(self._base)
        self._shares = binding.shares_here(job.places, job.bind_to, self._base, job.cpus)
        self._processes: dict[int, Process] = {}
        # The ranks' limit: ours may be raised before they start.
        self._open_files = file_limit()
        self._groups: set[int] = set()
        self._killed: list[Killed] = []
        with contextlib.suppress(OSError, ValueError):
            self._killed = own_killed()
        # See `_interface_of`; None: not determined yet.
        self._interface: dict[str, str] | None = None
        self._control: socket.socket | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def free_port(self) -> int:
        """Return a port of this machine."""
        return free_port()

    def start(self, processes: Sequence[Process]) -> None:
        """Start processes. Raises LaunchError when one runs already, or none can be started."""
        for process in processes:
            if process.id in self._processes:
                raise LaunchError(f"rank {process.id} runs already", FAILED)
        try:
            if self._control is None:
                self._control = self._start_guardian()
            told = [
                {
                    "rank": process.id,
                    "environment": self._complete_environment(process),
                    "cpus": self._share(process).cpus,
                    "terminal": process.terminal,
                }
                for process in processes
            ]
            with _file(marshal.dumps(told)) as file:
                socket.send_fds(self._control, [b"start"], [file.fileno()])
        except OSError as error:
            raise LaunchError(f"no process can be started now: {error}", FAILED) from None
        self._processes |= {process.id: process for process in processes}

    def _start_guardian(self) -> socket.socket:
        job = {
            "command": list(self._job.command),
            "environment": self._base,
            "grace": self._job.grace,
            "room": file_limit(),
            "open_files": self._open_files,
            "together": self._together,
            "silent_seconds": self._job.silent_seconds,
        }
        guardian = take_guardian()
        self._guardian = guardian.program
        # Memory files, because everybody could see an environment on a command line.
        with _file(marshal.dumps(job)) as file, sealed_secret(self._job.secret) as secret:
            socket.send_fds(guardian.control, [b"job"], [file.fileno(), secret.fileno()])
        return guardian.control

    def _complete_environment(self, process: Process) -> dict[str, str]:
        own = {
            **process.environment,
            **binding.gpu_share(process.place, self._job.gpus, self._base),
        }
        defaults = {
            **process.defaults,
            **binding.default_threads(self._share(process)),
            **self._interface_of(process),
        }
        return complete(self._base, own, defaults)

    def _interface_of(self, process: Process) -> dict[str, str]:
        """Return the variable with the interface for PyTorch's Gloo in a job of several hosts."""
        store = process.environment.get("SIRTAKI_RENDEZVOUS", "")
        if store.startswith("unix:"):
            return {}
        if self._interface is None:
            # Here, because jobs on one host start faster without it.
            from sirtaki.launch.hosts.torch_variables import GLOO_VARIABLE, gloo_interface

            chosen = self._base.get("SIRTAKI_IFACE", "")
            name = gloo_interface(store, chosen.split(",") if chosen else ())
            self._interface = {GLOO_VARIABLE: name} if name else {}
        return self._interface

    def _share(self, process: Process) -> Share:
        """Return the share of a process; shares are reused if the host got more slots later."""
        return self._shares[process.place % len(self._shares)]

    def channels(self) -> list[int]:
        """Return the guardian's socket once it is started."""
        return [] if self._control is None else [self._control.fileno()]

    def receive(self) -> list[Event]:
        """Wait for the guardian's next event and return it; "done" after the end."""
        try:
            data, streams = self._receive_message()
        except ConnectionResetError:
            # Raised once if the guardian ended with unread commands; its reports still follow.
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
        """Return warnings about too few CPUs and about the user's other jobs on the same ones."""
        cpus = {cpu for share in self._shares for cpu in share.cpus}
        few = binding.too_few_cpus(len(self._processes), self._job.cpus)
        return [Event("said", text=line) for line in (few, *binding.bound_neighbours(cpus)) if line]

    def _receive_message(self) -> tuple[bytes, list[int]]:
        assert self._control is not None
        return receive_some(self._control, _EVENT_BYTES, STREAMS_OF_A_RANK)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to those processes of a rank that handle it."""
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
        """End all processes because the launcher, on another host, is gone."""
        self._say(b"orphaned" if self._job.silent_seconds else b"terminate")

    def kill(self) -> None:
        """Kill all processes at once."""
        self._say(b"kill")

    def close(self) -> bool:
        """End the remaining processes and wait; False if the guardian itself had failed."""
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
    """Return a process's exit code as soon as it ends. Raises TimeoutExpired."""
    # `wait` polls at intervals of up to 50 ms; a pidfd does not, but old kernels have none.
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
