"""AnnotatedData: records of images with boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sirtaki_caffe.data.annotated.label_map import read_label_map
from sirtaki_caffe.data.annotated.preparing import Preparing
from sirtaki_caffe.data.annotated.records import boxes_of, parse_annotated
from sirtaki_caffe.data.images import datum_pixels, parse_datum
from sirtaki_caffe.data.layers.database import Data
from sirtaki_caffe.data.transform import Cut
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Shape, layer

_FIT_SMALL_SIZE = 2


@layer("AnnotatedData")
class AnnotatedData(Data):
    """Images, and their boxes in rows (item, label, instance, corners, difficult).

    The rows are those of the whole batch, so their number varies; a batch without boxes has one row
    of -1. Records without a type have a label each, like those of Data.
    """

    source_file: ClassVar[str] = "annotated_data_layer.cpp"

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Open the source; the first record determines the kind of labels."""
        self._preparing: Preparing | None = None
        self._labels: dict[int, str] | None = None
        param = self.proto.annotated_data_param
        if param.label_map_file:
            try:
                self._labels = read_label_map(param.label_map_file)
            except CaffeError as error:
                raise self.error(f"label_map_file: {error}") from error
        super().setup(bottoms)
        fit = self.proto.transform_param.resize_param
        if fit.resize_mode == _FIT_SMALL_SIZE and self.batch != 1:
            raise self.error("resize_mode FIT_SMALL_SIZE needs a batch_size of 1")

    def open(self, source: str) -> None:
        """See the base class."""
        super().open(source)
        samplers = self.proto.annotated_data_param.batch_sampler
        self._preparing = Preparing(self.proto.transform_param, samplers, self.transformer)
        first = parse_annotated(self.read(0)[1])
        self._has_boxes = first.HasField("type") or self.proto.annotated_data_param.HasField(
            "anno_type"
        )

    def made(self, content: Any, random: np.random.Generator) -> tuple[Cut, Any]:
        """See the base class."""
        assert self._preparing is not None
        found = parse_annotated(content)
        datum = parse_datum(found.datum.SerializeToString())
        forced = self.proto.annotated_data_param.HasField("anno_type")
        if self._has_boxes and not (found.HasField("type") or forced):
            raise CaffeError("misses its AnnotationType, which the first record has")
        boxes = boxes_of(found, self._labels)
        image = datum_pixels(datum, self.transformer.color)
        cut, left = self._preparing.made(image, boxes, datum.encoded, random)
        if not self._has_boxes:
            return cut, float(datum.label)
        kinds = left.kinds
        return cut, np.hstack([kinds[:, :2], left.corners, kinds[:, 2:]])

    def label_blob(self, labels: Sequence[Any]) -> np.ndarray:
        """See the class."""
        if not self._has_boxes:
            return np.array(labels).reshape(-1, 1, 1, 1)
        rows = [np.insert(each, 0, item, axis=1) for item, each in enumerate(labels)]
        joined = np.concatenate(rows)
        return (joined if len(joined) else np.full((1, 8), -1.0))[None, None]
