"""`convert_annoset`: converts a list of images with boxes to a database."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.commands.tools.convert_imageset import plain_lines, write_records
from sirtaki_caffe.data.annotated.annotations import Annotations, read_annotations
from sirtaki_caffe.data.annotated.label_map import read_label_map
from sirtaki_caffe.data.annotated.records import AnnotatedDatum
from sirtaki_caffe.data.images import datum_pixels, parse_datum
from sirtaki_caffe.data.stores.lists import read_pairs
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import Message


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    args = _parser().read(arguments)
    if bool(args.resize_width) != bool(args.resize_height):
        raise CaffeError("resize_width and resize_height go together")
    if args.resize_width and (args.min_dim or args.max_dim):
        raise CaffeError("min_dim and max_dim keep the sides' ratio: leave out resize_width")
    detection = args.anno_type == "detection"
    labels: dict[str, int] = {}
    if detection:
        if not args.label_map_file:
            raise CaffeError("anno_type detection needs --label_map_file")
        labels = {name: label for label, name in read_label_map(args.label_map_file).items()}
    lines = read_pairs(Path(args.list)) if detection else plain_lines(Path(args.list))
    return write_records(args, lines, lambda datum, text: _record(args, datum, text, labels))


def _record(args: Namespace, datum: Message, annotation: str, labels: dict[str, int]) -> Message:
    record = AnnotatedDatum()
    record.datum.CopyFrom(datum)
    pixels = datum_pixels(parse_datum(datum.SerializeToString()), None)
    record.datum.channels, record.datum.height, record.datum.width = pixels.shape
    if args.anno_type == "detection":
        path = Path(args.root + annotation)
        if not path.exists():
            print(f"{path}: there is no such file, so the image has no boxes", file=sys.stderr)
        found = read_annotations(path, args.label_type)
        record.type = AnnotatedDatum.BBOX
        _add_boxes(record, path, found, labels, args.label_type)
    return record


def _add_boxes(
    record: Message, path: Path, found: Annotations, labels: dict[str, int], kind: str
) -> None:
    """Add boxes in groups by label, in the order of the labels' first occurrence."""
    height = found.height or record.datum.height
    width = found.width or record.datum.width
    groups: dict[int, Message] = {}
    for name, (left, top, right, bottom), difficult in found.objects:
        if kind != "txt" and name not in labels:
            raise CaffeError(f"{path}: the label map has no '{name}'")
        label = int(name) if kind == "txt" else labels[name]
        if label not in groups:
            groups[label] = record.annotation_group.add(group_label=label)
        own = groups[label].annotation
        box = own.add(instance_id=len(own)).bbox
        box.xmin, box.ymin, box.xmax, box.ymax = (
            *(left / width, top / height),
            *(right / width, bottom / height),
        )
        box.difficult = difficult


def _parser() -> ToolParser:
    parser = ToolParser("Make a database of images with boxes.")
    parser.add_argument("root", help="stands before each path of the list: ends with /")
    parser.add_argument("list", help="a text file: an image, a blank and its annotation a line")
    parser.add_argument("database", help="the folder that is made")
    kinds = ("classification", "detection")
    parser.add_argument("--anno_type", choices=kinds, default=kinds[0], help="classification")
    types = ("xml", "json", "txt")
    parser.add_argument("--label_type", choices=types, default="xml", help="of annotations: xml")
    parser.add_argument("--label_map_file", default="", help="names of the labels")
    parser.switch("check_label", "accepted: a name or label that is there twice always ends it")
    parser.switch("gray", "one channel instead of three")
    parser.switch("shuffle", "in random order")
    parser.add_argument("--backend", choices=("lmdb", "leveldb"), default="lmdb", help="lmdb")
    parser.add_argument("--resize_width", type=int, default=0, metavar="N", help="0: as they are")
    parser.add_argument("--resize_height", type=int, default=0, metavar="N", help="0: as they are")
    parser.add_argument("--min_dim", type=int, default=0, metavar="N", help="least shorter side")
    parser.add_argument("--max_dim", type=int, default=0, metavar="N", help="most longer side")
    parser.switch("check_size", "end if images are not all of one size")
    parser.switch("encoded", "store image files instead of pixels")
    parser.add_argument("--encode_type", default="", help="of these files: jpg, png, …")
    return parser
