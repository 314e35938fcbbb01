"""`sirtaki caffe draw`: a net as a graph."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.commands.tools.net_svg import svg_of
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.text import read_net

_COLOURS = {
    "Convolution": "#ff5050",
    "Deconvolution": "#ff5050",
    "InnerProduct": "#cc33ff",
    "Pooling": "#ff9900",
}
_SECONDS = 300


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    parser = ToolParser("Draw a net: its layers as boxes, its blobs as ellipses.")
    parser.add_argument("net", help="the net, a .prototxt")
    parser.add_argument("output", nargs="?", help=".dot, .png or .svg; without it, dot goes out")
    parser.add_argument("--rankdir", choices=("TB", "BT", "LR", "RL"), default="LR", help="LR")
    args = parser.read(arguments)
    net = read_net(args.net)
    if args.output is None:
        print(dot_of(net, args.rankdir), end="")
    else:
        draw_net(net, Path(args.output), args.rankdir)
    return 0


def draw_net(net: Any, output: Path, rankdir: str = "LR") -> None:
    """Write a picture of a net; only a .png needs Graphviz.

    Raises:
        CaffeError: The suffix is unsupported, the file cannot be written, or Graphviz fails.
    """
    if output.suffix != ".svg":
        draw(dot_of(net, rankdir), output)
        return
    with written_beside(output) as beside:
        beside.write_text(net_as_svg(net, rankdir), encoding="utf-8")


def net_as_svg(net: Any, rankdir: str = "LR") -> str:
    """Return a net as SVG: a box for each layer; in-place layers are below their blob's."""
    return svg_of(net, rankdir, _label, _colour)


def dot_of(net: Any, rankdir: str = "LR") -> str:
    """Return a net in Graphviz's language.

    Args:
        net: The NetParameter.
        rankdir: The direction of the graph: LR from left to right, TB from top to bottom.
    """
    return "".join(f"{line}\n" for line in _lines(net, rankdir))


def draw(dot: str, output: Path) -> None:
    """Write a graph: unchanged to a .dot, rendered to a .png or .svg.

    Raises:
        CaffeError: The suffix is unsupported, or Graphviz is missing or fails.
    """
    kind = output.suffix.removeprefix(".")
    if kind not in ("dot", "png", "svg"):
        raise CaffeError(f"{output}: draw writes .dot, .png and .svg")
    if kind == "dot":
        picture = dot.encode()
    elif shutil.which("dot") is None:
        raise CaffeError(f"{output} needs the program dot of Graphviz: install it, or write a .svg")
    else:
        done = subprocess.run(
            ["dot", f"-T{kind}"], input=dot.encode(), capture_output=True, timeout=_SECONDS
        )
        if done.returncode != 0:
            raise CaffeError(f"dot failed: {done.stderr.decode(errors='replace').strip()}")
        picture = done.stdout
    with written_beside(output) as beside:
        beside.write_bytes(picture)


def _lines(net: Any, rankdir: str) -> Iterator[str]:
    yield f"digraph {_quoted(net.name or 'net')} {{"
    yield f"  rankdir={rankdir};"
    yield '  node [fontname="sans-serif"];'
    blobs = {name for layer in net.layer for name in (*layer.bottom, *layer.top)}
    numbers = {name: number for number, name in enumerate(sorted(blobs))}
    for name, number in numbers.items():
        yield f"  blob{number} [label={_quoted(name)}, shape=ellipse];"
    for index, layer in enumerate(net.layer):
        colour = _colour(layer)
        yield (
            f"  layer{index} [label={_quoted(_label(layer))}, shape=box, style=filled, "
            f'fillcolor="{colour}"];'
        )
        in_place = set(layer.bottom) & set(layer.top)
        for name in dict.fromkeys(layer.bottom):
            both = " [dir=both]" if name in in_place else ""
            yield f"  blob{numbers[name]} -> layer{index}{both};"
        for name in dict.fromkeys(layer.top):
            if name not in in_place:
                yield f"  layer{index} -> blob{numbers[name]};"
    yield "}"


def _colour(layer: Any) -> str:
    return _COLOURS.get(layer.type, "#6495ed")


def _label(layer: Any) -> str:
    lines = [layer.name, f"({layer.type})"]
    if layer.type in ("Convolution", "Deconvolution"):
        param = layer.convolution_param
        sizes = {
            "kernel": list(param.kernel_size) or [param.kernel_h, param.kernel_w],
            "stride": list(param.stride) or [param.stride_h or 1, param.stride_w or 1],
            "pad": list(param.pad) or [param.pad_h, param.pad_w],
        }
        lines.append(f"{param.num_output} outputs")
        lines += [f"{what} {_sides(each)}" for what, each in sizes.items()]
    elif layer.type == "InnerProduct":
        lines.append(f"{layer.inner_product_param.num_output} outputs")
    elif layer.type == "Pooling":
        param = layer.pooling_param
        lines.append(type(param).PoolMethod.Name(param.pool))
        if param.global_pooling:
            lines.append("global")
        else:
            lines.append(f"kernel {_sides([param.kernel_size or param.kernel_h])}")
            lines.append(f"stride {_sides([param.stride_h or param.stride])}")
    return "\n".join(lines)


def _sides(sizes: Sequence[int]) -> str:
    """Return sides as text; equal sides are merged."""
    return "x".join(map(str, sizes if len(set(sizes)) > 1 else sizes[:1]))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
