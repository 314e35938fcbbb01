"""The names of `caffe.draw`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from sirtaki_caffe.commands.tools import draw as drawing
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.filter import filter_net
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.upgrade import upgrade_net

__all__ = ["Graph", "draw_net", "draw_net_to_file", "get_pydot_graph"]


def draw_net(caffe_net: Any, rankdir: str, ext: str = "png", phase: int | None = None) -> bytes:
    """Return a picture of a net.

    Args:
        caffe_net: A NetParameter.
        rankdir: The direction: LR from left to right, TB from top to bottom.
        ext: The format of the picture: png, svg, dot.
        phase: The phase of the layers to draw; None: all layers.

    Raises:
        CaffeError: Graphviz is missing or fails.
    """
    return get_pydot_graph(caffe_net, rankdir, phase=phase).create(format=ext)


def get_pydot_graph(
    caffe_net: Any, rankdir: str, label_edges: bool = True, phase: int | None = None
) -> Graph:
    """Return a net as a writable graph, with the methods of pydot that scripts call.

    Args:
        caffe_net: A NetParameter.
        rankdir: As for `draw_net`.
        label_edges: Accepted and ignored: blobs are separate nodes.
        phase: As for `draw_net`.
    """
    del label_edges
    return Graph(_net(caffe_net, phase), rankdir)


class Graph:
    """A net as a graph.

    Args:
        net: A NetParameter.
        rankdir: The direction.
    """

    def __init__(self, net: Any, rankdir: str) -> None:
        self._net, self._rankdir = net, rankdir

    def to_string(self) -> str:
        """Return the graph in Graphviz's language."""
        return drawing.dot_of(self._net, self._rankdir)

    def create(self, prog: str = "dot", format: str = "png") -> bytes:
        """Return a picture: svg and dot are rendered here, other formats by Graphviz.

        Raises:
            CaffeError: Graphviz is missing or fails.
        """
        if format in ("dot", "raw"):
            return self.to_string().encode()
        if format == "svg":
            return drawing.net_as_svg(self._net, self._rankdir).encode()
        text = self.to_string().encode()
        try:
            done = subprocess.run([prog, f"-T{format}"], input=text, capture_output=True)
        except OSError as error:
            raise CaffeError(
                f"a {format} needs the program {prog} of Graphviz: install it, or ask for svg"
            ) from error
        if done.returncode:
            raise CaffeError(f"{prog} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def write(self, path: str | Path, prog: str = "dot", format: str = "raw") -> bool:
        """Write a picture to a file; return True, like pydot.

        Raises:
            CaffeError: As for `create`, or the file cannot be written.
        """
        picture = self.create(prog, format)
        with written_beside(path) as beside:
            beside.write_bytes(picture)
        return True

    def write_png(self, path: str | Path) -> bool:
        """Write a .png, through Graphviz."""
        return self.write(path, format="png")

    def write_svg(self, path: str | Path) -> bool:
        """Write a .svg."""
        return self.write(path, format="svg")


def draw_net_to_file(
    caffe_net: Any, filename: str | Path, rankdir: str = "LR", phase: int | None = None
) -> None:
    """Write a picture of a net, in the format of the file's suffix.

    Args:
        caffe_net: A NetParameter.
        filename: .png, .svg or .dot.
        rankdir: As for `draw_net`.
        phase: As for `draw_net`.

    Raises:
        CaffeError: As for `draw_net`, or the suffix is unsupported.
    """
    drawing.draw_net(_net(caffe_net, phase), Path(filename), rankdir)


def _net(caffe_net: Any, phase: int | None) -> Any:
    net = type(caffe_net)()
    net.CopyFrom(caffe_net)
    net = upgrade_net(net)
    return net if phase is None else filter_net(net, phase, 0, ())
