"""The ranks of another host, managed by an agent there over a channel."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import sirtaki
from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.processes import frames
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.processes.events import Event, HostJob, Process
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.threads import begin

_READ_BYTES = 1 << 16
_KEPT_LINES = 5


class _Writer(threading.Thread):
    """Sends the frames put in, and a ping whenever there is none.

    It is a thread, so that the agents do not believe us dead while a terminal blocks our output.
    """

    def __init__(self, channel: Channel, sock: socket.socket, ping: float) -> None:
        super().__init__(name="sirtaki-agent-writer", daemon=True)
        self._ping = ping
        self._channel = channel
        self._socket = sock
        self._frames: queue.Queue[bytes | None] = queue.Queue()
        self._silent = threading.Event()
        self._resumed = threading.Event()

    def put(self, frame: bytes | None) -> None:
        """Send a frame; None closes our direction, which ends the agent."""
        self._frames.put(frame)

    def pause(self) -> None:
        """Announce a silence that lasts until `resume`; returns once it is announced."""
        self._silent.clear()
        self._resumed.clear()
        self._frames.put(frames.pack(frames.Kind.PAUSE))
        # The reader notices a connection that does not even accept this frame.
        self._silent.wait(frames.PING_SECONDS)

    def resume(self) -> None:
        """End the silence."""
        self._resumed.set()
        self._frames.put(frames.pack(frames.Kind.PING))

    def run(self) -> None:
        # The reader notices the end of the other side.
        sent = 0
        with contextlib.suppress(OSError):
            while True:
                try:
                    frame = self._frames.get(timeout=self._ping)
                except queue.Empty:
                    frame = frames.pack(frames.Kind.PING)
                if frame is None:
                    self._socket.shutdown(socket.SHUT_WR)
                    return
                self._socket.sendall(frame)
                sent += len(frame)
                if frame == frames.pack(frames.Kind.PAUSE):
                    self._channel.flush(sent, frames.PING_SECONDS)
                    self._silent.set()
                    self._resumed.wait()


class RemoteProcesses:
    """Some ranks on another host.

    host: the name for messages. planned: the ranks. channel: leads to the agent. job: sent with the
    first start, when the agent has greeted us. patience: how many seconds to wait for the agent,
    None if the job has a limit for all hosts.
    """

    def __init__(
        self,
        host: str,
        planned: Sequence[Process],
        channel: Channel,
        job: HostJob,
        patience: float | None = None,
    ) -> None:
        self.host = host
        self.planned = planned
        self._ranks = {process.id for process in planned}
        self._channel = channel
        self._job = job
        self._patience = patience
        self._socket: socket.socket | None = None
        self._writer: _Writer | None = None
        self._greeting: frames.GreetingReader | None = frames.GreetingReader()
        self._frames = frames.FrameReader()
        self._errors = bytearray()
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._open: list[int] = []
        self._last_heard = 0.0
        self._silence = frames.SILENCE_SECONDS
        self._ready = False
        self._free_port = 0
        self._started = False
        self._ending = False
        self._over = False
        self._lost = False

    def connect(self) -> None:
        """Open the channel to the agent. Raises LaunchError."""
        self._socket = self._channel.open(self.host)
        self._open = [self._socket.fileno()]
        if self._channel.errors is not None:
            self._open.append(self._channel.errors)
        writer = _Writer(
            self._channel, self._socket, frames.ping_seconds(frames.silence_seconds(self._job))
        )
        try:
            begin(writer)
        except OSError as error:
            self._channel.close(patiently=False)
            self._socket.close()
            raise LaunchError(f"host {self.host} cannot be reached: {error}", FAILED) from None
        self._writer = writer
        self._last_heard = time.monotonic()

    def free_port(self) -> int:
        """Return the free port that the agent reported."""
        return self._free_port

    def start(self, processes: Sequence[Process]) -> None:
        """Send the agent the processes to start."""
        if not self._started:
            self._started = True
            self._send(frames.pack_job(self._job))
            # The agent pings more often from here on, but it has to read the job first.
            self._silence = frames.silence_seconds(self._job)
            self._last_heard = time.monotonic()
        self._ranks |= {process.id for process in processes}
        self._send(frames.pack_start(processes))

    def channels(self) -> list[int]:
        """Return the open descriptors of the agent and of the program that started it."""
        return list(self._open)

    def deadline(self) -> float | None:
        """Return when the agent will have been silent for too long."""
        patience = self._silence if self._ready else self._patience
        return None if self._over or patience is None else self._last_heard + patience

    def expire(self) -> list[Event]:
        """Declare the host lost."""
        if not self._ready:
            return self._lose(f"no answer within {self._patience:g} s (--start-timeout)")
        return self._lose(f"nothing was heard of it for {self._silence:g} s")

    def receive(self) -> list[Event]:
        """Return the agent's reports and the program's messages."""
        events: list[Event] = []
        for descriptor in self.channels():
            try:
                data = self._read(descriptor)
            except BlockingIOError:
                continue
            if descriptor == self._channel.errors:
                events += self._take_errors(data)
            else:
                events += self._take_data(data)
            if not data and descriptor in self._open:
                self._open.remove(descriptor)
        return events

    def _read(self, descriptor: int) -> bytes:
        if descriptor == self._channel.errors:
            return os.read(descriptor, _READ_BYTES)
        assert self._socket is not None
        try:
            return self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except ConnectionError:
            return b""

    def pause(self) -> None:
        """Announce our silence, so that the agent does not take it for our end."""
        if self._writer is not None and not self._over:
            self._writer.pause()

    def resume(self) -> None:
        """Resume pings; the agent's reports in between are still unread."""
        self._last_heard = time.monotonic()
        if self._writer is not None:
            self._writer.resume()

    def signal(self, rank: int, number: int) -> None:
        """See HostProcesses."""
        self._send(frames.pack_signal(rank, number))

    def ask(self, job: str, question: Question, number: int) -> bool:
        """See HostProcesses."""
        if self._started and not self._over:
            self._send(frames.pack_question(job, question, number))
        return True

    def interrupt(self) -> None:
        """See HostProcesses."""
        self._ask_to_end(frames.Kind.INTERRUPT)

    def terminate(self) -> None:
        """See HostProcesses."""
        self._ask_to_end(frames.Kind.TERMINATE)

    def _ask_to_end(self, how: frames.Kind) -> None:
        self._ending = True
        if self._started:
            self._send(frames.pack(how))
        else:
            # Before the start only the connection has to be ended.
            self._channel.cut()

    def kill(self) -> None:
        """Kill all processes at once."""
        self._send(frames.pack(frames.Kind.KILL))

    def close(self) -> bool:
        """Hang up, which ends the remaining processes, and wait for the agent's starter."""
        self._send(None)
        if self._writer is not None:
            self._channel.close(patiently=self._ready and not self._lost)
            self._writer.join()
        if self._socket is not None:
            self._socket.close()
        return True

    def _send(self, frame: bytes | None) -> None:
        """Send a frame, or hang up by None."""
        if self._writer is not None:
            self._writer.put(frame)

    def _take_errors(self, data: bytes) -> list[Event]:
        self._errors += data
        *lines, rest = self._errors.split(b"\n")
        if not data and rest:
            lines, rest = [*lines, rest], bytearray()
        self._errors = rest
        texts = [line.decode(errors="replace").rstrip() for line in lines if line.strip()]
        self._lines.extend(texts)
        # Before the host is ready these lines may explain a failure, and are reported with it.
        return [Event("said", text=text) for text in texts] if self._ready else []

    def _take_data(self, data: bytes) -> list[Event]:
        self._last_heard = time.monotonic()
        try:
            if not data:
                return self._take_end()
            greeting = self._greeting
            if greeting is None:
                return self._take_frames(data)
            version = greeting.feed(data)
            if version is None:
                return []
            said = self._greet(version, greeting)
            return said if self._over else [*said, *self._take_frames(greeting.rest)]
        except frames.FrameError as error:
            return self._lose(f"what it sends cannot be read ({error})")

    def _greet(self, version: str, greeting: frames.GreetingReader) -> list[Event]:
        self._greeting = None
        self._ready = True
        self._channel.reached()
        if version != sirtaki.__version__:
            return self._give_up(
                f"Sirtaki {version} is installed there, {sirtaki.__version__} runs here; install "
                "the same version on all hosts"
            )
        said = [Event("said", text=line) for line in (*greeting.noise, *self._lines)]
        self._lines.clear()
        return said

    def _take_frames(self, data: bytes) -> list[Event]:
        events = []
        for kind, payload in self._frames.feed(data):
            if kind == frames.Kind.OUTPUT:
                rank, stream, printed = frames.unpack_output(payload)
                events.append(Event("output", self._own(rank), stream=stream, data=printed))
            elif kind == frames.Kind.EVENT:
                events.append(self._read_event(frames.unpack_json(payload)))
            elif kind == frames.Kind.ANSWER:
                number, answer = frames.unpack_answer(payload)
                events.append(Event("answer", code=number, data=answer))
        return events

    def _read_event(self, message: Mapping[str, Any]) -> Event:
        kind, rank, code = message.get("event"), message.get("rank", -1), message.get("code", 0)
        if not isinstance(code, int) or not isinstance(rank, int):
            raise frames.FrameError(f"an event with rank {rank!r} and code {code!r}")
        if kind in ("started", "failed", "exited"):
            return Event(kind, self._own(rank), code, text=str(message.get("text", "")))
        if kind in ("refused", "cancelled", "lost", "said"):
            return Event(kind, code=code, text=str(message.get("text", "")))
        if kind == "ready" and not self._free_port:
            port = message.get("port")
            if not isinstance(port, int) or port < 1:
                raise frames.FrameError(f"port {port!r}")
            self._free_port = port
            return Event(kind)
        if kind == "done":
            self._over = True
            self._send(None)
            return Event("done")
        raise frames.FrameError(f"there is no event {kind!r}")

    def _own(self, rank: int) -> int:
        if rank not in self._ranks:
            raise frames.FrameError(f"rank {rank} is not on this host")
        return rank

    def _take_end(self) -> list[Event]:
        """Handle the end of the program's standard output: the agent is gone, well or not."""
        if self._over:
            return []
        code = self._channel.wait()
        if self._channel.errors in self._open:
            with contextlib.suppress(BlockingIOError):
                self._take_errors(self._read(self._channel.errors))
        if not self._ready:
            noise = self._greeting.noise if self._greeting is not None else []
            why = self._channel.explain(code, [*noise[-_KEPT_LINES:], *self._lines])
            return self._give_up(why)
        said = f": {'; '.join(self._lines)}" if self._lines else ""
        return self._lose(f"the connection has ended{said}")

    def _give_up(self, why: str) -> list[Event]:
        quiet = self._ending or self._over
        self._finish()
        return [Event("done")] if quiet else [Event("refused", code=1, text=why), Event("done")]

    def _lose(self, how: str) -> list[Event]:
        if self._over:
            return []
        if not self._started:
            return self._give_up(how)
        self._lost = True
        self._finish()
        return [Event("lost", text=how), Event("done")]

    def _finish(self) -> None:
        self._over = True
        self._channel.cut()
