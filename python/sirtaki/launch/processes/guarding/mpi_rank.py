"""Runs a rank under Hydra, the launcher of MPICH and Intel MPI: `mpi_rank.py COMMAND...`.

Hydra puts its label before each piece of output that it reads, so this program writes whole lines.
When a rank fails that has not called MPI, Hydra lets the others go on, and it exits with the
bitwise OR of all exit codes. Here the first failure ends the job, with its own exit code. Signals
go to the process group of the rank, so they reach it directly.

The program is started without `site`, and imports no more than the guardian does.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

_READ_BYTES = 1 << 16
# Intel's Hydra reads this much at once, MPICH's more.
_PIECE_BYTES = 1 << 14
_PAUSE_MS = 50
# How long to wait for the rest of a line.
_PATIENCE_MS = 100.0
# Signals that would end this process, or that it has to handle.
_SIGNALS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_ENDING = (signal.SIGTERM, signal.SIGINT)
_NOT_FOUND, _CANNOT_EXECUTE, _SIGNALLED = 127, 126, 128


class _Lines:
    """Copies whole lines from one descriptor to another."""

    def __init__(self, source: int, target: int) -> None:
        os.set_blocking(source, False)
        self._source = source
        self._target = target
        self.rest = b""

    def read(self) -> bool:
        """Copy available output; False at the end, or when nobody reads."""
        try:
            data = os.read(self._source, _READ_BYTES)
            self.rest += data
            whole = self.rest.rfind(b"\n") + 1
            if not data or len(self.rest) - whole >= _READ_BYTES:
                whole = len(self.rest)
            self._write(self.rest[:whole])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        self.rest = self.rest[whole:]
        return bool(data)

    def finish(self) -> None:
        """Copy the remaining output, even if other processes keep the stream open."""
        while select.select([self._source], [], [], 0)[0] and self.read():
            pass
        self.release()

    def release(self) -> None:
        """Write a line without its end."""
        rest, self.rest = self.rest, b""
        try:  # noqa: SIM105 - without importing contextlib
            self._write(rest)
        except BrokenPipeError:
            pass  # the next read reports it

    def _write(self, data: bytes) -> None:
        while data:
            end = len(data)
            if end > _PIECE_BYTES:
                end = data.rfind(b"\n", 0, _PIECE_BYTES) + 1 or _PIECE_BYTES
            self._await_reader()
            data = data[os.write(self._target, data[:end]) :]

    def _await_reader(self) -> None:
        """Wait until Hydra has read the last piece, so that it reads the next one separately."""
        gone = select.poll()
        gone.register(self._target, 0)
        pause_ms = 1
        while _unread(self._target) and not gone.poll(pause_ms):
            pause_ms = min(2 * pause_ms, _PAUSE_MS)


def _unread(pipe: int) -> int:
    """Return how many bytes a pipe holds; 0 if it is not a pipe."""
    try:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class _Rank:
    """The rank's process and its output."""

    def __init__(self, command: list[str]) -> None:
        self._asked_to_end = False
        self._wake, writer = os.pipe()
        for descriptor in (self._wake, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*_SIGNALS, *_ENDING):
            # The rank inherits ignored signals.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        self._pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, out_writer, 1),
                (os.POSIX_SPAWN_DUP2, err_writer, 2),
            ],
            # Python ignores these two.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
        os.close(out_writer)
        os.close(err_writer)
        self._streams = {out_reader: _Lines(out_reader, 1), err_reader: _Lines(err_reader, 2)}

    def _hear(self, number: int, _frame: object) -> None:
        self._asked_to_end = self._asked_to_end or number in _ENDING

    def wait(self) -> int:
        """Copy the output until the rank ends; returns its exit code, 128 + n after signal n."""
        poll = select.poll()
        for descriptor in (self._wake, *self._streams):
            poll.register(descriptor, select.POLLIN)
        code: int | None = None
        while code is None or (code == 0 and self._streams):
            incomplete = any(lines.rest for lines in self._streams.values())
            ready = poll.poll(_PATIENCE_MS if incomplete else None)
            if not ready:
                for lines in self._streams.values():
                    lines.release()
            for descriptor, _ in ready:
                if descriptor == self._wake:
                    os.read(descriptor, _READ_BYTES)
                elif not self._streams[descriptor].read():
                    poll.unregister(descriptor)
                    del self._streams[descriptor]
                    os.close(descriptor)
            code = self._ended() if code is None else code
        for lines in self._streams.values():
            lines.finish()
        if code > 0 and not self._asked_to_end:
            _end_the_job(code, _how(code))
        return code

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else _SIGNALLED - code


def _end_the_job(code: int, how: str) -> None:
    """Report that this rank failed, and have Hydra end all."""
    who = f"rank {os.environ.get('PMI_RANK', '')} on {os.uname().nodename}"
    os.write(2, f"horovodrun: {who} {how}\n".encode())
    # Send what MPI_Abort sends, on the connection to Hydra.
    connection = int(os.environ.get("PMI_FD", "-1"))
    try:  # noqa: SIM105 - without importing contextlib
        os.write(connection, b"cmd=abort exitcode=%d\n" % code)
    except OSError:
        pass  # the rank has finalized MPI


def _how(code: int) -> str:
    import signal as names  # takes longer than all the rest

    if code <= _SIGNALLED:
        return f"ended with code {code}"
    try:
        return f"ended with {names.Signals(code - _SIGNALLED).name}"
    except ValueError:  # the program's own code, such as 255 for sys.exit(-1)
        return f"ended with code {code}"


def main() -> int:
    """Run the rank; see the module."""
    command = sys.argv[1:]
    try:
        rank = _Rank(command)
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE
        _end_the_job(code, f"cannot execute {command[0]!r}: {error.strerror}")
        return code
    return rank.wait()


if __name__ == "__main__":
    sys.exit(main())
