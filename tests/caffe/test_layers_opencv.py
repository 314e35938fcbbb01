"""Each layer forward against OpenCV's importer of Caffe's nets."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from layer_runs import build, numbers, run

from sirtaki.caffe.proto.blobs import blob_of
from sirtaki.caffe.proto.schema import TEST, NetParameter

# id: shapes of the bottoms, tops, the layer
CASES = {
    "conv": (
        [(2, 4, 9, 8)],
        1,
        'type: "Convolution" convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "gaussian" } bias_filler { type: "uniform" } }',
    ),
}
