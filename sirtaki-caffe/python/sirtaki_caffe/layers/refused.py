"""Intel's layers that are known but not supported, with a message for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki_caffe.layers.base import Layer, Shape, layer

_YOLO = "layers of YOLO detectors are not supported"

REFUSED = {
    "BoxData": f"{_YOLO}; images without boxes are read by Data and ImageData",
    "EvalDetection": f"{_YOLO}; end the net at its bottoms and decode the boxes elsewhere",
    "RegionLoss": f"{_YOLO}; there is no loss that matches boxes with annotations",
    "VideoData": "video files are not read; convert frames to a database for Data",
}


class Refused(Layer):
    """A layer that cannot be built."""

    bottoms = (0, None)
    tops = (0, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Raise the error with the reason."""
        raise self.error(REFUSED[self.proto.type])

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Never called."""
        raise self.error(REFUSED[self.proto.type])


for _kind in REFUSED:
    layer(_kind)(Refused)
