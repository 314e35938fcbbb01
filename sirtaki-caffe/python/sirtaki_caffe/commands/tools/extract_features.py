"""`extract_features`: writes blobs of a net to databases, item by item."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.data.images import make_datum
from sirtaki_caffe.data.layers.base import DataLayer
from sirtaki_caffe.data.stores.databases import write_database
from sirtaki_caffe.data.stores.interface import Writer
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import read_weights


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    args = _parser().read(arguments)
    blobs, folders = args.blobs.split(","), args.databases.split(",")
    if len(blobs) != len(folders):
        raise CaffeError(f"{len(blobs)} blobs and {len(folders)} databases: give one for each")
    net = Net(read_net(args.net), phase=TEST)
    unknown = [name for name in blobs if name not in net.blobs]
    if unknown:
        raise CaffeError(f"the net has no blob {unknown[0]}; it has {', '.join(net.blobs)}")
    net.load(read_weights(args.weights))
    try:
        _write(args, net, blobs, folders)
    finally:
        for layer in net.layers:
            if isinstance(layer, DataLayer):
                layer.close()
    print("Successfully extracted the features!")
    return 0


def _write(args: Namespace, net: Net, blobs: list[str], folders: list[str]) -> None:
    with ExitStack() as stack:
        writers = [
            stack.enter_context(write_database(args.backend, Path(folder))) for folder in folders
        ]
        written = [0] * len(blobs)
        for _ in range(args.batches):
            with torch.no_grad():
                net.forward()
            for place, (name, writer) in enumerate(zip(blobs, writers, strict=True)):
                items = net.blobs[name].data.detach().cpu().numpy()
                written[place] += _put(writer, items, written[place])
        for name, count in zip(blobs, written, strict=True):
            print(f"Extracted features of {count} query images for feature blob {name}")


def _put(writer: Writer, items: np.ndarray, first: int) -> int:
    """Write a batch; return its number of items."""
    for number, item in enumerate(items.astype(np.float32), first):
        sides = (*item.shape[:3], 1, 1, 1)[:3] if item.ndim <= 3 else (item.size, 1, 1)
        writer.put(
            f"{number:010d}".encode(), make_datum(item.reshape(sides), 0).SerializeToString()
        )
    return len(items)


def _parser() -> ToolParser:
    parser = ToolParser("Write blobs of a net into databases of features.")
    parser.add_argument("weights", help="a .caffemodel")
    parser.add_argument("net", help="the net's text file, with a layer that brings data")
    parser.add_argument("blobs", help="names of blobs, separated by commas")
    parser.add_argument("databases", help="a folder for each, separated by commas")
    parser.add_argument("batches", type=int, help="how many batches to run")
    parser.add_argument("backend", choices=("lmdb", "leveldb"), help="what the folders become")
    parser.add_argument("device", nargs="?", default="CPU", help="accepted: CPU or GPU")
    parser.add_argument("device_id", nargs="?", default="", help="accepted: DEVICE_ID=0")
    return parser
