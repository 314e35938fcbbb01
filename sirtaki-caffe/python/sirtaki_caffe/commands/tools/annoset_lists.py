"""`create_label_map` and `get_image_size`: the files that accompany a database of boxes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.data.annotated.label_map import read_text
from sirtaki_caffe.data.images import read_image
from sirtaki_caffe.data.stores.lists import read_pairs
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.schema import message_class
from sirtaki_caffe.proto.text import text_of

_BACKGROUND = ("none_of_the_above", 0, "background")


def main(arguments: Sequence[str]) -> int:
    """Run the tool that the first argument names; return the exit code."""
    name, *words = arguments
    return _label_map(words) if name == "create_label_map" else _image_sizes(words)


def _label_map(words: Sequence[str]) -> int:
    parser = ToolParser("Make a label map of a list of names.")
    parser.add_argument("mapfile", help="a text file: name [label [name shown]] on each line")
    parser.add_argument("output", help="the label map")
    parser.switch("include_background", "begin with none_of_the_above, label 0")
    parser.add_argument("--delimiter", default=" ", help="between the words of a line: a blank")
    args = parser.read(words)
    items = [_BACKGROUND] if args.include_background else []
    for number, line in enumerate(read_text(args.mapfile).splitlines(), 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.strip().split(args.delimiter)]
        try:
            label = int(parts[1]) if len(parts) > 1 else len(items)
        except ValueError:
            raise CaffeError(
                f"{args.mapfile}:{number}: expected 'name [label [name shown]]', "
                f"not '{line.strip()}'"
            ) from None
        items.append((parts[0], label, parts[2] if len(parts) > 2 else parts[0]))
    for place, what in enumerate(("name", "label")):
        found = [item[place] for item in items]
        twice = next((value for value in found if found.count(value) > 1), None)
        if twice is not None:
            raise CaffeError(f"{args.mapfile}: the {what} '{twice}' is there twice")
    message = message_class("LabelMap")()
    for name, label, shown in items:
        message.item.add(name=name, label=label, display_name=shown)
    with written_beside(args.output) as beside:
        beside.write_text(text_of(message))
    return 0


def _image_sizes(words: Sequence[str]) -> int:
    parser = ToolParser("Write the names and sizes of the images of a list.")
    parser.add_argument("root", help="stands before each path of the list: ends with /")
    parser.add_argument("list", help="a text file: an image, a blank and anything on each line")
    parser.add_argument("output", help="lines of name, height and width")
    parser.add_argument("--name_id_file", default="", help="lines of a name and what replaces it")
    args = parser.read(words)
    ids: dict[str, str] = {}
    if args.name_id_file:
        pairs = [line.split() for line in read_text(args.name_id_file).splitlines()]
        ids = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    lines = []
    for listed, _ in read_pairs(Path(args.list)):
        _, height, width = read_image(Path(args.root + listed.path), None).shape
        stem = Path(listed.path).stem
        if ids and stem not in ids:
            raise CaffeError(f"{args.name_id_file}: there is no line for '{stem}'")
        lines.append(f"{ids.get(stem, stem)} {height} {width}\n")
    with written_beside(args.output) as beside:
        beside.write_text("".join(lines))
    print(f"Processed {len(lines)} files.", file=sys.stderr)
    return 0
