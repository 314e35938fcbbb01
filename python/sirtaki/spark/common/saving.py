"""Files of estimators and models, as written and read by Spark ML's pipelines."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from sirtaki import shipped

_NOT_SAVED = ("backend", "store")
_FILE = "parameters.pickle"
# The bytes transferred between Python and Java at once.
_PART_BYTES = 16 << 20


class Writer(MLWriter):  # type: ignore[misc]
    """Writes all parameters of a stage, except those that belong to a cluster."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self._stage = stage

    def saveImpl(self, path: str) -> None:
        """See Spark; `path` is one of Spark's file system."""
        stage, spark = self._stage, self.sparkSession
        # The values are in a file of ours, since Spark would write them as JSON.
        DefaultParamsWriter.saveMetadata(stage, path, spark.sparkContext, paramMap={})
        kept = {name: each for name, each in stage.values().items() if name not in _NOT_SAVED}
        data = shipped.dumps(kept)
        file_system, where = _place(spark, path)
        stream = file_system.create(where)
        try:
            for start in range(0, len(data), _PART_BYTES):
                stream.write(bytearray(data[start : start + _PART_BYTES]))
        finally:
            stream.close()


class Reader(MLReader[Any]):  # type: ignore[misc]
    """Reads the files of `Writer`. kind: the class of the stage."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """See Spark. It may run code from the file."""
        spark = self.sparkSession
        told = DefaultParamsReader.loadMetadata(path, spark.sparkContext)
        file_system, where = _place(spark, path)
        left = file_system.getFileStatus(where).getLen()
        read = spark._jvm.org.apache.commons.io.IOUtils.toByteArray
        stream, data = file_system.open(where), bytearray()
        try:
            while left > 0:
                data += read(stream, min(left, _PART_BYTES))
                left -= min(left, _PART_BYTES)
        finally:
            stream.close()
        stage = self._kind(**pickle.loads(data))
        stage._resetUid(told["uid"])
        return stage


def _place(spark: Any, path: str) -> tuple[Any, Any]:
    """Return the Java file system of a path, and the file below it."""
    where = spark._jvm.org.apache.hadoop.fs.Path(f"{path}/{_FILE}")
    return where.getFileSystem(spark._jsc.hadoopConfiguration()), where
