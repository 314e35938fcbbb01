"""`convert_imageset`: converts a list of images to a database."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
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
    return write_records(args, plain_lines(Path(args.list)), lambda datum, _: datum)


def plain_lines(path: Path) -> list[tuple[Listed, str]]:
    """Return the lines of a list of images without annotations."""
    return [(listed, "") for listed in read_image_list(path)]


def write_records(
    args: Namespace, lines: list[tuple[Listed, str]], record_of: Callable[[Message, str], Message]
) -> int:
    """Write the records of listed images to the database; return the exit code.

    Args:
        args: The flags of the tool.
        lines: The images, with their annotations.
        record_of: Makes a record of an image's Datum and its annotation.
    """
    if args.shuffle:
        random.shuffle(lines)
    print(f"A total of {len(lines)} images.")
    done, size = 0, 0
    with write_database(args.backend, Path(args.database)) as writer:
        for number, (listed, annotation) in enumerate(lines):
            try:
                datum = datum_of(args, listed)
            except CaffeError as error:  # like Caffe: the other images are still wanted
                print(f"left out: {error}", file=sys.stderr)
                continue
            size = _checked(args, datum, size, listed)
            record = record_of(datum, annotation)
            writer.put(f"{number:08d}_{listed.path}".encode(), record.SerializeToString())
            done += 1
            if done % _REPORT_EVERY == 0:
                print(f"Processed {done} files.")
    if done % _REPORT_EVERY:
        print(f"Processed {done} files.")
    return 0


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


def _checked(args: Namespace, datum: Message, size: int, listed: Listed) -> int:
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
