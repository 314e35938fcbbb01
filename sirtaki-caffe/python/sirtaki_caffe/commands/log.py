"""Log lines in the format of Caffe's programs, and what these do when nobody reads their output."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

_NAMES = ("INFO", "WARNING", "ERROR", "FATAL")
INFO, WARNING, ERROR, FATAL = range(4)


class Log:
    """The log of a program.

    Args:
        folder: The folder of log files; "": none.
        least: The minimum severity to write, from INFO to FATAL.
        prefix: Precedes every line, to distinguish processes.
        silent: Write only FATAL lines, because another process writes.
        program: The prefix of file names.
    """

    def __init__(
        self,
        folder: str = "",
        least: int = INFO,
        prefix: str = "",
        silent: bool = False,
        program: str = "caffe",
    ) -> None:
        self._folder = folder
        self._least = FATAL if silent else least
        self._prefix = prefix
        self._program = program
        self._files: dict[int, IO[str] | None] = {}
        self._lock = threading.Lock()
        #: Called before a line is written to standard error, to clear a progress line there.
        self.before_line: Callable[[], None] | None = None

    def info(self, source: str, text: str) -> None:
        """Log an event; `source` is the file name that tools look for."""
        self._write(INFO, source, text)

    def warning(self, source: str, text: str) -> None:
        """Log a possible problem."""
        self._write(WARNING, source, text)

    def error(self, source: str, text: str) -> None:
        """Log an error."""
        self._write(ERROR, source, text)

    def fatal(self, source: str, text: str) -> None:
        """Log the reason why the program ends."""
        self._write(FATAL, source, text)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()

    def _write(self, severity: int, source: str, text: str) -> None:
        if severity < self._least:
            return
        line = sys._getframe(2).f_lineno
        now = time.time()
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
        micros = int(now * 1e6) % 1_000_000
        head = f"{_NAMES[severity][0]}{stamp}.{micros:06d} {threading.get_native_id():5d} "
        message = f"{head}{source}:{line}] {text}\n"
        if self._prefix:
            message = re.sub("^", lambda _: self._prefix, message[:-1], flags=re.MULTILINE) + "\n"
        with self._lock:
            if self.before_line is not None:
                self.before_line()
            # The reader may have exited; training continues.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(message)
                sys.stderr.flush()
            self._write_files(severity, message)

    def _write_files(self, severity: int, message: str) -> None:
        """Write to each severity's file the lines of at least that severity."""
        if not self._folder:
            return
        for level in range(severity + 1):
            if level not in self._files:
                self._files[level] = self._open(level)
            file = self._files[level]
            if file is not None:
                with contextlib.suppress(OSError):
                    file.write(message)
                    file.flush()

    def _open(self, severity: int) -> IO[str] | None:
        """Return a new file; log a failure and return None."""
        name = _NAMES[severity]
        host = socket.gethostname()
        start = time.strftime("%Y%m%d-%H%M%S")
        path = Path(self._folder) / (
            f"{self._program}.{host}.{_user()}.log.{name}.{start}.{os.getpid()}"
        )
        try:
            # Never follows another user's link.
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"Could not create log file: {path}: {error.strerror}\n")
            return None
        file = os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")
        file.write(f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S')}\n")
        file.write(f"Running on machine: {host}\n")
        file.write("Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n")
        _link(Path(self._folder) / f"{self._program}.{name}", path)
        return file


def _user() -> str:
    """Return the user's name; containers may have none for the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def _link(link: Path, path: Path) -> None:
    """Make `link` point to the newest file, unless another file has the name."""
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        if os.path.lexists(link) and not link.is_symlink():
            return
        beside.symlink_to(path.name)
        beside.replace(link)


def ends_quietly(
    main: Callable[[Sequence[str] | None], int],
) -> Callable[[Sequence[str] | None], int]:
    """Make a command end like other programs when nothing reads its output."""

    @functools.wraps(main)
    def command(arguments: Sequence[str] | None = None) -> int:
        try:
            code = main(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            # Python's last flush needs a destination that accepts the remaining output.
            nobody = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nobody, sys.stdout.fileno())
            os.close(nobody)
            return 128 + signal.SIGPIPE
        return code

    return command
