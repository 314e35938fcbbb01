"""Watching a job whose ranks another program has started: by what its tasks record."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.output.destination import Destination, Waiter
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.tracebacks import Traceback
from sirtaki.launch.processes.outcome import Outcome, failure_of, signal_name
from sirtaki.launch.processes.signals import SignalWatch, obey
from sirtaki.launch.scheduled.folder import Log, Record
from sirtaki.launch.starters.slurm import scancel_command

_BOUND = Path(__file__).parents[1] / "processes" / "bound.py"
_LOOK_SECONDS = 0.2
_TOUCH_SECONDS = 10.0
# How much longer than the grace the scheduler may take to end everything.
_ENDING_MARGIN = 5.0
# How long the starter may go on when every rank has ended by itself.
_STARTER_SECONDS = 60.0


class _Plan(Protocol):
    @property
    def commands(self) -> list[list[str]]: ...

    @property
    def environ(self) -> dict[str, str]: ...

    @property
    def listen(self) -> bool: ...


class Follower:
    """Executes what starts the ranks and follows their records until all is over.

    plan: see `scheduled.Plan`. folder: of the job. errors: takes sentences for the user.
    signals: None to leave signals to the caller. some_wait: whether ranks wait for others to join.
    """

    def __init__(
        self,
        plan: _Plan,
        folder: Path,
        settings: Settings,
        errors: Destination,
        signals: SignalWatch | None,
        some_wait: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._report = errors.say
        self._signals = signals
        self._some_wait = some_wait
        reader = None if signals is None else signals.reader.fileno()
        self._waiter = Waiter(reader, self._take_signal)
        errors.wait = self._waiter.wait
        self._log = Log(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._step = ""
        self._errors = Errors(verbose=True)
        self._missing = set(range(len(settings.slots)))
        self._ends: dict[int, Record] = {}
        self._start_by = time.monotonic() + settings.start_timeout
        self._kill_at: float | None = None
        self._all_ended_at: float | None = None
        self._touched = time.monotonic()
        self._outcome = Outcome()
        self._broken: LaunchError | None = None

    def run(self) -> Outcome:
        """Run to the end. Raises LaunchError when the ranks cannot be started or vanish."""
        try:
            for command in self._plan.commands:
                self._processes.append(self._start(command))
            while any(process.poll() is None for process in self._processes):
                self._wait()
                self._look()
                self._mind_the_time()
            self._look()
        finally:
            self._clean_up()
        return self._judge()

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        # In a session of its own: a terminal's Ctrl-C is for us, who pass it on with grace.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            env=self._plan.environ,
            start_new_session=True,
        )

    def _wait(self) -> None:
        if self._signals is None:
            time.sleep(_LOOK_SECONDS)
            return
        reader = self._signals.reader
        if select.select([reader], [], [], _LOOK_SECONDS)[0]:
            self._take_signal()

    def _take_signal(self) -> None:
        assert self._signals is not None
        obey(self._signals, self._outcome, self._waiter, self._report, self)

    def pause(self) -> None:
        """Do as Ctrl-Z wants; the ranks go on, and those who listen are told why we are silent."""
        self._tell("pause")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._tell("resume")

    def pass_on(self, number: int) -> bool:
        """See `Signalled`."""
        if self._has_none():
            self._look()  # one may have started since
        if self._has_none():
            return False
        self._signal_tasks("signal", number)
        return True

    def _has_none(self) -> bool:
        return len(self._missing) == len(self._settings.slots)

    def _signal_tasks(self, event: str, number: int) -> bool:
        """Tell every task of a signal; False where there is no way to."""
        if self._plan.listen:
            self._tell(event, number)
        elif self._step:
            self._help(scancel_command(self._step, signal_name(number).removeprefix("SIG")))
        return self._plan.listen or bool(self._step)

    def _tell(self, event: str, number: int = 0) -> None:
        if self._plan.listen:
            with contextlib.suppress(OSError):
                self._log.append(Record(event, code=number))

    def _look(self) -> None:
        """Take in what tasks have recorded."""
        try:
            records, _ = self._log.read()
        except OSError as error:
            self._break_off(f"the folder of the job cannot be read any more: {error}")
            return
        for record in records:
            self._step = self._step or record.step
            if record.event == "started":
                self._missing.discard(record.rank)
            elif record.event == "raised":
                self._errors.take(record.rank, Traceback(*map(tuple, json.loads(record.text))))
            elif record.event == "failed":
                self._break_off(f"rank {record.rank} on {record.host}: {record.text}", record.code)
            elif record.event == "exited":
                self._ends[record.rank] = record
                if record.code != 0 and not record.asked and self._outcome == Outcome():
                    self._fail(record)

    def _fail(self, record: Record) -> None:
        failure = self._outcome.failure = failure_of(record.rank, record.code)
        self._report(f"Process {failure.rank} exit with status code {failure.exit_code}.")
        if len(self._ends) < len(self._settings.slots):
            self._report(f"Terminating remaining workers after failure of Process {failure.rank}.")
        if self._plan.listen:
            self.end(signal.SIGTERM)
        else:
            # The scheduler ends the others by itself; we only see that it does.
            self._expect_the_end()

    def _mind_the_time(self) -> None:
        now = time.monotonic()
        if self._missing and now > self._start_by and self._kill_at is None:
            self._break_off(
                f"{self._named(self._missing)} did not start within "
                f"{self._settings.start_timeout:g} s (--start-timeout)"
            )
        early = self._ends and len(self._ends) < len(self._settings.slots)
        if early and self._kill_at is None and self._some_wait():
            self._break_off(
                f"{self._named(set(self._ends))} ended without joining the others, which wait in "
                "init()"
            )
        if self._kill_at is not None and now > self._kill_at:
            self.kill()
        if self._kill_at is None and len(self._ends) == len(self._settings.slots):
            self._mind_the_starter(now)
        if now > self._touched + _TOUCH_SECONDS:
            self._touched = now
            with contextlib.suppress(OSError):
                self._log.touch()

    def _mind_the_starter(self, now: float) -> None:
        """Every rank has ended: do not wait for ever for a starter that has lost some of them."""
        if self._all_ended_at is None or _output_waits():
            self._all_ended_at = now
        elif now > self._all_ended_at + _STARTER_SECONDS:
            program = self._plan.commands[0][0]
            self._report(
                f"every rank ended {_STARTER_SECONDS:g} s ago, but {program} has not: killing it"
            )
            self.kill()
            self._all_ended_at = now

    def _break_off(self, message: str, exit_code: int = 1) -> None:
        self._broken = self._broken or LaunchError(message, exit_code)
        self.end(signal.SIGTERM)

    def end(self, number: int) -> None:
        """See `Signalled`."""
        if self._kill_at is not None:
            return
        # After SIGINT and its grace, the tasks send SIGTERM by themselves.
        self._expect_the_end(graces=2 if number == signal.SIGINT else 1)
        if not self._signal_tasks("end", number):
            self.kill()

    def _expect_the_end(self, graces: int = 1) -> None:
        self._kill_at = time.monotonic() + graces * self._settings.grace + _ENDING_MARGIN

    def kill(self) -> None:
        """See `Signalled`."""
        if self._step:
            self._help(scancel_command(self._step, None))
        for process in self._processes:
            process.kill()

    def _help(self, command: list[str]) -> None:
        with contextlib.suppress(OSError):
            self._helpers.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=self._plan.environ,
                    start_new_session=True,
                )
            )

    def _clean_up(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for helper in self._helpers:
            try:
                helper.wait(_ENDING_MARGIN)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()

    def _judge(self) -> Outcome:
        """Say how it ended: what the starter returns proves nothing."""
        if self._broken is not None:
            raise self._broken
        if self._outcome != Outcome():
            failed = [rank for rank, record in self._ends.items() if record.code != 0]
            self._outcome.first_error = self._errors.first(failed, ())
            return self._outcome
        program = self._plan.commands[0][0]
        if len(self._missing) == len(self._settings.slots):
            codes = [process.returncode for process in self._processes]
            raise LaunchError(
                f"{program} ended (code {max(codes, key=abs)}) before any rank had started; what "
                "it said stands above",
                exit_code=1,
            )
        silent = set(range(len(self._settings.slots))) - set(self._ends)
        if silent:
            raise LaunchError(
                f"{self._named(silent)} ended without a word: the host failed or was cut off, or "
                "the scheduler killed them",
                exit_code=1,
            )
        ended = {rank for rank, record in self._ends.items() if record.code != 0}
        if ended:
            raise LaunchError(
                f"{self._named(ended)} were ended from outside: the job was cancelled, its time "
                "was over, or a host of it failed",
                exit_code=1,
            )
        return self._outcome

    def _named(self, ranks: set[int]) -> str:
        by_host: dict[str, list[str]] = {}
        for rank in sorted(ranks):
            by_host.setdefault(self._settings.slots[rank].host, []).append(str(rank))
        return "; ".join(
            f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} on {host}"
            for host, numbers in by_host.items()
        )


def _output_waits() -> bool:
    """Whether what the starter passes on is not read, so that it cannot end."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, select.POLLOUT)
    return len(poll.poll(0)) < 2
