"""`compute_image_mean`: the mean of the images of a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.data.images import datum_pixels, parse_datum
from sirtaki_caffe.data.stores.databases import open_database
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import write_mean

_REPORT_EVERY = 10_000


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    parser = ToolParser("Compute the mean of the images of a database.")
    parser.add_argument("database", help="an LMDB or LevelDB")
    parser.add_argument("output", nargs="?", help="the mean file, .binaryproto")
    parser.add_argument("--backend", choices=("lmdb", "leveldb"), default="lmdb", help="lmdb")
    args = parser.read(arguments)
    mean = mean_of(args.backend, args.database)
    if args.output:
        write_mean(Path(args.output), mean)
        print(f"Write to {args.output}")
    print(f"Number of channels: {len(mean)}")
    for channel, values in enumerate(mean):
        print(f"mean_value channel [{channel}]: {values.mean():g}")
    return 0


def mean_of(backend: str, source: str) -> np.ndarray:
    """Return the mean image of a database: (channels, height, width), float32.

    Args:
        backend: "lmdb" or "leveldb".
        source: The folder of the database.

    Raises:
        CaffeError: It cannot be read, has no records, or has images of different sizes.
    """
    database = open_database(backend, source)
    try:
        cursor = database.cursor()
        if not cursor.first():
            raise CaffeError(f"{source} has no records")
        total = np.zeros((0, 0, 0))
        count, more = 0, True
        while more:
            key, value = cursor.record()
            try:
                pixels = datum_pixels(parse_datum(value), None)
                total = _added(total, pixels) if count else pixels.astype(np.float64)
            except CaffeError as error:
                raise CaffeError(f"{source}, record {key!r}: {error}") from error
            count += 1
            if count % _REPORT_EVERY == 0:
                print(f"Processed {count} files.")
            more = cursor.next()
    finally:
        database.close()
    return np.asarray(total / count, np.float32)


def _added(total: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    if pixels.shape != total.shape:
        raise CaffeError(f"an image of shape {pixels.shape}, the first is of {total.shape}")
    total += pixels
    return total
