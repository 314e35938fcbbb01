"""Files with data for the tests of the layers that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import sirtaki_caffe.data.layers  # noqa: F401 (registers them)
from sirtaki_caffe.data.images import make_datum
from sirtaki_caffe.data.stores.databases import write_database
from sirtaki_caffe.layers.base import Context, Layer, layer_class
from sirtaki_caffe.proto.schema import LayerParameter
from tests import needs

needs_leveldb = needs.installed("plyvel")
BACKENDS = ["lmdb", pytest.param("leveldb", marks=needs_leveldb)]


def layer_of(text: str, **context: Any) -> Layer:
    """A layer that is set up, from the text of its message."""
    proto = text_format.Parse(text, LayerParameter())
    kind = layer_class(proto.type)
    assert kind is not None
    layer = kind(proto, Context(**context))
    layer.setup([])
    return layer


def write_images(
    path: Path, images: Sequence[np.ndarray], backend: str = "lmdb", labels: Sequence[int] = ()
) -> Path:
    """A database of images; labels are 0, 1, 2, … unless given."""
    with write_database(backend, path) as writer:
        for number, image in enumerate(images):
            label = labels[number] if labels else number
            record = make_datum(image, label).SerializeToString()
            writer.put(f"{number:08d}".encode(), record)
    return path


def numbered(count: int, size: int = 4) -> list[np.ndarray]:
    """Images of 1 x size x size whose pixels all are the image's number."""
    return [np.full((1, size, size), number, np.uint8) for number in range(count)]


def batches(layer: Layer, count: int) -> list[list[int]]:
    """The labels of the next batches."""
    return [layer.forward([])[1].int().tolist() for _ in range(count)]
