"""`caffe.Classifier`: a net that classifies images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sirtaki_caffe.net.array_blob import Array
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.pycaffe import io
from sirtaki_caffe.pycaffe.net import Net


class Classifier(Net):
    """A deploy net with the preprocessing of images.

    Args:
        model_file: The net's text.
        pretrained_file: The file of its weights.
        image_dims: Height and width to which images are scaled; the crop's by default.
        mean: The mean to subtract from images.
        input_scale: A factor after the subtraction.
        raw_scale: A factor before the subtraction.
        channel_swap: The order of channels.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path,
        image_dims: Sequence[int] | None = None,
        mean: Array | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
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
        self.crop_dims = self.blobs[in_].shape[2:]
        self.image_dims = tuple(image_dims or self.crop_dims)

    def predict(self, inputs: Sequence[Array], oversample: bool = True) -> Array:
        """Return probabilities of classes.

        Args:
            inputs: Images, height x width x channels.
            oversample: Whether to average over ten crops of each image, rather than use the centre.

        Returns:
            One row per image.
        """
        in_ = self.inputs[0]
        images = [io.resize_image(image, self.image_dims) for image in inputs]
        height, width = self.crop_dims
        if oversample:
            crops = io.oversample(images, (height, width))
        else:
            crops = np.stack([_centre(image, height, width) for image in images])
        prepared = np.stack([self.transformer.preprocess(in_, crop) for crop in crops])
        found = self._all([], {in_: prepared})[self.outputs[0]]
        if oversample:
            found = found.reshape(len(images), 10, -1).mean(axis=1)
        return found


def _centre(image: Array, height: int, width: int) -> Array:
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]
