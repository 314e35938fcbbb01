"""The program `caffe`."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import sirtaki
from sirtaki.core.config import Config, Topology
from sirtaki.core.errors import HorovodInternalError
from sirtaki_caffe.commands.flags import FlagError, Flags, parse, usage
from sirtaki_caffe.commands.log import Log, ends_quietly
from sirtaki_caffe.errors import CaffeError, LayerError

#: The exit code of a program that calls abort.
ABORTED = 134
_NEEDS = "caffe needs: pip install torch 'sirtaki-caffe[data]'"
_ACTIONS = {
    "train": "train a net, or go on with one",
    "test": "score a net",
    "time": "measure a net, layer by layer",
    "device_query": "show the GPUs",
    "collect": "refused",
    "compare": "refused",
}
# Tools with flags of their own; they must come first on the command line.
_TOOLS = {
    "convert": "turn a net into PyTorch's files",
    "detect": "draw what a detector finds onto images",
    "draw": "draw a net",
    "plot": "plot the curves of a log",
    "convert_annoset": "make a database of images with boxes",
    "convert_imageset": "make a database of images",
    "create_label_map": "make a label map of a list of names",
    "get_image_size": "write names and sizes of images",
    "compute_image_mean": "make a mean file of a database",
    "extract_features": "write blobs of a net into databases",
    "upgrade_net_proto_text": "bring a net's text file up to date",
    "upgrade_net_proto_binary": "bring a file of weights up to date",
    "upgrade_solver_proto_text": "bring a solver's text file up to date",
}
_MODULES = {
    **{name: "upgrade" for name in _TOOLS if name.startswith("upgrade_")},
    **dict.fromkeys(("create_label_map", "get_image_size"), "annoset_lists"),
}


@ends_quietly
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `caffe …`; return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in _TOOLS:
        return _run_tool(words[0], words[1:])
    try:
        flags, rest = parse(words, os.environ)
    except FlagError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    if flags.version:
        print(f"caffe version 1.0.0 (sirtaki {importlib.import_module('sirtaki').__version__})")
        return 0
    if flags.help or len(rest) != 1:
        print(_usage())
        return int(flags.help)
    return _guarded(rest[0], flags)


def _run_tool(name: str, words: list[str]) -> int:
    module = importlib.import_module(f"sirtaki_caffe.commands.tools.{_MODULES.get(name, name)}")
    sys.argv[0] = f"caffe {name}"  # the name in its messages
    try:
        return int(module.main([name, *words] if name in _MODULES else words))
    except CaffeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def _guarded(action: str, flags: Flags) -> int:
    """Run an action; convert its errors to a line and an exit code."""
    log = Log(least=flags.minloglevel)
    place = ""
    try:
        topology = _topology()
        if topology.size > 1:
            place = f"rank {topology.rank} on {socket.gethostname()}: "
        log = Log(
            folder=flags.log_folder(os.environ),
            least=flags.minloglevel,
            prefix=f"[{topology.rank}] " if flags.all_ranks_log and place else "",
            silent=topology.rank > 0 and not flags.all_ranks_log,
        )
        return _action(action, log)(flags, log)
    except LayerError as error:
        users = error.kind == "Python" and error.__cause__ is not None
        if users:
            print(_users_traceback(error.__cause__), end="", file=sys.stderr)
        log.fatal("caffe.cpp", f"{place}{error}")
        return 1 if users else ABORTED
    except (CaffeError, HorovodInternalError, OSError) as error:
        log.fatal("caffe.cpp", f"{place}{error}")
        return ABORTED
    except ImportError as error:
        log.fatal("caffe.cpp", f"{error}; {_NEEDS}")
        return ABORTED
    except KeyboardInterrupt:
        return 130
    finally:
        log.close()


def _users_traceback(error: BaseException | None) -> str:
    """Return the line in the user's files that raised a Python layer's exception, or ""."""
    if error is None:
        return ""
    shown = traceback.TracebackException.from_exception(error)
    folders = (
        Path(__file__).parents[1],
        Path(sirtaki.__file__).parent,
        Path(importlib.__file__).parent,
    )
    inside = (*(f"{folder}/" for folder in folders), "<frozen ")
    frames = [frame for frame in shown.stack if not frame.filename.startswith(inside)]
    if not frames:
        return "".join(shown.format_exception_only()) if isinstance(error, SyntaxError) else ""
    shown.stack = traceback.StackSummary.from_list(frames)
    return "".join(shown.format())


def _topology() -> Topology:
    try:
        return Config.from_env().topology
    except ValueError as error:
        raise CaffeError(f"the environment describes no job: {error}") from error


def _action(name: str, log: Log) -> Callable[[Flags, Log], int]:
    if name in ("collect", "compare"):
        return _refuse
    if name not in _ACTIONS:
        log.error("caffe.cpp", "Available caffe actions:")
        for each in _ACTIONS:
            log.error("caffe.cpp", f"\t{each}")
        raise CaffeError(f"Unknown action: {name}")
    run: Callable[[Flags, Log], int] = importlib.import_module(f"sirtaki_caffe.commands.{name}").run
    return run


def _refuse(_: Flags, log: Log) -> int:
    log.error("caffe.cpp", "Only a build of Intel Caffe with DETERMINISTIC=1 has this action.")
    return 1


def _usage() -> str:
    lines = ["usage: caffe <action> <flags>", "       caffe <tool> <its own flags>", ""]
    for title, table in (("actions", _ACTIONS), ("tools", _TOOLS)):
        width = max(map(len, table))
        lines += [f"{title}:", *(f"  {name:{width}}  {about}" for name, about in table.items()), ""]
    return "\n".join([*lines, "flags of the actions:", usage()])
