"""`convert_imageset`: converts a list of images to a database."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.data.images import decode_image, encode_image, make_datum
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.stores.databases import write_database
from sirtaki_caffe.data.stores.lists import Listed, read_image_list
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import Datum, Message

_REPORT_EVERY = 1000


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    args = _parser().read(arguments)
    if bool(args.resize_width) != bool(args.resize_height):
        raise CaffeError("resize_width and resize_height go together")
    lines = read_image_list(Path(args.list))
    if args.shuffle:
        random.shuffle(lines)
    print(f"A total of {len(lines)} images.")
    done, size = 0, 0
    with write_database(args.backend, Path(args.database)) as writer:
        for number, listed in enumerate(lines):
            try:
                datum = datum_of(args, listed)
            except CaffeError as error:  # like Caffe: the other images are still wanted
                print(f"left out: {error}", file=sys.stderr)
                continue
            size = checked(args, datum, size, listed)
            writer.put(f"{number:08d}_{listed.path}".encode(), datum.SerializeToString())
            done = report(done)
    report(done, last=True)
    return 0


def report(done: int, *, last: bool = False) -> int:
    """Count one more file, and report progress at intervals and at the end."""
    count = done if last else done + 1
    if (count % _REPORT_EVERY == 0) != last:
        print(f"Processed {count} files.")
    return count


def datum_of(args: Namespace, listed: Listed) -> Message:
    """Return the Datum of an image in the list."""
    path = Path(args.root + listed.path)
    try:
        content = path.read_bytes()
        same_kind = args.encode_type in ("", path.suffix.removeprefix("."))
        pixels = decode_image(content, not args.gray)
        sides = wanted_size(args, *pixels.shape[1:])
        if args.encoded and same_kind and sides == pixels.shape[1:] and not args.gray:
            return Datum(data=content, label=listed.label, encoded=True)
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    except CaffeError as error:
        raise CaffeError(f"{path}: {error}") from error
    if sides != pixels.shape[1:]:
        pixels = resize(pixels, *sides)
    if not args.encoded:
        return make_datum(np.ascontiguousarray(pixels), listed.label)
    kind = args.encode_type or path.suffix.removeprefix(".")
    return Datum(data=encode_image(pixels, kind), label=listed.label, encoded=True)


def wanted_size(args: Namespace, height: int, width: int) -> tuple[int, int]:
    """Return the height and width in which an image is stored.

    With `min_dim` the shorter side is at least that long, with `max_dim` the longer one is at most
    that long; the aspect ratio is kept.
    """
    if args.resize_width:
        return args.resize_height, args.resize_width
    least, most = (vars(args).get(name, 0) for name in ("min_dim", "max_dim"))
    factor = max(1.0, least / min(height, width))
    if most:
        factor = min(factor, most / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def checked(args: Namespace, datum: Message, size: int, listed: Listed) -> int:
    """Return the size of all images so far; raise an error if this one's differs."""
    if not args.check_size:
        return size
    found = len(datum.data)
    if size and found != size:
        raise CaffeError(
            f"{listed.path} has {found} bytes, the images before have {size}: give resize_width "
            "and resize_height, or leave out check_size"
        )
    return found


def _parser() -> ToolParser:
    parser = ToolParser("Make a database of images.")
    parser.add_argument("root", help="stands before each path of the list: ends with /")
    parser.add_argument("list", help="a text file: a path, a blank and a label on each line")
    parser.add_argument("database", help="the folder that is made")
    parser.switch("gray", "one channel instead of three")
    parser.switch("shuffle", "in random order")
    parser.add_argument("--backend", choices=("lmdb", "leveldb"), default="lmdb", help="lmdb")
    parser.add_argument("--resize_width", type=int, default=0, metavar="N", help="0: as they are")
    parser.add_argument("--resize_height", type=int, default=0, metavar="N", help="0: as they are")
    parser.switch("check_size", "end if images are not all of one size")
    parser.switch("encoded", "store image files instead of pixels")
    parser.add_argument("--encode_type", default="", help="of these files: jpg, png, …")
    return parser
