"""Supervises a job: output, exits, signals, and the end of all when one fails."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence

from sirtaki.launch.errors import CANNOT_EXECUTE, FAILED, JobError, LaunchError
from sirtaki.launch.job_watch import JobWatch
from sirtaki.launch.output.destination import Waiter
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.output.progress import Progress
from sirtaki.launch.output.streams import Streams
from sirtaki.launch.processes.awaited import Awaited
from sirtaki.launch.processes.events import Event, HostProcesses, Process
from sirtaki.launch.processes.frames import PING_SECONDS
from sirtaki.launch.processes.outcome import (
    PASSED_ON,
    Failure,
    FirstFailureEnds,
    Outcome,
    Policy,
    Verdict,
    failure_of,
    signal_name,
)
from sirtaki.launch.processes.signals import SignalWatch

_LOOK_SECONDS = 0.5
_CANCEL_SECONDS = 1.0
_LOST_SECONDS = 0.5  # for ranks to report themselves that they lost those of a host
_CULPRIT_SECONDS = 6.0  # for the failure of a rank that others have lost to be noticed
_SETTLE_SECONDS = 0.25  # the ranks' output about an error arrives by then
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Supervisor:
    """Watches the processes of a job, on all its hosts, until none is left.

    hosts: at least one; no rank starts before all are ready. outputs: for the ranks' output and
    messages to the user. signals: None to leave signals to the caller. start_timeout: seconds for
    all processes to start. some_wait: whether ranks wait for others to join them. verbose: show
    each rank's share of its host, and the decisions. policy: by default the first failure ends the
    job. progress: shows on a terminal what the job waits for. watch: detects hangs.
    """

    def __init__(
        self,
        hosts: Sequence[HostProcesses],
        outputs: Outputs,
        signals: SignalWatch | None,
        start_timeout: float,
        some_wait: Callable[[], bool],
        verbose: bool = False,
        policy: Policy | None = None,
        progress: Progress | None = None,
        watch: JobWatch | None = None,
    ) -> None:
        self._hosts = list(hosts)
        # The hosts that the policy has added.
        self._added: set[HostProcesses] = set()
        self._policy = policy or FirstFailureEnds()
        self._outputs = outputs
        self._progress = progress or Progress()
        self._watch_ranks = watch
        self._report = outputs.say
        self._signals = signals
        reader = None if signals is None else signals.reader.fileno()
        self._waiter = Waiter(reader, self._take_signal)
        outputs.wait_with(self._wait_to_write)
        self._awaited = Awaited(hosts, start_timeout)
        self._some_wait = some_wait
        self._verbose = verbose
        self._ended: list[int] = []
        # Ranks that failed by themselves, and ranks that ended because we asked them to.
        self._failed: list[int] = []
        self._asked: list[int] = []
        self.errors = outputs.errors or Errors()
        # The host of each running process.
        self._running: dict[int, HostProcesses] = {}
        self._open: dict[HostProcesses, list[int]] = {}
        self._selector = selectors.DefaultSelector()
        self._streams = Streams(outputs, self._selector, self._progress, self._fail_to_write)
        self._outcome = Outcome()
        self._broken: LaunchError | None = None
        self._ending = False
        self._end_at: float | None = None
        # Ranks that failed so far; the job's end waits while all of them are victims of others.
        self._suspects: dict[int, Failure] = {}
        self._settled_at = self._culprit_until = 0.0
        # When to call the policy's `look` again.
        self._look_at: float | None = None
        self._away_since = time.monotonic()

    def run(self) -> Outcome:
        """Watch the job to its end.

        Raises JobError when a host cannot be reached or is lost or a worker cannot start,
        LaunchError when their output cannot be copied.
        """
        healthy = True
        try:
            if self._signals is not None:
                self._selector.register(
                    self._signals.reader, selectors.EVENT_READ, self._take_signal
                )
            if self._watch_ranks is not None:
                watch = self._watch_ranks
                self._selector.register(watch, selectors.EVENT_READ, watch.take_here)
            self._connect()
            while self._open or (self._policy.goes_on and not self._ending):
                patience = self._patience()
                began = time.monotonic()
                ready = self._selector.select(patience)
                waited = time.monotonic() - began
                self._away_since += waited if patience is None else min(waited, patience)
                for key, _ in ready:
                    key.data()
                self._come_back()
                self._check_time()
            self._streams.drain()
            self._name_failure(says=self._end_at is not None)
            self._outcome.first_error = self.errors.first(self._failed, self._asked)
            self._outcome.stalled = self.errors.stalled(self._failed)
            self._outcome.exit_code = self._policy.exit_code
        except KeyboardInterrupt:
            # The caller handles signals: the ranks get SIGINT as they would in a terminal.
            self._end(signal.SIGINT)
            raise
        finally:
            self._progress.end()
            for host in self._hosts:
                healthy = host.close() and healthy
            self._streams.close()
            self._selector.close()
            if self._watch_ranks is not None:
                self._watch_ranks.close()
        if self._broken is not None:
            raise self._broken
        if not healthy and self._outcome.success:
            raise JobError("the process that watches the workers was killed")
        return self._outcome

    def _come_back(self) -> None:
        """Extend deadlines by the time in which this process did not run.

        A scheduler may have stopped this process and all hosts.
        """
        away = time.monotonic() - self._away_since
        self._away_since += away
        if away > PING_SECONDS:
            self._awaited.extend(away)
            self._resume()

    def _connect(self) -> None:
        """Connect to all hosts at the same time."""
        for host in self._hosts:
            host.connect()
        remote = [host for host in self._hosts if host.channels()]
        for host in remote:
            self._watch(host)
        self._awaited.expect(remote)
        self._start_when_complete()
        wake = self._policy.begin(self)
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ, self._ask_policy)
            self._ask_policy()

    def add(self, host: HostProcesses) -> None:
        """See `Crew`."""
        host.connect()
        self._hosts.append(host)
        self._added.add(host)
        if host.channels():
            self._watch(host)
            return
        try:
            self._policy.ready(host)
        except LaunchError:
            self._added.remove(host)
            self._hosts.remove(host)
            host.close()
            raise

    def launch(self, host: HostProcesses, processes: Sequence[Process]) -> None:
        """See `Crew`."""
        host.start(processes)
        if host not in self._open:
            self._watch(host)

    def finish(self) -> None:
        """See `Crew`."""
        self._end(signal.SIGTERM)

    def _ask_policy(self) -> None:
        if not self._ending:
            self._carry_out(self._policy.look())

    def _dismiss(self, host: HostProcesses) -> None:
        """Remove a host, added by the policy, that has no process left."""
        self._added.remove(host)
        self._hosts.remove(host)
        host.close()
        if not self._ending:
            self._carry_out(self._policy.gone(host))

    def _start_when_complete(self) -> None:
        if self._awaited.absent or self._ending or self._awaited.refusals or not self._hosts:
            return
        # Rank 0 is on the first of the hosts.
        port = {"MASTER_PORT": str(self._hosts[0].free_port())}
        for host in self._hosts:
            host.start([each._replace(defaults={**each.defaults, **port}) for each in host.planned])
            if host not in self._open:
                self._watch(host)

    def _watch(self, host: HostProcesses) -> None:
        self._open[host] = host.channels()
        for channel in self._open[host]:
            self._selector.register(channel, selectors.EVENT_READ, lambda: self._take_events(host))

    def _patience(self) -> float | None:
        deadlines = [deadline for host in self._open if (deadline := host.deadline()) is not None]
        if deadlines:
            # A short wait, so that `_come_back` notices when we are stopped for longer.
            deadlines.append(time.monotonic() + PING_SECONDS)
        deadlines += self._awaited.deadlines(self._ending)
        if self._ended and self._running and not self._ending:
            deadlines.append(time.monotonic() + _LOOK_SECONDS)
        if self._end_at is not None:
            deadlines.append(self._settled_at if self._answered else self._end_at)
        deadlines += [*self._streams.due(), *self._progress.due()]
        self._look_at = None if self._ending else self._policy.deadline()
        if self._look_at is not None:
            deadlines.append(self._look_at)
        if self._watch_ranks is not None and self._running and not self._ending:
            deadlines += self._watch_ranks.due()
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _check_time(self) -> None:
        for host in list(self._open):
            if _is_overdue(host):
                # We may have been busy or stopped ourselves, with its messages unread.
                self._take_events(host)
        now = time.monotonic()
        self._progress.update([host.host for host in self._awaited.absent])
        self._streams.settle(now)
        looked = self._answered and now >= self._settled_at
        if self._end_at is not None and (now >= self._end_at or looked):
            if now < self._culprit_until and self.errors.awaits(self._suspects, self._running):
                self._end_at = self._settled_at = now + _SETTLE_SECONDS
            else:
                self._end_at = None
                self._name_failure(says=True)
                self._end(signal.SIGTERM)
        absent = self._awaited.named(now)
        if absent and not self._ending and not self._progress.shown:
            self._report(absent)
        if not self._ending and (given_up := self._awaited.given_up(now)) is not None:
            self._break_off(*given_up)
        if self._look_at is not None and now >= self._look_at:
            self._ask_policy()
        if self._watch_ranks is not None and self._running and not self._ending:
            self._watch_ranks.look(list(self._open))
        if self._ended and self._running and not self._ending and self._some_wait():
            self._break_off(
                f"rank {self._ended[0]} ended (exit code 0) without joining the others, which wait "
                "for it in init()"
            )

    def _take_events(self, host: HostProcesses) -> None:
        """Handle a host's events; give up a host that is overdue and has none."""
        if host not in self._open:
            return
        events = host.receive()
        # Checked now, because showing output may take longer than a host may be silent.
        overdue = _is_overdue(host)
        self._take(host, events)
        if overdue and host in self._open:
            self._take(host, host.expire())
        if host in self._open:
            self._forget_channels(host, set(self._open[host]) - set(host.channels()))

    def _forget_channels(self, host: HostProcesses, channels: set[int]) -> None:
        for channel in channels:
            self._selector.unregister(channel)
            self._open[host].remove(channel)

    def _take(self, host: HostProcesses, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "ready" and host in self._added:
                self._policy.ready(host)
            elif event.kind == "ready":
                self._awaited.absent.remove(host)
                self._start_when_complete()
            elif event.kind == "started":
                self._running[event.rank] = host
                self._awaited.processes.discard(event.rank)
                if self._verbose:
                    self._report(f"rank {event.rank} on {host.host}: {event.text}")
                self._streams.open(event, host)
            elif event.kind == "answer" and self._watch_ranks is not None:
                self._watch_ranks.take(host, event.code, event.data)
            elif event.kind == "output":
                self._streams.write(event.rank, event.stream, event.data)
            elif event.kind == "exited":
                self._running.pop(event.rank, None)
                self._ended.append(event.rank)
                if event.text:
                    self._outcome.out_of_memory[event.rank] = event.text
                if event.code != 0:
                    asked = self._ending and -event.code in _ASKING
                    (self._asked if asked else self._failed).append(event.rank)
                    blamed = event.rank in self.errors.blamed(self._suspects)
                    if not asked and (blamed or (self._suspects and self._end_at is not None)):
                        self._suspects[event.rank] = failure_of(event.rank, event.code)
                if not self._ending:
                    self._carry_out(self._policy.ended(event.rank, host.host, event.code))
            elif event.kind == "said":
                self._report(f"{host.host}: {event.text}")
            elif event.kind == "done":
                self._forget_channels(host, set(self._open[host]))
                del self._open[host]
                self._streams.end(host)
                if host in self._added:
                    self._dismiss(host)
            else:
                self._take_trouble(host, event)

    def _take_trouble(self, host: HostProcesses, event: Event) -> None:
        """Handle the failure of a host or of a rank on it."""
        if event.kind == "failed":
            self._break_off(f"rank {event.rank} on {host.host}: {event.text}", CANNOT_EXECUTE)
        elif event.kind == "refused" and host in self._added:
            if not self._ending:
                self._carry_out(self._policy.refused(host.host, event.text))
        elif event.kind == "refused":
            self._awaited.refuse(host, event)
        elif event.kind == "cancelled":
            if not self._ending and not self._policy.cancelled(host.host, event.code):
                # The other hosts get the signal too, and must not get it twice.
                self._break_off_after(
                    _CANCEL_SECONDS,
                    f"host {host.host} was told to end by {signal_name(event.code)}: the job was "
                    "cancelled, its time was over, or a host of it failed",
                )
        elif not self._ending or host not in self._added:
            ranks = [process.id for process in host.planned]
            for rank in [rank for rank, where in self._running.items() if where is host]:
                del self._running[rank]
            self._carry_out(self._policy.lost(host.host, ranks, event.text))

    def _fail_to_write(self, error: BrokenPipeError | LaunchError) -> None:
        """End the job because output cannot be written."""
        if isinstance(error, LaunchError):
            self._broken = self._broken or error
        else:
            # Nobody reads our output any more: end as programs in a pipeline do.
            self._outcome.signal_number = self._outcome.signal_number or signal.SIGPIPE
        self._end(signal.SIGTERM)

    def _wait_to_write(self, descriptor: int) -> bool:
        """Wait until output can be written; that time does not count for deadlines."""
        self._progress.hide()
        began = time.monotonic()
        taken = self._waiter.wait(descriptor)
        waited = time.monotonic() - began
        self._awaited.extend(waited)
        self._away_since += waited
        return taken

    def _carry_out(self, verdict: Verdict | None) -> None:
        """End the job if the policy decided so, unless it is ending for another reason."""
        if verdict is None:
            return
        ends_already = not self._outcome.success or self._broken is not None
        if self._verbose and not ends_already:
            self._report(f"decision: {verdict.symptom}, so the job is ended")
        reason = verdict.reason
        if isinstance(reason, Failure):
            self._outcome.failure = reason
            self._suspects[reason.rank] = reason
            self._end_after_last_look()
        elif self._end_at is not None and self._outcome.failure is not None:
            # The ranks that have failed so far are victims of this.
            self._outcome.failure = None
            self._broken = JobError(str(reason))
        elif ends_already:
            self._report(verdict.symptom)
        else:
            self._end_after_last_look()
            self._break_off_after(_LOST_SECONDS, str(reason))

    @property
    def _answered(self) -> bool:
        """Whether a failed job's ranks have answered the last questions."""
        watch = self._watch_ranks
        return self._outcome.failure is not None and watch is not None and watch.seen

    def _end_after_last_look(self) -> None:
        """End the job after its ranks have reported their state, or soon without it."""
        self._ending = True
        now = time.monotonic()
        self._culprit_until, self._settled_at = now + _CULPRIT_SECONDS, now + _SETTLE_SECONDS
        self._end_at = now + (_LOST_SECONDS if self._running else 0.0)
        if self._watch_ranks is not None and self._running:
            self._watch_ranks.last_look(list(self._open))

    def _name_failure(self, says: bool) -> None:
        """Record and report which rank failed first: those that had lost another were victims."""
        if self._outcome.failure is None:
            return
        rank = self.errors.culprit(self._suspects)
        self._outcome.failure = failure = self._suspects[rank]
        if says:
            self._report(f"Process {rank} exit with status code {failure.exit_code}.")
            if self._running:
                self._report(f"Terminating remaining workers after failure of Process {rank}.")

    def _take_signal(self) -> None:
        """Handle one signal, unless a wait for output has handled it already.

        Ctrl-Z pauses, and signals for the ranks are passed on. The first of the others ends the
        job, a second kills it.
        """
        assert self._signals is not None
        number = self._signals.take()
        if number is None:
            return
        name = signal_name(number)
        if number == signal.SIGTSTP:
            self._pause()
        elif not self._ending and self._policy.asked(number):
            self._signals.drop_copies(number)
            leave = "the processes finish their step, commit and leave (SIGTERM ends them)"
            self._report(f"{name} received: {leave}.")
            self._ask_policy()
        elif number in PASSED_ON and self._pass_on(number):
            self._report(f"{name} received: passed on to the workers.")
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self._report(f"{name} received: no worker runs yet that could take it.")
        elif self._outcome.signal_number is None:
            self._outcome.signal_number = number
            self._waiter.hurry()
            # Before the report, because nobody may read that.
            self._end(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            self._signals.drop_copies(number)
            self._report(f"{name} received: terminating all workers (once more to kill them).")
        else:
            for host in self._hosts:
                host.kill()

    def _pause(self) -> None:
        """Stop as Ctrl-Z asks, after the other hosts have been told."""
        self._progress.hide()
        for host in self._hosts:
            host.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._resume()

    def _resume(self) -> None:
        for host in self._hosts:
            host.resume()

    def _break_off(self, message: str, exit_code: int = FAILED) -> None:
        self._broken = self._broken or JobError(message, exit_code)
        self._awaited.processes.clear()
        self._end(signal.SIGTERM)

    def _break_off_after(self, seconds: float, message: str) -> None:
        """End the job soon; until then ranks may still report what they observed."""
        self._broken = self._broken or JobError(message)
        self._awaited.processes.clear()
        self._ending = True
        self._end_at = time.monotonic() + seconds

    def _pass_on(self, number: int) -> bool:
        """Send a signal to the ranks; False when none runs yet."""
        for rank, host in self._running.items():
            host.signal(rank, number)
        return bool(self._running)

    def _end(self, number: int) -> None:
        """End every rank, with this signal first: SIGINT or SIGTERM."""
        self._ending = True
        self._progress.end()
        for host in self._hosts:
            if number == signal.SIGINT:
                host.interrupt()
            else:
                host.terminate()


def _is_overdue(host: HostProcesses) -> bool:
    deadline = host.deadline()
    return deadline is not None and time.monotonic() > deadline
