"""Mean files, until proto.blobs reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sirtaki.caffe.errors import CaffeError
from sirtaki.caffe.proto.schema import BlobProto


def read_mean(path: Path) -> np.ndarray:
    """The mean image of a file: (channels, height, width)."""
    try:
        blob = BlobProto.FromString(path.read_bytes())
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    except Exception as error:
        raise CaffeError(f"{path} is not a mean file") from error
    shape = tuple(blob.shape.dim)[-3:] or (blob.channels, blob.height, blob.width)
    values = np.array(blob.data, np.float32)
    if len(values) != np.prod(shape):
        raise CaffeError(f"{path} has {len(values)} numbers for a mean of {shape}")
    return values.reshape(shape)


def write_mean(path: Path, mean: np.ndarray) -> None:
    """Write a mean image."""
    blob = BlobProto(num=1, channels=mean.shape[0], height=mean.shape[1], width=mean.shape[2])
    blob.data.extend(mean.astype(np.float32).ravel().tolist())
    path.write_bytes(blob.SerializeToString())
