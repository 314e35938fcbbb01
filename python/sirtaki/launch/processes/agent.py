"""Starts and ends the ranks of a host for a launcher on another.

Two descriptors lead to the launcher: those of ssh, where the launcher reaches this host with
`python -m sirtaki.launch.processes.agent`, else those of a connection made by `connecting_agent`.
The job arrives as a frame, with the secret. After that the descriptor is the lifeline: the agent
ends the ranks when it closes or when nothing arrives on it for some seconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import sys
import time
from functools import partial

import sirtaki
from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.hosts.torch_variables import free_port
from sirtaki.launch.processes import frames
from sirtaki.launch.processes.channels import STREAMS_OF_A_RANK, room_for_files
from sirtaki.launch.processes.events import Event, HostJob, Process
from sirtaki.launch.processes.local import (
    LocalProcesses,
    enter_folder,
    require_command,
    require_system,
)
from sirtaki.launch.processes.outcome import PASSED_ON, signal_name
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.questions.asker import Asker
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import RUNTIME_DIR

_READ_BYTES = 1 << 16
# Beyond this the ranks' output is not read until the launcher has: they wait, as at a full pipe.
_MOST_UNSENT_BYTES = 1 << 20
# A scheduler may signal a rank before the agent.
_LATE_SECONDS = 0.1
_ENDING = {signal.SIGINT: frames.Kind.INTERRUPT, signal.SIGTERM: frames.Kind.TERMINATE}


class Agent:
    """One job on this host, from the greeting to the last process.

    reader, writer: descriptors to the launcher, which the agent makes non-blocking. signals: those
    from the program that started the agent, None to ignore them. together: that program signals the
    ranks too. `orphaned`: whether the launcher was gone before the ranks had ended. `has_failed`:
    whether a rank here failed or could not be started.
    """

    def __init__(
        self, reader: int, writer: int, signals: SignalWatch | None = None, together: bool = False
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._signals = signals
        self._together = together
        self._frames = frames.FrameReader()
        self._selector = selectors.DefaultSelector()
        self._processes: LocalProcesses | None = None
        # Whether processes may leave one by one, as the launcher decides.
        self._is_elastic = False
        self._limits = contextlib.ExitStack()
        self._asker: Asker | None = None
        self._outgoing = bytearray(frames.greeting(sirtaki.__version__))
        self._outgoing += frames.pack_json(
            frames.Kind.EVENT, {"event": "ready", "port": free_port()}
        )
        self._streams: dict[int, tuple[int, str]] = {}
        self._streams_read = True
        self._writing = False
        self._launcher_gone = False
        self.orphaned = self.has_failed = False
        self._done = False
        self._last_heard = self._last_sent = time.monotonic()
        self._silence, self._ping = frames.SILENCE_SECONDS, frames.PING_SECONDS

    def run(self) -> None:
        """Serve until the job is over or the launcher gone, and no process is left."""
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._selector.register(self._reader, selectors.EVENT_READ, self._listen)
        if self._signals is not None:
            self._selector.register(self._signals.reader, selectors.EVENT_READ, self._take_signal)
        try:
            looked = time.monotonic()
            while not self._done or self._outgoing:
                self._arrange()
                for key, _ in self._selector.select(self._ping / 2):
                    key.data()
                now = time.monotonic()
                if now - looked > 2 * self._ping:
                    # A scheduler stopped this process, and possibly the launcher too.
                    self._last_heard = max(self._last_heard, now)
                looked = now
                self._keep_alive()
        finally:
            if self._processes is not None:
                self._processes.close()
            self._limits.close()
            if self._asker is not None:
                self._asker.close()

    def _arrange(self) -> None:
        """Poll for writing if data is unsent, and for output unless too much is unsent."""
        if bool(self._outgoing) != self._writing:
            self._writing = bool(self._outgoing)
            if self._writing:
                self._selector.register(self._writer, selectors.EVENT_WRITE, self._send)
            else:
                self._selector.unregister(self._writer)
        wanted = len(self._outgoing) < _MOST_UNSENT_BYTES
        if wanted != self._streams_read:
            self._streams_read = wanted
            for descriptor in self._streams:
                if wanted:
                    self._follow(descriptor)
                else:
                    self._selector.unregister(descriptor)

    def _keep_alive(self) -> None:
        now = time.monotonic()
        if self._launcher_gone:
            return
        if now - self._last_heard > self._silence:
            self._abandon(f"nothing was heard of the launcher for {self._silence:g} s")
        elif now - self._last_sent >= self._ping and not self._outgoing:
            self._say(frames.pack(frames.Kind.PING))

    def _listen(self) -> None:
        try:
            data = os.read(self._reader, _READ_BYTES)
            if not data:
                self._abandon("")
                return
            self._last_heard = time.monotonic()
            for kind, payload in self._frames.feed(data):
                self._obey(kind, payload)
        except BlockingIOError:
            pass
        except (OSError, frames.FrameError) as error:
            self._abandon(f"cannot understand the launcher: {error}")

    def _obey(self, kind: frames.Kind, payload: bytes) -> None:
        if kind == frames.Kind.JOB and self._processes is None:
            self._take_job(frames.unpack_job(payload))
        elif kind == frames.Kind.START:
            self._start(frames.unpack_start(payload))
        elif kind == frames.Kind.ASK:
            self._ask(*frames.unpack_question(payload))
        elif kind in (
            frames.Kind.SIGNAL,
            frames.Kind.INTERRUPT,
            frames.Kind.TERMINATE,
            frames.Kind.KILL,
        ):
            # A job that was refused has no processes.
            if self._processes is not None:
                _signal(self._processes, kind, payload)
        elif kind == frames.Kind.PAUSE:
            self._last_heard = math.inf
        elif kind != frames.Kind.PING:
            raise frames.FrameError(f"{kind.name} is not expected now")

    def _take_job(self, job: HostJob) -> None:
        """Check the job as far as possible before the start."""
        try:
            require_system()
            enter_folder(job.folder)
            base = {**os.environ, **job.environment, "PWD": job.folder}
            require_command(job.command, path=base.get("PATH"))
            if folder := job.environment.get(RUNTIME_DIR):
                os.environ[RUNTIME_DIR] = folder  # where ranks leave records of themselves
            host, whole = sirtaki.__name__, job._replace(environment=base)
            processes = LocalProcesses(host, [], whole, self._together)
            self._limits.enter_context(room_for_files(STREAMS_OF_A_RANK * job.places))
            self._processes = processes
            self._is_elastic = job.silent_seconds > 0
            self._silence = frames.silence_seconds(job)
            self._ping = frames.ping_seconds(self._silence)
        except LaunchError as error:
            self.has_failed = True
            self._tell("refused", text=str(error), code=error.exit_code)
            self._finish()

    def _start(self, processes: list[Process]) -> None:
        if self._processes is None:
            return  # the job was refused
        running = self._processes.channels()
        try:
            self._processes.start(processes)
        except LaunchError as error:
            self.has_failed = True
            for process in processes:
                self._refuse(process, str(error))
            if self._is_elastic and not running:
                self._finish()  # the launcher will start a new agent
        for control in self._processes.channels():
            if control not in running:
                self._selector.register(control, selectors.EVENT_READ, self._take_events)

    def _refuse(self, process: Process, why: str) -> None:
        """Report that a process cannot be started; the others of an elastic job go on."""
        if self._is_elastic:
            self._tell("said", text=why)
            self._tell("exited", rank=process.id, code=FAILED)
        else:
            self._tell("failed", rank=process.id, text=why)

    def _ask(self, job: str, question: Question, number: int) -> None:
        """Ask the local ranks; the answer is sent when it comes."""
        if self._asker is None:
            self._asker = Asker()
            self._selector.register(self._asker, selectors.EVENT_READ, self._pass_answer)
        self._asker.ask(job, question, number)

    def _pass_answer(self) -> None:
        assert self._asker is not None
        for number, answer in self._asker.take():
            self._say(frames.pack_answer(number, answer))

    def _take_signal(self) -> None:
        """Handle a signal of the program that started us: one that asks to end ends the job."""
        assert self._signals is not None
        number = self._signals.take()
        if number in PASSED_ON and self._processes is not None and not self._together:
            for process in self._processes.running():
                self._processes.signal(process, number)
        elif number in _ENDING:
            if self._processes is None or not self._processes.channels():
                self._abandon(f"{signal_name(number)} received before the job had begun")
                return
            self._tell("cancelled", code=number)
            if not self._together and not self._is_elastic:
                _signal(self._processes, _ENDING[signal.Signals(number)], b"")

    def _take_events(self) -> None:
        assert self._processes is not None
        for event in self._processes.receive():
            if event.kind == "done":
                (control,) = self._processes.channels()
                self._selector.unregister(control)
                self._drain()
                if not self._processes.close():
                    self._tell("lost", text="the process that watches the workers was killed")
                self._finish()
            else:
                self._take_event(event)

    def _take_event(self, event: Event) -> None:
        if self._together and event.kind == "exited" and -event.code in _ENDING:
            time.sleep(_LATE_SECONDS)
            self._take_signal()
        for name, descriptor in zip(frames.STREAMS, event.streams, strict=False):
            os.set_blocking(descriptor, False)
            self._streams[descriptor] = (event.rank, name)
            if self._streams_read:
                self._follow(descriptor)
        self.has_failed |= event.kind == "exited" and event.code != 0
        self._tell(event.kind, rank=event.rank, code=event.code, text=event.text)

    def _follow(self, descriptor: int) -> None:
        self._selector.register(
            descriptor, selectors.EVENT_READ, partial(self._forward, descriptor)
        )

    def _forward(self, descriptor: int) -> bool:
        """Forward a rank's output; False when there is none yet, or the stream has ended."""
        if descriptor not in self._streams:
            # Drained and closed since poll reported it.
            return False
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._say(frames.pack_output(*self._streams[descriptor], data))
            return True
        self._forget(descriptor)
        return False

    def _forget(self, descriptor: int) -> None:
        if self._streams_read:
            self._selector.unregister(descriptor)
        self._say(frames.pack_output(*self._streams[descriptor], b""))  # the end
        del self._streams[descriptor]
        os.close(descriptor)

    def _drain(self) -> None:
        """Forward the output that dead processes left in their pipes."""
        for descriptor in list(self._streams):
            while self._forward(descriptor):
                pass
            if descriptor in self._streams:
                self._forget(descriptor)

    def _abandon(self, why: str) -> None:
        """End the ranks: the launcher is gone, and nobody else reads their output."""
        if why:
            with contextlib.suppress(OSError):
                print(f"sirtaki agent: {why}; ending the processes here", file=sys.stderr)
        self._launcher_gone = True
        self.orphaned = not self._done
        self._outgoing.clear()
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._reader)
        if self._processes is None or not self._processes.channels():
            self._finish()
        else:
            self._processes.orphan()

    def _finish(self) -> None:
        self._tell("done")
        self._done = True

    def _tell(self, event: str, **details: object) -> None:
        self._say(frames.pack_json(frames.Kind.EVENT, {"event": event, **details}))

    def _say(self, frame: bytes) -> None:
        if not self._launcher_gone:
            self._outgoing += frame

    def _send(self) -> None:
        try:
            sent = os.write(self._writer, self._outgoing[:_READ_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self._abandon("")
            return
        self._last_sent = time.monotonic()
        del self._outgoing[:sent]


def _signal(processes: LocalProcesses, kind: frames.Kind, payload: bytes) -> None:
    """Send the ranks the signal that a frame asks for. Raises FrameError."""
    if kind == frames.Kind.INTERRUPT:
        processes.interrupt()
    elif kind == frames.Kind.TERMINATE:
        processes.terminate()
    elif kind == frames.Kind.KILL:
        processes.kill()
    else:
        processes.signal(*frames.unpack_signal(payload))


def main() -> int:
    """Serve the launcher at the other end of standard input and output."""
    reader, writer = os.dup(0), os.dup(1)
    # Nothing else may print between the frames or read from the lifeline.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    Agent(reader, writer).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
