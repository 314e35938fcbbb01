"""Data: records of an LMDB or a LevelDB."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import numpy as np

from sirtaki_caffe.data.images import datum_pixels, parse_datum
from sirtaki_caffe.data.layers.base import ImageLayer
from sirtaki_caffe.data.stores.databases import InOrder, Reader, Shuffled, open_database
from sirtaki_caffe.data.transform import Cut
from sirtaki_caffe.layers.base import layer


@layer("Data")
class Data(ImageLayer):
    """Process r of P uses the records r, r+P, r+2P, … in TRAIN and in TEST, repeatedly.

    With `shuffle` (Intel) each round has its own permutation, the same in all processes.
    `rand_skip` has no effect, as in Caffe 1.0 and Intel's.
    """

    source_file: ClassVar[str] = "data_layer.cpp"

    def param(self) -> Any:
        """See the base class."""
        return self.proto.data_param

    def open(self, source: str) -> None:
        """See the base class."""
        param = self.proto.data_param
        backend = "lmdb" if param.backend == param.LMDB else "leveldb"
        self._source = source
        self._database = open_database(backend, source)
        # Once: here, when the layer is dropped, or at the program's end.
        self._release = weakref.finalize(self, self._database.close)
        self.context.log(f"db_{backend}.cpp", f"Opened {backend} {source}")
        self.reseeded()

    def reseeded(self) -> None:
        """See the base class."""
        if self.proto.data_param.shuffle:
            self._reader: Reader = Shuffled(self._database, self._source, self.seed)
        else:
            self._reader = InOrder(self._database, self._source)

    def read(self, number: int) -> tuple[str, bytes]:
        """See the base class."""
        key, value = self._reader.read(number)
        if self._reader.began_again():
            self.context.log(self.source_file, "Restarting data prefetching from start.")
        return f"{self._source}, record {key!r}", value

    def made(self, content: Any, random: np.random.Generator) -> tuple[Cut, float]:
        """See the base class."""
        datum = parse_datum(content)
        pixels = datum_pixels(datum, self.transformer.color)
        return self.transformer.cut(pixels, random), float(datum.label)

    def close(self) -> None:
        """See the base class."""
        super().close()
        self._release()
