"""`caffe detect`: a detector's boxes, drawn onto images."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.data.annotated.label_map import read_label_map
from sirtaki_caffe.data.images import encode_image, read_image
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.errors import CaffeError, needed
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import read_weights

_COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")

#: Label, score, and left, top, right, bottom in pixels.
Detection = tuple[int, float, tuple[int, int, int, int]]


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    args = _parser().read(arguments)
    targets = _targets([Path(image) for image in args.image], Path(args.output))
    names = read_label_map(args.labelmap_file) if args.labelmap_file else {}
    net = Net(read_net(args.model), phase=TEST, file=args.model)
    net.load(read_weights(args.weights))
    means, blob = _means(args.mean_value), _input(net)
    Path(args.output).mkdir(parents=True, exist_ok=True)
    for path, target in targets.items():
        pixels = read_image(path, color=True)
        found = _detected(net, blob, pixels, means, args)
        for label, score, box in found:
            print(path, names.get(label, label), f"{score:.3f}", *box)
        with written_beside(target) as beside:
            beside.write_bytes(drawn(pixels, found, names))
    return 0


def _targets(images: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """Return the output file of each image. Raises CaffeError if a file would be lost."""
    targets = {image: folder / f"{image.stem}.png" for image in images}
    read = {image.resolve() for image in images}
    taken: dict[Path, Path] = {}
    for image, target in targets.items():
        if target.resolve() in read:
            raise CaffeError(f"{target} would be overwritten: write to another folder")
        if target in taken:
            raise CaffeError(f"{image} and {taken[target]} would both be written to {target}")
        taken[target] = image
    return targets


def drawn(pixels: np.ndarray, found: Sequence[Detection], names: dict[int, str]) -> bytes:
    """Return a PNG of an image with boxes, each with its label and score.

    Args:
        pixels: (3, height, width) in BGR order.
        found: The detections, the most likely on top.
        names: The names of labels; others are shown as numbers.
    """
    images, drawing = needed("PIL.Image"), needed("PIL.ImageDraw")
    with images.open(io.BytesIO(encode_image(pixels, "png"))) as image:
        pen = drawing.Draw(image)
        thick = max(1, min(image.size) // 150)
        for label, score, box in sorted(found, key=lambda each: each[1]):
            colour = _COLOURS[label % len(_COLOURS)]
            pen.rectangle(box, outline=colour, width=thick)
            _write(pen, image.size, box, f"{names.get(label, label)} {score:.2f}", colour)
        content = io.BytesIO()
        image.save(content, format="PNG")
    return content.getvalue()


def _write(pen: Any, size: tuple[int, int], box: Sequence[int], text: str, colour: str) -> None:
    """Draw a label at the upper left corner of a box: above it if there is room."""
    left, top, right, bottom = pen.textbbox((0, 0), text)
    width, height = int(right - left) + 4, int(bottom - top) + 4
    x = max(0, min(box[0], size[0] - width))
    y = box[1] - height if box[1] >= height else box[1]
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x + 2 - left, y + 2 - top), text, fill="white")


def _detected(
    net: Net, blob: str, pixels: np.ndarray, means: np.ndarray, args: Namespace
) -> list[Detection]:
    """Return the net's detections in an image."""
    _, _, height, width = net.blobs[blob].shape
    shown = resize(pixels.astype(np.float32), height, width) - means[:, None, None]
    net.blobs[blob].data = torch.from_numpy(shown * np.float32(args.scale))[None]
    with torch.no_grad():
        net.forward()
    rows = net.blobs[net.outputs[0]].data.reshape(-1, 7).tolist()
    sides = np.array([pixels.shape[2], pixels.shape[1]] * 2)
    found = []
    for _, label, score, *corners in rows:
        if label >= 0 and score >= args.confidence_threshold:
            left, top, right, bottom = np.rint(np.clip(corners, 0, 1) * sides).astype(int).tolist()
            found.append((int(label), float(score), (left, top, right, bottom)))
    return found


def _input(net: Net) -> str:
    """Return the blob of images; raise an error if the net is no detector's deploy net."""
    inputs = [top.name for step in net.steps if step.is_input for top in step.tops]
    shapes = [net.blobs[name].shape for name in inputs]
    if len(inputs) != 1 or len(shapes[0]) != 4 or shapes[0][:2] != (1, 3):
        raise CaffeError(
            "detect needs a deploy net with one Input of shape (1, 3, height, width), not "
            + (", ".join(f"{n} {list(s)}" for n, s in zip(inputs, shapes, strict=True)) or "none")
        )
    kinds = {top.name: step.layer.proto.type for step in net.steps for top in step.tops}
    if [kinds[name] for name in net.outputs] != ["DetectionOutput"]:
        raise CaffeError(
            f"detect needs a net whose one output is a DetectionOutput's, not {list(net.outputs)}"
        )
    return inputs[0]


def _means(text: str) -> np.ndarray:
    try:
        means = [float(word) for word in text.split(",")]
    except ValueError:
        means = []
    if len(means) not in (1, 3):
        raise CaffeError(f"--mean_value {text}: give one number, or three: blue,green,red")
    return np.array(means * (3 // len(means)), np.float32)


def _parser() -> ToolParser:
    parser = ToolParser("Draw what a detector finds onto images.")
    parser.add_argument("model", help="the detector's deploy net, a .prototxt")
    parser.add_argument("weights", help="its .caffemodel")
    parser.add_argument("image", nargs="+", help="an image")
    parser.add_argument("output", help="the folder for pictures, which is made")
    parser.add_argument("--labelmap_file", default="", help="names of the labels")
    parser.add_argument("--mean_value", default="104,117,123", help="104,117,123, as SSD has it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the pixels, after that: 1")
    threshold = "--confidence_threshold"
    parser.add_argument(threshold, type=float, default=0.5, help="least score that is drawn: 0.5")
    return parser
