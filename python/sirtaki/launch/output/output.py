"""The workers' output: whole lines prefixed with the rank, and raw copies in files."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.destination import Destination, Wait, in_colour_of_rank
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.tracebacks import Traceback, TracebackFinder

_END = re.compile(r"\r\n|\r|\n")
# An endless line would fill the memory.
_MAX_LINE_CHARACTERS = 1 << 20


def timestamp() -> str:
    """Return the local time, to the millisecond, as the prefix of a line."""
    now = time.time()
    return time.strftime(f"%a %b %d %H:%M:%S.{int(now * 1000) % 1000:03} %Y", time.localtime(now))


class LineSplitter:
    r"""Splits a byte stream, UTF-8 with invalid bytes replaced, after each \n, \r or \r\n."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Feed more bytes; returns the lines that they complete, with their ends."""
        return self._cut(self._decoder.decode(data))

    def finish(self) -> list[str]:
        """End the stream; returns the remaining lines, the last of which has no end."""
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

    target: where its lines go, each prefixed with "[rank]<name>:", in the rank's colour if the
    target shows colours. timestamps: put the time before the prefix. say: called once if a copy
    cannot be written. copies: files that get the raw bytes. errors: records tracebacks, None to
    show them unchanged. hidden: show only tracebacks. losses: records which rank this one has lost,
    for a stream without tracebacks.
    """

    def __init__(
        self,
        rank: int,
        name: str,
        target: Destination,
        timestamps: bool,
        say: Callable[[str], object],
        copies: Sequence[BinaryIO] = (),
        errors: Errors | None = None,
        hidden: bool = False,
        losses: Errors | None = None,
    ) -> None:
        self._losses = losses
        self._rank = rank
        self._hidden = hidden
        self._errors = errors
        self._finder = TracebackFinder()
        self._prefix = f"[{rank}]<{name}>:"
        if target.coloured:
            self._prefix = in_colour_of_rank(rank, self._prefix)
        self._target = target
        self._timestamps = timestamps
        self._copies = list(copies)
        self._say = say
        self._splitter = LineSplitter()
        self._after_return = False

    def write(self, data: bytes) -> None:
        """Write the complete lines of the worker's output.

        Raises LaunchError when they cannot be written, BrokenPipeError when nobody reads.
        """
        for copy in list(self._copies):
            try:
                write_all(copy, data)
            except OSError as error:
                self._copies.remove(copy)
                copy.close()
                self._say(
                    f"warning: cannot write {copy.name!r}: {error.strerror}; the job goes on, and "
                    "what this rank prints from now on is not copied: free space for the next run"
                )
        self._take(self._splitter.feed(data))

    def finish(self) -> None:
        """End the stream: write an incomplete last line."""
        for copy in self._copies:
            copy.close()
        self._take(self._splitter.finish())
        self.release()

    @property
    def holds(self) -> bool:
        """Whether lines are held back because they may be part of a traceback."""
        return self._finder.holds

    def release(self) -> None:
        """Write the lines held back. Raises as `write`."""
        self._note(self._finder.release())

    def _take(self, lines: list[str]) -> None:
        if self._errors is None:
            if self._losses is not None:
                for line in lines:
                    self._losses.take_loss(self._rank, line)
            if not self._hidden:
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
                if not self._hidden:
                    lines.append(piece)
        self._show(lines)

    def _show(self, lines: list[str]) -> None:
        prefix = self._prefix
        if self._timestamps:
            prefix = timestamp() + prefix
        shown = []
        for line in lines:
            if line == "\r":
                # Progress bars print \r before their text, so there is nothing to show yet.
                continue
            bare = line == "\n" and self._after_return
            self._after_return = line.endswith("\r")
            shown.append(line if bare else prefix + line)
            if not line.endswith(("\r", "\n")):
                shown.append("\n")
        if shown:
            # One write for all, so that lines of different ranks never mix.
            self._target.write("".join(shown))


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data to an unbuffered file, whose writes may be partial. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def create_directory(path: str) -> None:
    """Create the directory for copies of the output. Raises LaunchError."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LaunchError(f"cannot create the output directory {path!r}: {why}") from None


class Outputs:
    """Makes the streams of all ranks of a job of `size` ranks.

    stdout, stderr: where lines go. directory: gets rank.<zero padded>/stdout and stderr. tee:
    another directory; gets rank.<zero padded>.log with both streams. timestamps: begin each line
    with the time. errors: see RankStream. shown: the ranks whose lines are shown, None for all.
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
        shown: frozenset[int] | None = None,
    ) -> None:
        self.errors = errors
        self._shown = shown
        self._digits = len(str(size - 1))
        self._targets = {"stdout": Destination(stdout), "stderr": Destination(stderr)}
        self._directory = directory
        self._tee = tee
        self._timestamps = timestamps

    def wait_with(self, wait: Wait) -> None:
        """Use `wait` before each write from now on."""
        for destination in self._targets.values():
            destination.wait = wait

    def say(self, message: str) -> None:
        """Show a line of the launcher on stderr, if possible."""
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
        hidden = self._shown is not None and rank not in self._shown
        target = self._targets[name]
        return RankStream(
            rank, name, target, self._timestamps, self.say, copies, errors, hidden, self.errors
        )

    def _open_copies(self, rank: int, name: str) -> list[BinaryIO]:
        number = f"rank.{rank:0{self._digits}d}"
        copies = []
        if self._directory is not None:
            if (Path(self._directory) / number).is_symlink():
                raise LaunchError(f"{self._directory}/{number} is a link: remove it")
            copies.append(_open_copy(Path(self._directory) / number, name, empty=True))
        if self._tee is not None:
            # stdout, opened first, empties the file that both streams share.
            copies.append(_open_copy(Path(self._tee), f"{number}.log", empty=name == "stdout"))
        return copies


def _open_copy(folder: Path, name: str, empty: bool) -> BinaryIO:
    """Open a file for a copy, without following a link that somebody put in its place."""

    def opener(path: str, flags: int) -> int:
        own = os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_TRUNC if empty else 0)
        descriptor = os.open(path, flags | own, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, "it is no file", path)
        return descriptor

    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return cast(BinaryIO, open(path, "ab", buffering=0, opener=opener))
    except OSError as error:
        raise LaunchError(f"cannot create {str(path)!r}: {error.strerror}") from None
