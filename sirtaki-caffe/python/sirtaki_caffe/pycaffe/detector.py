"""`caffe.Detector`: a net that classifies windows of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.array_blob import Array
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.pycaffe import io
from sirtaki_caffe.pycaffe.net import Net

Window = Sequence[float]  # ymin, xmin, ymax, xmax


class Detector(Net):
    """A deploy net for windows, with their preprocessing.

    Args:
        model_file: The net's text.
        pretrained_file: The file of its weights.
        mean: The mean to subtract from images.
        input_scale: A factor after the subtraction.
        raw_scale: A factor before the subtraction.
        channel_swap: The order of channels.
        context_pad: Pixels of the net's input around a window; None: none.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file)
        in_ = self.inputs[0]
        self.transformer = io.Transformer({in_: self.blobs[in_].shape})
        self.transformer.set_transpose(in_, (2, 0, 1))
        if mean is not None:
            self.transformer.set_mean(in_, mean)
        if input_scale is not None:
            self.transformer.set_input_scale(in_, input_scale)
        if raw_scale is not None:
            self.transformer.set_raw_scale(in_, raw_scale)
        if channel_swap is not None:
            self.transformer.set_channel_swap(in_, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | Path, Iterable[Window]]]
    ) -> list[dict[str, Any]]:
        """Return the net's results for windows of images.

        Args:
            images_windows: Files of images, and windows (ymin, xmin, ymax, xmax) in each.

        Returns:
            For each window `window`, `prediction` and `filename`.
        """
        found: list[dict[str, Any]] = []
        crops = []
        for name, windows in images_windows:
            image = np.asarray(io.load_image(name), np.float32)
            for window in windows:
                crops.append(self.crop(image, window))
                found.append({"window": window, "prediction": None, "filename": name})
        if not crops:
            return found
        in_ = self.inputs[0]
        prepared = np.stack([self.transformer.preprocess(in_, crop) for crop in crops])
        said = self._all([], {in_: prepared})[self.outputs[0]]
        for each, prediction in zip(found, said.reshape(len(found), -1), strict=True):
            each["prediction"] = prediction
        return found

    def detect_selective_search(self, image_fnames: Sequence[str]) -> list[dict[str, Any]]:
        """Raise an error: it would call MATLAB.

        Raises:
            CaffeError: Always.
        """
        raise CaffeError(
            "detect_selective_search needs MATLAB's selective search, which is not part of this; "
            "find windows by another program and give them to detect_windows"
        )

    def crop(self, image: Array, window: Window) -> Array:
        """Return a window of an image, with its context if configured.

        Args:
            image: Height x width x channels.
            window: ymin, xmin, ymax, xmax.
        """
        top, left, bottom, right = (int(side) for side in window)
        if not self.context_pad:
            return image[top:bottom, left:right]
        height, width = self.blobs[self.inputs[0]].shape[2:]
        scale = width / (width - 2 * self.context_pad)
        half_high, half_wide = (bottom - top + 1) / 2, (right - left + 1) / 2
        middle = (top + half_high, left + half_wide)
        box = np.round(
            [
                middle[0] - scale * half_high,
                middle[1] - scale * half_wide,
                middle[0] + scale * half_high,
                middle[1] + scale * half_wide,
            ]
        ).astype(int)
        return self._on_the_mean(image, box, (height, width))

    def _on_the_mean(self, image: Array, box: Array, size: tuple[int, int]) -> Array:
        """Return a resized box that may extend beyond the image; outside is the mean."""
        inner = np.maximum(box, 0)
        inner[2:] = np.minimum(box[2:], image.shape[:2])
        scale = np.array(size) / np.maximum(box[2:] - box[:2], 1)
        sides = np.maximum(np.round((inner[2:] - inner[:2]) * scale), 1).astype(int)
        start = np.round((inner[:2] - box[:2]) * scale).astype(int)
        sides = np.minimum(sides, np.array(size) - start)
        part = image[inner[0] : inner[2], inner[1] : inner[3]]
        ground = np.empty((*size, image.shape[2]), np.float32)
        ground[...] = self.crop_mean
        end = start + sides
        ground[start[0] : end[0], start[1] : end[1]] = io.resize_image(part, tuple(sides))
        return ground

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the context of windows; outside of the image is the mean.

        Args:
            context_pad: Pixels of the net's input on each side; None: no context.
        """
        self.context_pad = context_pad
        in_ = self.inputs[0]
        self.crop_mean: Array = np.zeros((1, 1, self.blobs[in_].shape[1]), np.float32)
        mean = self.transformer.mean.get(in_)
        if not context_pad or mean is None:
            return
        # In the order and scale of images before preprocessing.
        value = np.asarray(mean, np.float32).reshape(len(mean), -1).mean(1)
        swap = self.transformer.channel_swap.get(in_)
        if swap is not None:
            value = value[np.argsort(swap)]
        self.crop_mean = (value / (self.transformer.raw_scale.get(in_) or 1)).reshape(1, 1, -1)
