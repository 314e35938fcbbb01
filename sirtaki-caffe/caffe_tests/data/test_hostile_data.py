"""Files that are damaged anywhere are read or refused, and raise nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from sirtaki_caffe.data.images import (
    datum_pixels,
    decode_image,
    encode_image,
    make_datum,
    parse_datum,
)
from sirtaki_caffe.data.stores.hdf5_files import arrays_of
from sirtaki_caffe.data.stores.lists import read_image_list
from sirtaki_caffe.data.stores.windows import read_windows
from sirtaki_caffe.errors import CaffeError

IMAGE = np.random.default_rng(0).integers(0, 256, (3, 9, 7), np.uint8)
WINDOWS = b"# 0\na.png\n3\n12\n10\n2\n7 0.8 2 3 5 8\n0 0 6 6 9 11\n"


def hdf5(path: Path) -> bytes:
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=np.arange(600.0).reshape(6, 100), compression="gzip")
        file["label"] = np.arange(6)
    return path.read_bytes()


def read_datum(path: Path) -> None:
    datum_pixels(parse_datum(path.read_bytes()), None)


def read_hdf5(path: Path) -> None:
    arrays_of(path, ["data", "label"], np.dtype("f4"))


CASES: dict[str, tuple[Callable[[Path], bytes], Callable[[Path], object]]] = {
    "datum": (lambda _: make_datum(IMAGE, 3).SerializeToString(), read_datum),
    "floats": (lambda _: make_datum(IMAGE / 255, 3).SerializeToString(), read_datum),
    "jpeg": (lambda _: encode_image(IMAGE, "jpg"), lambda p: decode_image(p.read_bytes(), None)),
    "png": (lambda _: encode_image(IMAGE, "png"), lambda p: decode_image(p.read_bytes(), True)),
    "tiff": (lambda _: encode_image(IMAGE, "tif"), lambda p: decode_image(p.read_bytes(), False)),
    "hdf5": (hdf5, read_hdf5),
    "list": (lambda _: b"a b.png 1\nc.png 2\n", read_image_list),
    "windows": (lambda _: WINDOWS, read_windows),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_is_read_or_refused(case: str, tmp_path: Path) -> None:
    make, read = CASES[case]
    whole = make(tmp_path / "file")
    (tmp_path / "file").write_bytes(whole)
    read(tmp_path / "file")
    source = random.Random(1)
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(source.choice((1, 2, 8))):
            content[source.randrange(min(len(content), 3000))] = source.choice(
                (0, 255, source.randrange(256))
            )
        if source.random() < 0.2:
            del content[source.randrange(len(content)) :]
        (tmp_path / "file").write_bytes(content)
        with suppress(CaffeError):
            read(tmp_path / "file")
