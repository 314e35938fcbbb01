"""The flags of `caffe` and of the tools beside it, in the syntax of gflags; variables GLOG_*."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


class FlagError(Exception):
    """A flag that is unknown or has an invalid value."""


def _flag(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass
class Flags:
    """The values of the command line."""

    solver: str = _flag("", "the solver's text file; train needs it")
    model: str = _flag("", "the net's text file; test and time need it")
    weights: str = _flag("", "files of weights to start from, separated by commas")
    snapshot: str = _flag("", "the state to resume from")
    gpu: str = _flag("", "GPUs to run on, separated by commas, or all; a process takes one")
    iterations: int = _flag(50, "how many batches test and time run")
    phase: str = _flag("", "for time: TRAIN (default) or TEST")
    level: int = _flag(0, "the level of the net's state")
    stage: str = _flag("", "the stages of the net's state, separated by commas")
    sigint_effect: str = _flag("stop", "what SIGINT does: stop, snapshot or none")
    sighup_effect: str = _flag("snapshot", "what SIGHUP does: stop, snapshot or none")
    engine: str = _flag("", "the engine whose meaning layers have: CAFFE, MKL2017 or MKLDNN")
    forward_only: bool = _flag(False, "time: without the backward pass")
    detection: bool = _flag(False, "test: mean average precision (11point)")
    sampling: bool = _flag(False, "test: build the net, load the weights and return")
    n_group: int = _flag(1, "groups of processes; 1")
    n_server: int = _flag(0, "parameter servers; 0")
    param_server: str = _flag("", "accepted for old scripts: mpi")
    collect_dir: str = _flag("collect_out", "collect: where tensors are written")
    compare_output_dir: str = _flag("compare_out", "compare: where differences are written")
    epsilon: float = _flag(1e-3, "compare: the largest difference")
    fast_compare: bool = _flag(False, "compare: stop at the first differences")
    fast_compare_max: int = _flag(50, "compare: how many")
    buffer_filler: float = _flag(float("nan"), "collect: what buffers are filled with")
    all_ranks_log: bool = _flag(False, "every process writes its log, [rank] before each line")
    logtostderr: bool = _flag(False, "log to standard error only, not to files")
    alsologtostderr: bool = _flag(True, "accepted; the log always goes to standard error")
    stderrthreshold: int = _flag(0, "accepted; the log always goes to standard error")
    colorlogtostderr: bool = _flag(False, "accepted without effect")
    log_dir: str = _flag(
        "", "where log files are made; default: GOOGLE_LOG_DIR, TEST_TMPDIR, TMPDIR, TMP or /tmp"
    )
    log_prefix: bool = _flag(True, "accepted; tools want the prefix")
    log_link: str = _flag("", "accepted without effect")
    minloglevel: int = _flag(0, "the least severity that is logged, 0 to 3")
    v: int = _flag(0, "accepted without effect")
    vmodule: str = _flag("", "accepted without effect")
    logbufsecs: int = _flag(30, "accepted; lines are written at once")
    logbuflevel: int = _flag(0, "accepted; lines are written at once")
    max_log_size: int = _flag(1800, "accepted without effect")
    help: bool = _flag(False, "show this")
    version: bool = _flag(False, "show the version")

    def log_folder(self, environ: Mapping[str, str]) -> str:
        """Return the folder of log files; "" for none."""
        if self.logtostderr:
            return ""
        found = (environ.get(name) for name in ("GOOGLE_LOG_DIR", "TEST_TMPDIR", "TMPDIR", "TMP"))
        return self.log_dir or next(filter(None, found), "/tmp")


_KINDS = {f.name: type(f.default) for f in fields(Flags)}
_OF_GLOG = tuple(list(_KINDS)[list(_KINDS).index("logtostderr") : list(_KINDS).index("help")])
_TYPE_NAMES = {str: "string", int: "int32", float: "double", bool: "bool"}
_WORDS = {
    **dict.fromkeys(("1", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "f", "false", "n", "no"), False),
}
_MOST_FLAG_FILES = 20


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[Flags, list[str]]:
    """Read a command line.

    Args:
        arguments: The words after the program's name.
        environ: The variables; GLOG_X is the default of flag X.

    Returns:
        The flags, and the other words.

    Raises:
        FlagError: A flag is invalid; the message names it.
    """
    reader = _Reader()
    for name in _OF_GLOG:
        if f"GLOG_{name}" in environ:
            reader.set(name, environ[f"GLOG_{name}"])
    rest = reader.read(arguments)
    return reader.flags, rest


def usage() -> str:
    """Return all flags, one per line."""
    lines = []
    for each in fields(Flags):
        kind = _TYPE_NAMES[type(each.default)]
        shown = f'"{each.default}"' if kind == "string" else str(each.default).lower()
        lines.append(f"    -{each.name} ({each.metadata['about']}) type: {kind} default: {shown}")
    return "\n".join(lines)


class _Reader:
    """Parser of flags."""

    def __init__(self) -> None:
        self.flags = Flags()
        self._files = 0

    def read(self, arguments: Iterable[str]) -> list[str]:
        """Parse the flags; return the other words."""
        rest: list[str] = []
        words = iter(arguments)
        for word in words:
            if word == "--":
                return [*rest, *words]
            if not word.startswith("-") or word == "-":
                rest.append(word)
                continue
            name, equals, value = word[1 + word.startswith("--") :].partition("=")
            if name == "flagfile" and not equals:
                equals, value = "=", next(words, "")
            if name == "flagfile":
                self._read_files(value)
            elif _KINDS.get(name, bool) is bool:
                self._set_bool(name, value if equals else None)
            else:
                given = value if equals else next(words, None)
                if given is None:
                    raise FlagError(f"flag '{word}' is missing its argument")
                self.set(name, given)
        return rest

    def set(self, name: str, text: str) -> None:
        """Set a flag."""
        kind = _KINDS[name]
        try:
            setattr(self.flags, name, _value(kind, text))
        except (KeyError, ValueError):
            raise FlagError(
                f"illegal value '{text}' specified for {_TYPE_NAMES[kind]} flag '{name}'"
            ) from None

    def _set_bool(self, name: str, text: str | None) -> None:
        if name in _KINDS:
            self.set(name, "1" if text is None else text)
        elif text is None and _KINDS.get(name.removeprefix("no")) is bool:
            self.set(name.removeprefix("no"), "0")
        else:
            raise FlagError(f"unknown command line flag '{name}'")

    def _read_files(self, names: str) -> None:
        """Read flags from files, one per line; a file may name others."""
        for name in filter(None, names.split(",")):
            self._files += 1
            if self._files > _MOST_FLAG_FILES:
                raise FlagError(f"more than {_MOST_FLAG_FILES} flag files; '{name}' names itself?")
            try:
                text = Path(name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise FlagError(f"cannot read flag file '{name}': {error}") from None
            lines = (line.strip() for line in text.splitlines())
            extra = self.read(line for line in lines if line and not line.startswith("#"))
            if extra:
                raise FlagError(f"flag file '{name}': '{extra[0]}' is no flag")


def _value(kind: type, text: str) -> Any:
    if kind is bool:
        return _WORDS[text.lower()]
    if kind is int:
        number = int(text, 0) if text.lower().startswith(("0x", "-0x")) else int(text)
        if not -(2**31) <= number < 2**31:
            raise ValueError(text)
        return number
    return kind(text)


_FALSE = ("false", "0", "no", "f", "n")
_TRUE = ("true", "1", "yes", "t", "y")


class ToolParser(argparse.ArgumentParser):
    """Parses `--flag value`, `-flag=value`, `--switch`, `--noswitch` and `--switch=false`."""

    def __init__(self, about: str) -> None:
        super().__init__(description=about, allow_abbrev=False)

    def switch(self, name: str, about: str, default: bool = False) -> None:
        """Add a boolean flag."""
        self.add_argument(f"--{name}", type=_boolean, default=default, metavar="BOOL", help=about)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command line; end the program if it is invalid."""
        return self.parse_args([self._plain(word) for word in arguments])

    def _plain(self, word: str) -> str:
        """Return a word in argparse's syntax."""
        if not word.startswith("-"):
            return word
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and self._is_switch(name):
            return f"--{name}=true"
        if not equals and name.startswith("no") and self._is_switch(name[2:]):
            return f"--{name[2:]}=false"
        return f"--{name}{equals}{value}" if len(name) > 1 else word

    def _is_switch(self, name: str) -> bool:
        action: Any = self._option_string_actions.get(f"--{name}")
        return action is not None and action.type is _boolean


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
