"""The programs `sirtaki` and `horovodrun`."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sirtaki
from sirtaki.interface import both_versions
from sirtaki.launch.errors import FAILED, ONLY_LINUX, USAGE


class Subcommand(NamedTuple):
    """A subcommand of `sirtaki`.

    summary: a line of help. module: its `function` runs the subcommand with the remaining
    arguments, and its `make_parser()` makes their parser.
    """

    summary: str
    module: str
    function: str = "main"


GROUPS = {
    "Run": {
        "run": Subcommand("run a script as several processes", "sirtaki.launch.cli", "run"),
        "submit": Subcommand("submit to a scheduler or Kubernetes", "sirtaki.submit.command"),
        "new": Subcommand("write a training script to start from", "sirtaki.new"),
        "demo": Subcommand("show on this machine what Sirtaki does", "sirtaki.demo.command"),
    },
    "Inspect running jobs": {
        "ps": Subcommand("list your running jobs, or show what one is doing", "sirtaki.inspect.ps"),
        "hang": Subcommand(
            "say why a job hangs, and which rank is the cause", "sirtaki.inspect.hang"
        ),
        "top": Subcommand(
            "show how fast each rank is, and which one it waits for",
            "sirtaki.inspect.top",
        ),
        "trace": Subcommand(
            "record what all ranks do, and report where the time goes",
            "sirtaki.observe.trace.command",
        ),
        "postmortem": Subcommand(
            "show what the ranks of a failed job were doing", "sirtaki.inspect.postmortem"
        ),
        "replay": Subcommand(
            "compute a step that a rank has kept, and name the first module that is not finite",
            "sirtaki.observe.replay",
        ),
        "stacks": Subcommand(
            "show the stack of every thread of a job's ranks", "sirtaki.inspect.stacks"
        ),
    },
    "Check and measure": {
        "doctor": Subcommand(
            "check this machine, and say how to fix what does not work",
            "sirtaki.doctor.doctor",
        ),
        "bench": Subcommand(
            "measure collectives, or how your script scales", "sirtaki.observe.bench"
        ),
        "predict": Subcommand(
            "predict from a trace how fast more hosts would train",
            "sirtaki.observe.predict.command",
        ),
    },
    "Caffe's nets": {
        "caffe": Subcommand("train, test and measure them", "sirtaki_caffe.commands.main"),
    },
    "Your shell": {
        "completion": Subcommand(
            "print a completion script for your shell", "sirtaki.launch.completion"
        ),
    },
}
_SUBCOMMANDS = {name: each for group in GROUPS.values() for name, each in group.items()}
_EXAMPLES = """\
examples:
  sirtaki new pytorch train.py                          a script that trains at any size
  sirtaki run -np 4 python train.py                     four processes on this machine
  sirtaki run -np 8 -H node1:4,node2:4 python train.py  eight processes on two machines
  sirtaki hang                                          why the running job hangs

`sirtaki SUBCOMMAND --help` lists the flags of one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sirtaki <subcommand> …`; returns the exit code."""
    return _read(lambda: _main(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(_usage(), file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_usage())
        return 0
    if name in ("-v", "--version"):
        print(sirtaki.__version__)  # scripts compare the first line
        print(both_versions(), file=sys.stderr)
        return 0
    if name not in _SUBCOMMANDS:
        from sirtaki.launch.flags.guesses import guess_of, refused

        guess = guess_of(name, _SUBCOMMANDS) or "; see sirtaki --help"
        return refused("sirtaki", f"unknown subcommand {name!r}{guess}")
    chosen = _SUBCOMMANDS[name]
    return _exit_code(chosen.module, chosen.function, rest)


def horovodrun(arguments: Sequence[str] | None = None) -> int:
    """Run `horovodrun …`; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return _read(lambda: _exit_code("sirtaki.launch.cli", "_horovodrun", given))


def run(arguments: Sequence[str]) -> int:
    """Run `sirtaki run …`."""
    return _start(arguments, "sirtaki run")


def _horovodrun(arguments: Sequence[str]) -> int:
    return _start(arguments, "horovodrun")


def _start(arguments: Sequence[str], prog: str) -> int:
    """Start a guardian before the modules that parse flags are imported; see `command.run`."""
    from sirtaki.launch.processes.guarding.process import guardian_ahead

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not end the job.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    _restore_signals()
    # Imported modules stay; collecting garbage among them would take a tenth of the time.
    gc.disable()
    with guardian_ahead():
        from sirtaki.launch import command

        gc.freeze()
        gc.enable()
        return command.run(arguments, prog)


def _restore_signals() -> None:
    """Stop ignoring SIGINT and SIGHUP if no terminal can send them.

    A shell that starts a launcher in the background, and nohup, protect it from their terminal. A
    batch job has no terminal: there, whoever sends these signals means the launcher.
    """
    handlers: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ignored = [number for number in handlers if signal.getsignal(number) is signal.SIG_IGN]
    if ignored and not _has_terminal():
        for number in ignored:
            signal.signal(number, handlers[number])


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _read(command: Callable[[], int]) -> int:
    """Run a command; its output may have no reader, or no space left on the disk."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:  # closed by our parent
            # It takes the lowest free number, so that no other file of ours or a child's gets it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence()  # exit as programs in a pipeline do
        return 128 + signal.SIGPIPE
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"sirtaki: error: {error}", file=sys.stderr)
        _silence()
        return FAILED


def _silence() -> None:
    """Redirect stdout to /dev/null so that Python's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nobody = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(nobody, stream.fileno())
        os.close(nobody)


def _exit_code(module: str, function: str, arguments: Sequence[str]) -> int:
    """Call the function and return its exit code; argparse's SystemExit becomes one too."""
    if sys.platform != "linux" and module.startswith("sirtaki."):
        print(f"sirtaki: error: {ONLY_LINUX}", file=sys.stderr)
        return USAGE
    try:
        return int(getattr(importlib.import_module(module), function)(arguments))
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        package = error.name.replace("_", "-")
        print(
            f"sirtaki: error: this needs the package {package}: pip install {package}",
            file=sys.stderr,
        )
        return 2
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except KeyboardInterrupt:  # after Ctrl-C a traceback is of no use
        return 128 + signal.SIGINT


def _usage() -> str:
    lines = ["usage: sirtaki SUBCOMMAND ..."]
    for title, subcommands in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:11} {each.summary}" for name, each in subcommands.items()]
    return "\n".join([*lines, "", _EXAMPLES])


if __name__ == "__main__":
    sys.exit(main())
