"""What workers print: whole lines with the rank in front, and raw copies in files."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.colours import in_colour_of_rank
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

    target: where its lines go, each after "[rank]<name>:", in the rank's colour if the target
    shows colours. timestamps: put the time before that. copies: files that take the bytes as they
    are. errors: where tracebacks are taken note of, None
    to show them as they are.
    """

    def __init__(
        self,
        rank: int,
        name: str,
        target: Destination,
        timestamps: bool,
        copies: Sequence[BinaryIO] = (),
        errors: Errors | None = None,
    ) -> None:
        self._rank = rank
        self._errors = errors
        self._finder = TracebackFinder()
        self._prefix = f"[{rank}]<{name}>:"
        if target.coloured:
            self._prefix = in_colour_of_rank(rank, self._prefix)
        self._target = target
        self._timestamps = timestamps
        self._copies = copies
        self._splitter = LineSplitter()
        self._after_return = False

    def write(self, data: bytes) -> None:
        """Pass on what the worker has printed, as far as its lines are complete.

        Raises LaunchError when it or the copy cannot be written, BrokenPipeError when nobody reads.
        """
        for copy in self._copies:
            try:
                copy.write(data)
            except OSError as error:
                raise LaunchError(
                    f"cannot write {copy.name!r}: {error.strerror}", exit_code=1
                ) from error
        self._take(self._splitter.feed(data))

    def finish(self) -> None:
        """Take the end of the stream: pass on an incomplete last line."""
        for copy in self._copies:
            copy.close()
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

    stdout, stderr: where lines go. directory: receives rank.<zero padded>/stdout and stderr. tee:
    another, which receives rank.<zero padded>.log with both streams. timestamps: begin every line
    with the time. errors: see RankStream.
    """

    def __init__(
        self,
        size: int,
        stdout: TextIO,
        stderr: TextIO,
        directory: str | None = None,
        timestamps: bool = False,
        errors: Errors | None = None,
        tee: str | None = None,
    ) -> None:
        self.errors = errors
        self._digits = len(str(size - 1))
        self._targets = {"stdout": Destination(stdout), "stderr": Destination(stderr)}
        self._directory = directory
        self._tee = tee
        self._timestamps = timestamps

    def wait_with(self, wait: Wait) -> None:
        """From now on wait like that before something is written."""
        for destination in self._targets.values():
            destination.wait = wait

    def say(self, message: str) -> None:
        """Show a line of our own on stderr, if that is possible."""
        self._targets["stderr"].say(message)

    def prepare(self) -> None:
        """Create the directories now. Raises LaunchError when that is impossible."""
        for directory in (self._directory, self._tee):
            if directory is not None:
                create_directory(directory)

    def open(self, rank: int, name: str) -> RankStream:
        """Open stream `name` ("stdout" or "stderr") of a rank. Raises LaunchError."""
        errors = self.errors if name == "stderr" else None
        copies = self._open_copies(rank, name)
        return RankStream(rank, name, self._targets[name], self._timestamps, copies, errors)

    def _open_copies(self, rank: int, name: str) -> list[BinaryIO]:
        number = f"rank.{rank:0{self._digits}d}"
        copies = []
        if self._directory is not None:
            copies.append(_open_copy(Path(self._directory) / number / name, empty=True))
        if self._tee is not None:
            path = Path(self._tee) / f"{number}.log"
            # The first of the two streams that share it.
            copies.append(_open_copy(path, empty=name == "stdout"))
        return copies


def _open_copy(path: Path, empty: bool) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if empty:
            path.write_bytes(b"")
        return cast(BinaryIO, path.open("ab", buffering=0))
    except OSError as error:
        raise LaunchError(f"cannot create {str(path)!r}: {error.strerror}") from None
