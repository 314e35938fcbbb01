"""`upgrade_net_proto_text`, `upgrade_net_proto_binary`, `upgrade_solver_proto_text`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.proto import text
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.formats import binary
from sirtaki_caffe.proto.upgrade import upgrade_net

_ABOUT = {
    "upgrade_net_proto_text": "Write a net's text file as the present Caffe has it.",
    "upgrade_net_proto_binary": "Write a file of weights as the present Caffe has it.",
    "upgrade_solver_proto_text": "Write a solver's text file as the present Caffe has it.",
}
_WHAT = {
    "upgrade_net_proto_text": "NetParameter text proto",
    "upgrade_net_proto_binary": "NetParameter binary proto",
    "upgrade_solver_proto_text": "SolverParameter text proto",
}


def main(arguments: Sequence[str]) -> int:
    """Run the tool that the first argument names; return the exit code."""
    tool, *words = arguments
    parser = ToolParser(_ABOUT[tool])
    parser.prog = tool
    parser.add_argument("input", help="the file")
    parser.add_argument("output", help="the file to write, which may be the same")
    args = parser.read(words)
    notes: list[str] = []
    if tool == "upgrade_net_proto_binary":
        binary.write_net(args.output, upgrade_net(binary.read_net(args.input), notes.append))
    else:
        read = text.read_net if tool == "upgrade_net_proto_text" else text.read_solver
        _write(args.output, text.text_of(read(args.input, notes.append)))
    for note in notes:
        print(note, file=sys.stderr)
    if not notes:
        print(f"File already in latest proto format: {args.input}", file=sys.stderr)
    print(f"Wrote upgraded {_WHAT[tool]} to {args.output}", file=sys.stderr)
    return 0


def _write(path: str, content: str) -> None:
    with written_beside(path) as beside:
        Path(beside).write_text(content, encoding="utf-8")
