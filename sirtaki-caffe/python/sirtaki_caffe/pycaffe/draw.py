"""The names of `caffe.draw`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from sirtaki_caffe.commands.tools.draw import dot_of, draw
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.filter import filter_net
from sirtaki_caffe.proto.upgrade import upgrade_net

__all__ = ["draw_net", "draw_net_to_file"]


def draw_net(caffe_net: Any, rankdir: str, ext: str = "png", phase: int | None = None) -> bytes:
    """A picture of a net.

    Args:
        caffe_net: A NetParameter.
        rankdir: Where it leads: LR from left to right, TB from top to bottom.
        ext: Of which kind the picture is: png, svg, dot.
        phase: Only the layers of this phase; None: all.

    Raises:
        CaffeError: Graphviz is not there, or fails.
    """
    text = _dot(caffe_net, rankdir, phase)
    if ext == "dot":
        return text.encode()
    try:
        done = subprocess.run(["dot", f"-T{ext}"], input=text.encode(), capture_output=True)
    except OSError as error:
        raise CaffeError(f"draw_net needs the program dot of Graphviz: {error}") from error
    if done.returncode:
        raise CaffeError(f"dot failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def draw_net_to_file(
    caffe_net: Any, filename: str | Path, rankdir: str = "LR", phase: int | None = None
) -> None:
    """Write a picture of a net, of the kind that the name ends with.

    Args:
        caffe_net: A NetParameter.
        filename: .png, .svg or .dot.
        rankdir: As for `draw_net`.
        phase: As for `draw_net`.

    Raises:
        CaffeError: As `draw_net`, or the name ends otherwise.
    """
    draw(_dot(caffe_net, rankdir, phase), Path(filename))


def _dot(caffe_net: Any, rankdir: str, phase: int | None) -> str:
    net = type(caffe_net)()
    net.CopyFrom(caffe_net)
    net = upgrade_net(net)
    return dot_of(net if phase is None else filter_net(net, phase, 0, ()), rankdir)
