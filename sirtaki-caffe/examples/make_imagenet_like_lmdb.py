"""LMDBs that look like ImageNet's to a net: 3 x 256 x 256, 1000 classes, and their mean.

python make_imagenet_like_lmdb.py [--count 512]
    examples/imagenet/ilsvrc12_{train,val}_lmdb and data/ilsvrc12/imagenet_mean.binaryproto
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from writing import parser, write

from sirtaki_caffe.commands.tools.compute_image_mean import mean_of
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.proto.blobs import write_mean

SIDE = 256
CLASSES = 1000
_VALIDATION = 1 << 32  # its noise is drawn by numbers from here on


def main(arguments: Sequence[str]) -> int:
    """Write both, and the mean of the first."""
    command = parser(__doc__)
    command.add_argument("--count", type=int, default=512, help="records to train on (512)")
    args = command.parse_args(arguments)
    folder = args.root / "examples/imagenet"
    write(folder / "ilsvrc12_train_lmdb", patterns(args.count, 0))
    write(folder / "ilsvrc12_val_lmdb", patterns(max(1, args.count // 8), _VALIDATION))
    mean = args.root / "data/ilsvrc12/imagenet_mean.binaryproto"
    mean.parent.mkdir(parents=True, exist_ok=True)
    write_mean(mean, mean_of("lmdb", str(folder / "ilsvrc12_train_lmdb")))
    print(mean)
    return 0


def patterns(count: int, first: int) -> Iterator[tuple[np.ndarray, int]]:
    """Images of the classes by turns: each class has a pattern, each image noise upon it."""
    for number in range(count):
        label = number * 7 % CLASSES
        pattern = np.random.default_rng(label).integers(0, 192, (3, 8, 8), np.uint8)
        noise = np.random.default_rng(first + number).integers(0, 64, (3, SIDE, SIDE), np.uint8)
        yield resize(pattern, SIDE, SIDE, "CUBIC").clip(0, 191) + noise, label


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
