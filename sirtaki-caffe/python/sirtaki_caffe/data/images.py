"""Records as pixels: the contents of a Datum, and image files."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError, needed
from sirtaki_caffe.proto.formats import wire
from sirtaki_caffe.proto.schema import Datum, Message

_FIELDS = {each.number: each.name for each in Datum.DESCRIPTOR.fields}
LARGEST_IMAGE = 1 << 26  # pixels; a few kilobytes of PNG can claim billions
# The formats of Caffe's own library; others, such as PostScript, would run programs.
_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF", "JPEG2000")


@dataclass
class StoredDatum:
    """A Datum whose bytes stay in the memory they were read from; it has Datum's fields."""

    channels: int = 0
    height: int = 0
    width: int = 0
    label: int = 0
    encoded: bool = False
    data: bytes | memoryview = b""
    float_data: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


def parse_datum(record: bytes) -> StoredDatum:
    """Return the Datum of a record.

    Raises:
        CaffeError: It is none.
    """
    found = StoredDatum()
    floats = []
    try:
        for number, _, value in wire.fields(memoryview(record)):
            name = _FIELDS.get(number)
            if name == "data":
                found.data = wire.content(value)
            elif name == "float_data":
                floats.append(np.frombuffer(wire.content(value), "<f4"))
            elif name is not None:
                setattr(found, name, wire.signed(value))
    except ValueError as error:
        why = f"not a Datum, or cut short ({len(record)} bytes): {error}"
        raise CaffeError(why) from error
    if floats:
        found.float_data = np.concatenate(floats)
    return found


def datum_pixels(datum: StoredDatum, color: bool | None) -> np.ndarray:
    """Return the pixels of a Datum: (channels, height, width), uint8 or float32.

    Args:
        datum: A Datum, whose image may be encoded.
        color: Whether an encoded image becomes BGR or gray; None: unchanged.

    Raises:
        CaffeError: Its numbers do not fit its sizes, or its image cannot be decoded.
    """
    if datum.encoded:
        return decode_image(datum.data, color)
    shape = (datum.channels, datum.height, datum.width)
    if min(shape) < 1:
        raise CaffeError(f"a Datum of {shape[0]}x{shape[1]}x{shape[2]} (channels, height, width)")
    count = shape[0] * shape[1] * shape[2]
    pixels = np.frombuffer(datum.data, np.uint8) if len(datum.data) else datum.float_data
    if len(pixels) != count:
        raise CaffeError(
            f"a Datum of {shape[0]}x{shape[1]}x{shape[2]} needs {count} numbers, "
            f"this one has {len(pixels)}"
        )
    return pixels.reshape(shape)


def decode_image(content: bytes | memoryview, color: bool | None) -> np.ndarray:
    """Return the pixels of an image file: uint8, BGR (3, height, width) or gray (1, height, width).

    Args:
        content: JPEG, PNG, or another common format.
        color: Whether it becomes BGR or gray; None: unchanged.

    Raises:
        CaffeError: The file is invalid, damaged or too large.
    """
    images = needed("PIL.Image")
    try:
        with images.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > LARGEST_IMAGE:
                raise CaffeError(
                    f"an image of {image.width}x{image.height}; the largest allowed has "
                    f"{LARGEST_IMAGE} pixels"
                )
            return _pixels(image, color)
    except CaffeError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise CaffeError(f"an image that cannot be decoded: {error}") from error


def read_image(path: Path, color: bool | None) -> np.ndarray:
    """Return the pixels of an image file like `decode_image`; errors name the path."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CaffeError(f"{path}: {error.strerror}") from error
    try:
        return decode_image(content, color)
    except CaffeError as error:
        raise CaffeError(f"{path}: {error}") from error


def make_datum(pixels: np.ndarray, label: int) -> Message:
    """Return the Datum of an image of (channels, height, width), as uint8 or else floats."""
    channels, height, width = pixels.shape
    datum = Datum(channels=channels, height=height, width=width, label=label)
    if pixels.dtype == np.uint8:
        datum.data = pixels.tobytes()
    else:
        datum.float_data.extend(pixels.astype(np.float32).ravel().tolist())
    return datum


def encode_image(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    """Return an image file of uint8 pixels, BGR or gray.

    Args:
        pixels: Array of shape (channels, height, width).
        kind: The suffix of file names: "jpg", "png".
        options: Options of the format, such as `quality`.
    """
    images = needed("PIL.Image")
    shown = pixels[0] if len(pixels) == 1 else pixels[::-1].transpose(1, 2, 0)
    name = {"jpg": "JPEG", "tif": "TIFF"}.get(kind.lower(), kind.upper())
    content = io.BytesIO()
    try:
        images.fromarray(np.ascontiguousarray(shown)).save(content, format=name, **options)
    except (KeyError, OSError) as error:
        raise CaffeError(f"cannot encode images as '{kind}': {error}") from error
    return content.getvalue()


def _pixels(image: Any, color: bool | None) -> np.ndarray:
    if image.mode.startswith("I"):  # 16 bits: the upper 8 are kept
        gray: np.ndarray = (np.asarray(image).astype(np.int32) >> 8).astype(np.uint8)
        return np.repeat(gray[None], 3 if color else 1, axis=0)
    if color is None:
        color = image.mode not in ("1", "L", "LA")
    if not color:
        return np.asarray(image.convert("L"))[None]
    rgb = np.asarray(image.convert("RGB"))
    return np.moveaxis(rgb[:, :, ::-1], 2, 0)
