"""What a scheduler starts for every rank: it runs the rank and records what becomes of it.

Run as `task.py FOLDER [RANK]`, see `folder`. Without RANK the scheduler's variables
say which one it is. Standard output and standard error are the rank's, whole lines with the rank in
front. Schedulers and their programs do not tell reliably how a rank ended, so this one does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if __name__ == "__main__":
    # The folder of this file gives way to that of the package, wherever it is on this host.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from sirtaki.launch.cores.shared_heap import with_heap
from sirtaki.launch.errors import CANNOT_EXECUTE, FAILED, LaunchError
from sirtaki.launch.hosts.torch_variables import complete
from sirtaki.launch.output.destination import Destination, Waiter
from sirtaki.launch.output.first_error import PATIENCE_SECONDS, Errors
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.processes.guardian import descendants, pass_on
from sirtaki.launch.processes.local import enter_folder, require_command
from sirtaki.launch.processes.outcome import PASSED_ON
from sirtaki.launch.scheduled.folder import Log, Record, read_job

if TYPE_CHECKING:
    from sirtaki.launch.output.output import RankStream

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 1 << 16
_LISTEN_SECONDS = 1.0
_KILL_SECONDS = 0.05
_LATE_SECONDS = 0.1
_LAUNCHER_SILENCE_SECONDS = 60.0
_MOST_LINES = 200
_END = (signal.SIGTERM, signal.SIGINT)


def rank_and_size(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the rank and the number of ranks of this task, from a step's own variables only.

    Raises LaunchError when this is no task of a step.
    """
    for needed, rank, size in (
        ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
        ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        if needed in environ:
            with contextlib.suppress(KeyError, ValueError):
                return int(environ[rank]), int(environ[size])
    raise LaunchError("this process was started neither by srun nor by jsrun: its rank is unknown")


class Task:
    """One rank, from its fork to the record of its end.

    rank: in the job. job: as `read_job` returns it. log: where its records go.
    """

    def __init__(self, rank: int, job: dict[str, Any], log: Log) -> None:
        self._rank = rank
        self._job = job
        self._log = log
        self._host = socket.gethostname()
        self._pid = 0
        self._status: int | None = None
        self._asked = False
        self._terminate_at: float | None = None
        self._kill_at: float | None = None
        self._sees_own_start = False
        self._heard_at = time.monotonic()
        self._changed = 0.0
        self._launcher_paused = False
        self._gave_up = False
        self._errors = Errors(job["verbose"])
        self._stderr: RankStream | None = None
        self._release_at: float | None = None
        self._waiter = Waiter(None, lambda: None)
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run the rank to its end; returns the exit code for the scheduler."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake = self._catch_signals()
        self._record("started", step=_step(os.environ))
        self._waiter = Waiter(wake, lambda: self._take_signals(wake))
        try:
            streams, outcome = self._start()
        except (LaunchError, OSError) as error:
            return self._give_up(error)
        for descriptor, stream in streams:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, stream)
        with os.fdopen(outcome, "rb") as file:
            number = file.read()
        if number:
            os.waitpid(self._pid, 0)
            why = f"cannot execute the command: {os.strerror(int(number))}"
            return self._give_up(LaunchError(why, CANNOT_EXECUTE))
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._watch(wake)
        return self._finish()

    def _catch_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_END, *PASSED_ON):
            signal.signal(number, lambda *_: None)
        return reader

    def _start(self) -> tuple[list[tuple[int, RankStream]], int]:
        """Fork and execute; returns the read ends of the output, and of the error of that."""
        job = self._job
        base = {**os.environ, **job["environment"]}
        own, defaults = job["environments"][self._rank], job["defaults"][self._rank]
        environment = {**base, **complete(base, own, defaults), **with_heap({**base, **own})}
        enter_folder(job["directory"])
        require_command(job["command"], path=environment.get("PATH"))
        out, err = self._open_outputs()
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        outcome_reader, outcome_writer = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            writers = (out_writer, err_writer, outcome_writer)
            _become(job["command"], environment, parent, writers)
        for descriptor in (out_writer, err_writer, outcome_writer):
            os.close(descriptor)
        return [(out_reader, out), (err_reader, err)], outcome_reader

    def _open_outputs(self) -> tuple[RankStream, RankStream]:
        job = self._job
        outputs = Outputs(
            len(job["environments"]),
            sys.stdout,
            sys.stderr,
            job["output"],
            job["timestamps"],
            self._waiter.wait,
            self._errors,
        )
        outputs.prepare()
        self._stderr = outputs.open(self._rank, "stderr")
        return outputs.open(self._rank, "stdout"), self._stderr

    def _watch(self, wake: int) -> None:
        while self._status is None:
            for key, _ in self._selector.select(self._patience()):
                if key.fd == wake:
                    self._take_signals(wake)
                else:
                    self._forward(key.fd, key.data)
            self._reap()
            if self._status is not None and self._status < 0:
                # A scheduler may have signalled the rank before us.
                time.sleep(_LATE_SECONDS)
                self._take_signals(wake)
            if self._job["listen"]:
                self._listen()
            self._hurry()

    def _hurry(self) -> None:
        """End more firmly what has outlived its grace; show what waited for more long enough."""
        now = time.monotonic()
        if self._stderr is not None and self._release_at is not None and now >= self._release_at:
            self._release_at = None
            with self._writing():
                self._stderr.release()
        if self._terminate_at is not None and now >= self._terminate_at:
            self._terminate()
        if self._kill_at is not None and now >= self._kill_at:
            _signal_all(signal.SIGKILL)

    def _patience(self) -> float | None:
        if self._release_at is not None:
            return max(0.0, self._release_at - time.monotonic())
        next_at = self._terminate_at if self._kill_at is None else self._kill_at
        if next_at is not None:
            return max(_KILL_SECONDS, next_at - time.monotonic())
        return _LISTEN_SECONDS if self._job["listen"] else None

    def _take_signals(self, wake: int) -> None:
        try:
            numbers = os.read(wake, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            # Slurm signals all processes of a step, the rank's too: it is to have it once.
            reached = bool(_step(os.environ))
            if number in _END:
                self._end(number, reached)
            elif number in PASSED_ON and not reached:
                pass_on(number, self._pid)

    def _end(self, number: int = signal.SIGTERM, reached: bool = False) -> None:
        """Ask the rank to end: SIGTERM, SIGKILL after the grace; or before them SIGINT.

        reached: whether the rank has had SIGINT already.
        """
        if self._asked:
            return
        self._asked = True
        self._waiter.hurry()
        if number == signal.SIGINT:
            self._terminate_at = time.monotonic() + self._job["grace"]
            _signal_all(*[] if reached else [signal.SIGINT], signal.SIGCONT)
        else:
            self._terminate()

    def _terminate(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._job["grace"]
            # A stopped process takes SIGTERM only once it continues.
            _signal_all(signal.SIGTERM, signal.SIGCONT)

    def _listen(self) -> None:
        """Hear what the launcher wants, or that it is gone."""
        try:
            records, changed = self._log.read()
        except OSError:
            records, changed = [], self._changed
        now = time.monotonic()
        if changed != self._changed:
            self._changed, self._heard_at = changed, now
        for record in records:
            if record.event == "end":
                self._end(record.code)
            elif record.event == "started" and record.rank == self._rank:
                self._sees_own_start = True
            elif record.event == "signal" and self._sees_own_start:
                # One from before was not for a rank that did not run yet.
                pass_on(record.code, self._pid)
            elif record.event in ("pause", "resume"):
                self._launcher_paused = record.event == "pause"
        if now - self._heard_at > _LAUNCHER_SILENCE_SECONDS and not self._launcher_paused:
            self._end()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(status)

    def _forward(self, descriptor: int, stream: RankStream) -> bool:
        """Pass on what has been printed; False when there is nothing (yet, or any more)."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
        written = False
        with self._writing():
            if data:
                stream.write(data)
            else:
                stream.finish()
            written = bool(data)
        if stream.holds:
            self._release_at = time.monotonic() + PATIENCE_SECONDS
        return written

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """End the rank when what it prints cannot be written."""
        try:
            yield
        except BrokenPipeError:
            self._end()
        except LaunchError as error:
            if not self._gave_up:
                self._give_up(error)
            self._end()

    def _finish(self) -> int:
        """End what the rank left running, pass on the rest of its output, record its end."""
        assert self._status is not None
        self._record("exited", code=self._status)
        _signal_all(signal.SIGKILL)
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                while self._forward(key.fd, key.data):
                    pass
                if key.fd in self._selector.get_map():
                    with contextlib.suppress(BrokenPipeError, LaunchError):
                        key.data.finish()
        said = self._errors.last_of(self._rank, self._asked) if self._status != 0 else None
        if said is not None:
            self._record("raised", text=json.dumps([said.lines[-_MOST_LINES:], said.rest]))
        if self._terminate_at is not None:
            # srun would end the others, who are in their grace, because of a code that is not 0.
            return 0
        return 128 - self._status if self._status < 0 else self._status

    def _give_up(self, error: LaunchError | OSError) -> int:
        """Tell the launcher why the rank cannot start or go on; returns the exit code for that."""
        self._gave_up = True
        code = error.exit_code if isinstance(error, LaunchError) else FAILED
        self._record("failed", code, text=str(error))
        return code

    def _record(self, event: str, code: int = 0, step: str = "", text: str = "") -> None:
        record = Record(event, self._rank, self._host, code, self._asked, step, text)
        try:
            self._log.append(record)
        except OSError as error:
            what = text or f"{event} ({code})"
            Destination(sys.stderr).say(
                f"rank {self._rank} on {self._host}: cannot record for the launcher, {what}: "
                f"{error}"
            )


def _step(environ: Mapping[str, str]) -> str:
    if "SLURM_STEP_ID" in environ and "SLURM_JOB_ID" in environ:
        return f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    return ""


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _signal_all(*numbers: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _become(
    command: list[str],
    environment: dict[str, str],
    parent: int,
    writers: tuple[int, int, int],
) -> NoReturn:
    """Turn this fork into the rank, or write the errno of the failure to the last writer."""
    out_writer, err_writer, outcome_writer = writers
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for number in (*_END, *PASSED_ON, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out_writer, 1)
            os.dup2(err_writer, 2)
            os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(outcome_writer, str(error.errno).encode())
    finally:
        os._exit(127)


def main(arguments: list[str]) -> int:
    """Run the rank that the arguments and the environment tell; returns its exit code."""
    # The rank's working folder will be ours too.
    folder = Path(arguments[0]).absolute()
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(errors="replace")  # type: ignore[union-attr]
    who = f"a rank on {socket.gethostname()} cannot start"
    errors = Destination(sys.stderr)
    try:
        job = read_job(folder)
    except OSError as error:
        errors.say(
            f"{who}: {error}; every host of the job must see that folder: set SIRTAKI_SHARED_DIR "
            "to one on a file system that they share"
        )
        return FAILED
    try:
        size = len(job["environments"])
        rank, found = (int(arguments[1]), size) if arguments[1:] else rank_and_size(os.environ)
        if found != size or not 0 <= rank < size:
            raise LaunchError(f"rank {rank} of {found} was started in a job of {size} ranks")
        return Task(rank, job, Log(folder)).run()
    except (LaunchError, OSError) as error:
        errors.say(f"{who}: {error}")
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
