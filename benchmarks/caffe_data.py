"""How many images a second the Data layer of `sirtaki_caffe` brings, and what that takes.

python benchmarks/caffe_data.py
"""

from __future__ import annotations

import argparse
import resource
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import text_format
from output import RESULTS, write_result
from targets import Check

import sirtaki_caffe.layers  # noqa: F401 (registers Data)
from sirtaki.observe.machine import machine_facts
from sirtaki.rendezvous.words import aligned
from sirtaki_caffe.data.images import encode_image, make_datum
from sirtaki_caffe.data.layers.base import DataLayer
from sirtaki_caffe.data.resize import resize
from sirtaki_caffe.data.stores.databases import write_database
from sirtaki_caffe.layers.base import Context, layer_class
from sirtaki_caffe.proto.blobs import write_mean
from sirtaki_caffe.proto.schema import Datum, LayerParameter

_SIDE = 256
_CLASSES = 1000
_WANTED = 500  # images a second
_CROPPED = "crop_size: 227 mirror: true"
# Which database, what more of data_param, transform_param.
CASES = {
    "raw, crop, mirror, mean file": ("raw", "", f'{_CROPPED} mean_file: "{{}}/mean"'),
    "raw, the same, shuffled": ("raw", "shuffle: true", f'{_CROPPED} mean_file: "{{}}/mean"'),
    "raw, crop, mirror, mean values": (
        "raw",
        "",
        f"{_CROPPED} mean_value: 104 mean_value: 117 mean_value: 123",
    ),
    "JPEG, crop, mirror, mean file": ("jpg", "", f'{_CROPPED} mean_file: "{{}}/mean"'),
    "JPEG, random resize, area and shape": (
        "jpg",
        "",
        "crop_size: 224 mirror: true random_resize_param { min_size: 256 max_size: 256 } "
        "random_aspect_ratio_param { min_area_ratio: 0.08 aspect_ratio_change: 0.75 }",
    ),
}

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), args.records)
        timings = {case: [] for case in CASES}
        for _ in range(args.rounds):
            for case in CASES:
                timings[case].append(_measure(Path(name), case, args))
    cases = {case: _median(found) for case, found in timings.items()}
    worst = min(cases[case]["images per second"] for case in CASES if case.startswith("raw"))
    check = Check(
        f"raw records: at least {_WANTED} images of 227x227 a second",
        f"{worst:.0f}",
        worst >= _WANTED,
    )
    print("\n".join(_shown(cases)), check.line(), sep="\n")
    result = {
        "benchmark": "caffe_data",
        "command": shlex.join(["python", "benchmarks/caffe_data.py", *arguments]),
        "machine": facts,
        "batch": args.batch,
        "cases": cases,
        "targets": [asdict(check)],
    }
    write_result(Path(args.output) / "caffe_data.json", result)
    return 0


def _measure(folder: Path, case: str, args: argparse.Namespace) -> Result:
    """Some batches as fast as they come: images a second, and seconds of a core for each."""
    with closing(_layer(folder, case, args.batch)) as layer:
        layer.forward([])
        wall, used = time.perf_counter(), _core_seconds()
        for _ in range(args.batches):
            layer.forward([])
        wall, used = time.perf_counter() - wall, _core_seconds() - used
    images = args.batch * args.batches
    return {"images per second": images / wall, "core seconds per image": used / images}


def _layer(folder: Path, case: str, batch: int) -> DataLayer:
    kind, more, transform = CASES[case]
    proto = text_format.Parse(
        f'name: "data" type: "Data" top: "data" top: "label" '
        f'data_param {{ source: "{folder}/{kind}" batch_size: {batch} backend: LMDB {more} }} '
        f"transform_param {{ {transform.format(folder) if '{}' in transform else transform} }}",
        LayerParameter(),
    )
    made = layer_class("Data")
    assert made is not None
    layer = made(proto, Context())
    assert isinstance(layer, DataLayer)
    layer.setup([])
    return layer


def _write(folder: Path, count: int) -> None:
    """Databases of the same images, raw and as JPEG, and a mean file."""
    for kind in ("raw", "jpg"):
        with write_database("lmdb", folder / kind) as writer:
            for number, image in enumerate(_images(count)):
                label = number % _CLASSES
                datum = make_datum(image, label)
                if kind == "jpg":
                    datum = Datum(data=encode_image(image, kind), label=label, encoded=True)
                writer.put(f"{number:08d}".encode(), datum.SerializeToString())
    write_mean(folder / "mean", np.full((3, _SIDE, _SIDE), 118, np.float32))


def _images(count: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    for _ in range(count):
        coarse = random.integers(0, 240, (3, 32, 32), np.uint8)
        noise = random.integers(0, 16, (3, _SIDE, _SIDE), np.uint8)
        yield resize(coarse, _SIDE, _SIDE).clip(0, 239) + noise


def _core_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _median(found: Sequence[Result]) -> Result:
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def _shown(cases: Result) -> list[str]:
    rows = [["", "images/s", "ms of a core each", f"of a core at {_WANTED}/s"]]
    for case, found in cases.items():
        cost = found["core seconds per image"]
        speed = f"{found['images per second']:.0f}"
        rows.append([case, speed, f"{cost * 1e3:.2f}", f"{cost * _WANTED:.0%}"])
    return aligned(rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1000, help="in each database (1000)")
    parser.add_argument("--batch", type=int, default=64, help="images a batch (64)")
    parser.add_argument("--batches", type=int, default=30, help="in each round (30)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each case (3)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
