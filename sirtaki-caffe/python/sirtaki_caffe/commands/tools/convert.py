"""`sirtaki caffe convert`: a net as a PyTorch module, with its weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from sirtaki_caffe.convert.module import ModuleWriter
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import read_weights

_DESCRIPTION = """Write a net of Caffe's as a module of PyTorch's: NAME.py, plain code that needs
nothing but PyTorch, and NAME.pt, its state_dict."""


def convert(net: Path, weights: Path | None, folder: Path) -> tuple[Path, Path]:
    """Write a net's module and its state.

    Args:
        net: The net's text; layers of phase TEST are used.
        weights: A `.caffemodel` or `.caffemodel.h5`; None: the values of its fillers.
        folder: The destination; created if necessary.

    Returns:
        The two files.

    Raises:
        CaffeError: A file cannot be read or written, or a layer's type is not supported.
    """
    built = Net(read_net(net), phase=TEST)
    try:
        if weights is not None:
            built.load(read_weights(weights))
        writer = ModuleWriter(built)
    finally:
        built.close()
    stem = writer.class_name.lower()
    code, state = folder / f"{stem}.py", folder / f"{stem}.pt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        code.write_text(writer.text())
        torch.save(writer.state, state)
    except OSError as error:
        raise CaffeError(f"{folder}: cannot be written: {error.strerror}") from error
    return code, state


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="sirtaki caffe convert", description=_DESCRIPTION)
    parser.add_argument("net", type=Path, help="the net's text, a deploy.prototxt for instance")
    parser.add_argument("weights", type=Path, nargs="?", help="its .caffemodel or .caffemodel.h5")
    parser.add_argument("folder", type=Path, nargs="?", help="where to (or --output)")
    parser.add_argument("--output", type=Path, help="where to")
    args = parser.parse_args(argv)
    given = [each for each in (args.weights, args.folder) if each is not None]
    folder = args.output or (given.pop() if given else None)
    if folder is None or len(given) > 1:
        parser.error("give the folder to write to, behind the files or by --output")
    try:
        written = convert(args.net, given[0] if given else None, folder)
    except CaffeError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in written))
    return 0
