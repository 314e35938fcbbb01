"""What workers print: whole lines with the rank in front, and raw copies in files."""

from __future__ import annotations

import codecs
import re
import time
from pathlib import Path
from typing import BinaryIO, TextIO

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.destination import Destination, Wait
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.tracebacks import Traceback, TracebackFinder

_END = re.compile(r"\r\n|\r|\n")
# A line without end would fill the memory.
_MAX_LINE_CHARACTERS = 1 << 20


def timestamp() -> str:
    """Return the local time, to the millisecond, as it stands in front of a line."""
    now = time.time()
    return time.strftime(f"%a %b %d %H:%M:%S.{int(now * 1000) % 1000:03} %Y", time.localtime(now))


class LineSplitter:
    r"""Cuts a stream of bytes, UTF-8 with invalid ones replaced, behind every \n, \r or \r\n."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Take more bytes; returns the lines completed by them, with their ends."""
        return self._cut(self._decoder.decode(data))

    def finish(self) -> list[str]:
        """Take the end of the stream; returns what was left, of which the last has no end."""
        lines = self._cut(self._decoder.decode(b"", final=True))
        if self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines

    def _cut(self, text: str) -> list[str]:
        lines = []
        start = 0
        for end in _END.finditer(text):
            lines.append(self._rest + text[start : end.end()])
            self._rest = ""
            start = end.end()
        self._rest += text[start:]
        if len(self._rest) > _MAX_LINE_CHARACTERS:
            lines.append(self._rest)
            self._rest = ""
        return lines


class RankStream:
    """One output stream of one rank.

    target: where its lines go, each after "[rank]<name>:". timestamps: put the time before that.
    copy: a file that takes the bytes as they are. errors: where tracebacks are taken note of, None
    to show them as they are.
    """

    def __init__(
        self,
        rank: int,
        name: str,
        target: Destination,
        timestamps: bool,
        copy: BinaryIO | None,
        errors: Errors | None = None,
    ) -> None:
        self._rank = rank
        self._errors = errors
        self._finder = TracebackFinder()
        self._prefix = f"[{rank}]<{name}>:"
        self._target = target
        self._timestamps = timestamps
        self._copy = copy
        self._splitter = LineSplitter()
        self._after_return = False

    def write(self, data: bytes) -> None:
        """Pass on what the worker has printed, as far as its lines are complete.

        Raises LaunchError when it or the copy cannot be written, BrokenPipeError when nobody reads.
        """
        if self._copy is not None:
            try:
                self._copy.write(data)
            except OSError as error:
                raise LaunchError(
                    f"cannot write {self._copy.name!r}: {error.strerror}", exit_code=1
                ) from error
        self._take(self._splitter.feed(data))

    def finish(self) -> None:
        """Take the end of the stream: pass on an incomplete last line."""
        if self._copy is not None:
            self._copy.close()
        self._take(self._splitter.finish())
        self.release()

    @property
    def holds(self) -> bool:
        """Whether lines are held that may be part of a traceback."""
        return self._finder.holds

    def release(self) -> None:
        """Show what is held. Raises as `write`."""
        self._note(self._finder.release())

    def _take(self, lines: list[str]) -> None:
        if self._errors is None:
            self._show(lines)
        else:
            self._note(self._finder.feed(lines))

    def _note(self, pieces: list[str | Traceback]) -> None:
        lines = []
        for piece in pieces:
            assert self._errors is not None
            if isinstance(piece, Traceback):
                lines += self._errors.take(self._rank, piece)
            else:
                self._errors.take_line(self._rank, piece)
                lines.append(piece)
        self._show(lines)

    def _show(self, lines: list[str]) -> None:
        prefix = self._prefix
        if self._timestamps:
            prefix = timestamp() + prefix
        shown = []
        for line in lines:
            if line == "\r":
                # Progress bars return before they write; there is nothing to show yet.
                continue
            bare = line == "\n" and self._after_return
            self._after_return = line.endswith("\r")
            shown.append(line if bare else prefix + line)
            if not line.endswith(("\r", "\n")):
                shown.append("\n")
        if shown:
            # One write for all, so that lines of different ranks never mix.
            self._target.write("".join(shown))


def create_directory(path: str) -> None:
    """Create the directory for copies of the output. Raises LaunchError."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"cannot create the output directory {path!r}: {error.strerror}"
        ) from None


class Outputs:
    """Makes the streams of all ranks of a job of `size` ranks.

    stdout, stderr: where lines go. directory: receives rank.<zero padded>/stdout and stderr.
    timestamps: begin every line with the time. errors: see RankStream.
    """

    def __init__(
        self,
        size: int,
        stdout: TextIO,
        stderr: TextIO,
        directory: str | None = None,
        timestamps: bool = False,
        errors: Errors | None = None,
    ) -> None:
        self.errors = errors
        self._digits = len(str(size - 1))
        self._targets = {"stdout": Destination(stdout), "stderr": Destination(stderr)}
        self._directory = directory
        self._timestamps = timestamps

    def wait_with(self, wait: Wait) -> None:
        """From now on wait like that before something is written."""
        for destination in self._targets.values():
            destination.wait = wait

    def say(self, message: str) -> None:
        """Show a line of our own on stderr, if that is possible."""
        self._targets["stderr"].say(message)

    def prepare(self) -> None:
        """Create the directory now. Raises LaunchError when that is impossible."""
        if self._directory is not None:
            create_directory(self._directory)

    def open(self, rank: int, name: str) -> RankStream:
        """Open stream `name` ("stdout" or "stderr") of a rank. Raises LaunchError."""
        errors = self.errors if name == "stderr" else None
        copy = self._open_copy(rank, name)
        return RankStream(rank, name, self._targets[name], self._timestamps, copy, errors)

    def _open_copy(self, rank: int, name: str) -> BinaryIO | None:
        if self._directory is None:
            return None
        path = Path(self._directory) / f"rank.{rank:0{self._digits}d}" / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("wb", buffering=0)
        except OSError as error:
            raise LaunchError(f"cannot create {str(path)!r}: {error.strerror}") from None
