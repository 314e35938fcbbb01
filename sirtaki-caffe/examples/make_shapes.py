"""Images of drawn circles, squares and triangles with their boxes, for a detector.

python make_shapes.py

data/shapes_train_lmdb and data/shapes_test_lmdb, and a few of the test's images in data/shapes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from writing import parser

from sirtaki_caffe.data.annotated.records import AnnotatedDatum
from sirtaki_caffe.data.images import encode_image
from sirtaki_caffe.data.stores.databases import write_database

SIDE = 96
MOST_SHAPES, SMALLEST, LARGEST = 3, 18, 42
SHOWN = 12

#: Label, and left, top, right, bottom in pixels.
Shape = tuple[int, int, int, int, int]


def main(arguments: Sequence[str]) -> int:
    """Write the databases and the images."""
    made = parser(__doc__)
    made.add_argument("--count", type=int, default=1600, help="training images (1600)")
    args = made.parse_args(arguments)
    random = np.random.default_rng(1)
    train = [draw(random) for _ in range(args.count)]
    test = [draw(random) for _ in range(max(args.count // 8, SHOWN))]
    write(args.root / "data/shapes_train_lmdb", train)
    write(args.root / "data/shapes_test_lmdb", test)
    folder = args.root / "data/shapes"
    folder.mkdir(parents=True, exist_ok=True)
    for number, (pixels, _) in enumerate(test[:SHOWN]):
        (folder / f"{number:02d}.png").write_bytes(encode_image(pixels, "png"))
    return 0


def draw(random: np.random.Generator) -> tuple[np.ndarray, list[Shape]]:
    """An image of one to three shapes that hardly overlap, in any colours, and their places."""
    noise = random.normal(0, 12, (3, SIDE, SIDE))
    pixels = random.integers(0, 256, (3, 1, 1)) + noise
    background = pixels.mean((1, 2))
    shapes: list[Shape] = []
    for _ in range(random.integers(1, MOST_SHAPES + 1)):
        label, side = int(random.integers(1, 4)), int(random.integers(SMALLEST, LARGEST + 1))
        x, y = (int(place) for place in random.integers(0, SIDE - side + 1, 2))
        if any(_overlap((x, y, x + side, y + side), other[1:]) for other in shapes):
            continue
        colour = random.integers(0, 256, 3)
        while np.abs(colour - background).max() < 80:
            colour = random.integers(0, 256, 3)
        inside = _inside(label, side)
        part = pixels[:, y : y + side, x : x + side]
        part[:, inside] = colour[:, None] + noise[:, y : y + side, x : x + side][:, inside]
        shapes.append((label, x, y, x + side, y + side))
    return pixels.clip(0, 255).astype(np.uint8), shapes


def _inside(label: int, side: int) -> np.ndarray:
    """Where a circle (1), a square (2) or a triangle (3) covers its box."""
    y, x = (np.mgrid[:side, :side] + 0.5) / side
    if label == 1:
        return np.hypot(x - 0.5, y - 0.5) <= 0.5
    return np.full_like(x, True, dtype=bool) if label == 2 else np.abs(x - 0.5) * 2 <= y


def _overlap(a: Sequence[int], b: Sequence[int]) -> bool:
    return min(a[2], b[2]) - max(a[0], b[0]) > 2 and min(a[3], b[3]) - max(a[1], b[1]) > 2


def write(path: Path, images: Sequence[tuple[np.ndarray, list[Shape]]]) -> None:
    """A database of images with boxes, replacing another."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_database("lmdb", path) as writer:
        for number, (pixels, shapes) in enumerate(images):
            record = AnnotatedDatum(type=AnnotatedDatum.BBOX)
            datum = record.datum
            datum.channels, datum.height, datum.width = pixels.shape
            datum.data, datum.encoded, datum.label = encode_image(pixels, "png"), True, -1
            for instance, (label, *corners) in enumerate(shapes):
                box = record.annotation_group.add(group_label=label).annotation.add().bbox
                box.xmin, box.ymin, box.xmax, box.ymax = (place / SIDE for place in corners)
                record.annotation_group[-1].annotation[0].instance_id = instance
            writer.put(f"{number:08d}".encode(), record.SerializeToString())
    print(f"{path}: {len(images)} records")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
