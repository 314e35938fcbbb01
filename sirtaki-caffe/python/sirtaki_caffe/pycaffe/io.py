"""`caffe.io`: conversion of images and arrays for nets and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import array_of, blob_of
from sirtaki_caffe.proto.schema import BlobProto, BlobProtoVector, Datum

Array = npt.NDArray[Any]

_INTERPOLATION = {0: "nearest", 1: "bilinear", 3: "bicubic"}


def load_image(filename: str | Path, color: bool = True) -> Array:
    """Read an image file.

    Args:
        filename: The file.
        color: Whether to return RGB; otherwise grey.

    Returns:
        float32 in [0, 1], height x width x (3 or 1).

    Raises:
        CaffeError: Pillow is missing, or the file is no image.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise CaffeError("reading images needs Pillow: pip install pillow") from error
    try:
        with Image.open(filename) as image:
            deep = image.mode.startswith("I;16")
            pixels = np.asarray(image if deep else image.convert("RGB" if color else "L"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise CaffeError(f"{filename}: not a readable image: {error}") from error
    values: Array = pixels.astype(np.float32) / (65535.0 if deep else 255.0)
    if values.ndim == 2:
        values = values[:, :, np.newaxis]
        if color:
            values = np.tile(values, (1, 1, 3))
    return values


def resize_image(im: Array, new_dims: Sequence[int], interp_order: int = 1) -> Array:
    """Resize an image, without smoothing it first.

    Args:
        im: Height x width x channels.
        new_dims: Height and width.
        interp_order: 0 nearest, 1 linear, 3 cubic.

    Returns:
        float32, of the new size.
    """
    if interp_order not in _INTERPOLATION:
        raise CaffeError(f"interp_order {interp_order}: only 0, 1 and 3 are known")
    mode = _INTERPOLATION[interp_order]
    planes = torch.from_numpy(np.array(im, dtype=np.float32)).permute(2, 0, 1)[None]
    corners = None if mode == "nearest" else False
    size = (int(new_dims[0]), int(new_dims[1]))
    resized = F.interpolate(planes, size=size, mode=mode, align_corners=corners)
    result: Array = np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())
    return result


def oversample(images: Sequence[Array], crop_dims: Sequence[int]) -> Array:
    """Return ten crops of each image: the corners and the centre, and these mirrored.

    Args:
        images: Height x width x channels each, all of one size.
        crop_dims: Height and width of a crop.

    Returns:
        float32, (10 images) x height x width x channels.
    """
    height, width = int(crop_dims[0]), int(crop_dims[1])
    found = []
    for image in images:
        down, right = image.shape[0] - height, image.shape[1] - width
        if down < 0 or right < 0:
            raise CaffeError(f"crops of {height}x{width} do not fit {list(image.shape[:2])}")
        corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
        crops = [image[y : y + height, x : x + width] for y, x in corners]
        found += crops + [crop[:, ::-1] for crop in crops]
    result: Array = np.stack(found).astype(np.float32)
    return result


def array_to_blobproto(arr: Array, diff: Array | None = None) -> Any:
    """Return a BlobProto with an array's values, and its gradient's."""
    return blob_of(np.asarray(arr), None if diff is None else np.asarray(diff))


def blobproto_to_array(blob: Any, return_diff: bool = False) -> Array:
    """Return the values of a BlobProto, or its gradient."""
    if not return_diff:
        values: Array = array_of(blob)
        return values
    gradient = BlobProto()
    gradient.CopyFrom(blob)
    gradient.ClearField("data")
    gradient.ClearField("double_data")
    gradient.data.extend(blob.diff)
    gradient.double_data.extend(blob.double_diff)
    return array_of(gradient)


def arraylist_to_blobprotovector_str(arraylist: Sequence[Array]) -> bytes:
    """Return arrays as the bytes of a BlobProtoVector."""
    vector = BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(arr) for arr in arraylist)
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(text: bytes) -> list[Array]:
    """Return the arrays in the bytes of a BlobProtoVector."""
    vector = BlobProtoVector()
    vector.ParseFromString(text)
    return [blobproto_to_array(blob) for blob in vector.blobs]


def array_to_datum(arr: Array, label: int | None = None) -> Any:
    """Return a Datum of an image, channels x height x width: bytes as bytes, others as floats."""
    if arr.ndim != 3:
        raise CaffeError(f"a Datum has channels, height and width, not {list(arr.shape)}")
    datum = Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(np.ravel(arr).tolist())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> Array:
    """Return the image of a Datum, channels x height x width."""
    shape = (datum.channels, datum.height, datum.width)
    if datum.data:
        values: Array = np.frombuffer(datum.data, dtype=np.uint8)
    else:
        values = np.array(datum.float_data, dtype=np.float64)
    if datum.encoded or values.size != np.prod(shape):
        raise CaffeError(f"a Datum of {list(shape)} holds {values.size} values, or is encoded")
    image: Array = values.reshape(shape).copy()
    return image


class Transformer:
    """The preprocessing of images for a net.

    Args:
        inputs: Shapes of the net's inputs by name, batch first.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Array] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: Array) -> Array:
        """Resize, transpose, swap channels, scale, subtract the mean, and scale again."""
        self._check(in_)
        image = data.astype(np.float32, copy=False)
        size = self.inputs[in_][2:]
        if image.shape[:2] != size:
            image = resize_image(image, size)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            image = image * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            image = image - self.mean[in_]
        if in_ in self.input_scale:
            image = image * np.float32(self.input_scale[in_])
        return image

    def deprocess(self, in_: str, data: Array) -> Array:
        """Undo `preprocess`, apart from the size."""
        self._check(in_)
        image = np.array(data, dtype=np.float32).squeeze()
        if in_ in self.input_scale:
            image = image / np.float32(self.input_scale[in_])
        if in_ in self.mean:
            image = image + self.mean[in_]
        if in_ in self.raw_scale:
            image = image / np.float32(self.raw_scale[in_])
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            image = image.transpose(np.argsort(self.transpose[in_]))
        return image

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of axes: (2, 0, 1) moves channels to the front."""
        self._check(in_)
        if len(order) != len(self.inputs[in_]) - 1:
            raise CaffeError(f"'{in_}' has {len(self.inputs[in_]) - 1} axes, not {len(order)}")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of channels: (2, 1, 0) converts RGB to BGR."""
        self._check(in_)
        if len(order) != self.inputs[in_][1]:
            raise CaffeError(f"'{in_}' has {self.inputs[in_][1]} channels, not {len(order)}")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set a factor before the mean is subtracted: 255 for images in [0, 1]."""
        self._check(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: Array) -> None:
        """Set the mean: one value per channel, or channels x height x width."""
        self._check(in_)
        mean = np.asarray(mean, dtype=np.float32)
        channels, *size = self.inputs[in_][1:]
        if mean.ndim == 1:
            if len(mean) != channels:
                raise CaffeError(f"a mean of {len(mean)} values for {channels} channels")
            mean = mean[:, np.newaxis, np.newaxis]
        else:
            mean = mean[np.newaxis] if mean.ndim == 2 else mean
            if mean.ndim != 3 or mean.shape[0] not in (1, channels):
                raise CaffeError(f"a mean of shape {list(mean.shape)} for {channels} channels")
            if list(mean.shape[1:]) != size:
                mean = resize_image(mean.transpose(1, 2, 0), size).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set a factor after the mean is subtracted."""
        self._check(in_)
        self.input_scale[in_] = scale

    def _check(self, in_: str) -> None:
        if in_ not in self.inputs:
            raise CaffeError(f"'{in_}' is none of the net's inputs {sorted(self.inputs)}")
