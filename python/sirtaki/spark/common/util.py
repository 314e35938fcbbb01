"""Conversion of data frames to store files, and of predictions to data frames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sirtaki.spark.common.params import check_validation, feature_columns
from sirtaki.spark.common.parquet import as_array
from sirtaki.spark.common.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Small enough for each rank to have several; also the unit of shuffling.
_GROUP_ROWS = 8192
_PREDICTED_ROWS = 1024
Predict = Callable[[list[Any]], list[Any]]


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Store,
    df: DataFrame,
    label_columns: Sequence[str],
    feature_columns: Sequence[str] | None,
    validation: float | str | None = None,
    sample_weight_col: str | None = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
    random_seed: int | None = None,
) -> Iterator[int]:
    """Write a data frame to a store, and remove it there at the end.

    Args:
        num_processes: The number of ranks that will read it.
        store: The destination.
        df: The data.
        label_columns: Columns to predict.
        feature_columns: Columns to predict from; None: all others.
        validation: A fraction of the rows, or the name of a column that is true for them.
        sample_weight_col: The column of weights.
        compress_sparse: Accepted; Parquet compresses anyway.
        partitions_per_process: The number of files per rank.
        verbose: Accepted and ignored.
        random_seed: The seed for choosing validation rows. The choice is fixed without it, too,
            because a resumed run must not train on its validation rows.

    Yields:
        The number of the data set, for the paths of `store`.

    Raises:
        ValueError: A column does not exist, a number is out of range, or there are no rows.
    """
    if num_processes < 1 or partitions_per_process < 1:
        raise ValueError(
            f"num_proc={num_processes} and partitions_per_process={partitions_per_process} must "
            "both be > 0"
        )
    check_validation(validation)
    chosen = _chosen(df, label_columns, feature_columns, validation, sample_weight_col)
    train, held_out = _split(chosen, validation, random_seed or 0)
    count = num_processes * partitions_per_process
    idx = 0
    while store.exists(store.get_train_data_path(idx)):
        idx += 1
    paths = [store.get_train_data_path(idx), store.get_val_data_path(idx)]
    try:
        if _write(train, store, paths[0], count) == 0:
            raise ValueError(f"No rows found in training dataset: {paths[0]}")
        if held_out is not None and _write(held_out, store, paths[1], count) == 0:
            raise ValueError(f"Validation DataFrame is empty with validation param: {validation}")
        yield idx
    finally:
        for path in paths:
            store.delete(path)


def _chosen(
    df: DataFrame,
    labels: Sequence[str],
    features: Sequence[str] | None,
    validation: float | str | None,
    weight: str | None,
) -> DataFrame:
    """Return the required columns, with vectors as arrays."""
    chosen = feature_columns(
        list(features) if features else None, list(labels), weight, validation, df.columns
    )
    others = [name for name in (weight, validation) if isinstance(name, str)]
    return with_arrays(df.select(*dict.fromkeys([*chosen, *labels, *others])))


def with_arrays(df: DataFrame) -> DataFrame:
    """Return a data frame whose columns of vectors are arrays."""
    from pyspark.ml.functions import vector_to_array

    for field in df.schema.fields:
        if field.dataType.typeName() == "vector" or "VectorUDT" in repr(field.dataType):
            df = df.withColumn(field.name, vector_to_array(field.name, "float32"))
    return df


def _split(
    df: DataFrame, validation: float | str | None, seed: int
) -> tuple[DataFrame, DataFrame | None]:
    if not validation:
        return df, None
    if isinstance(validation, str):
        held = df[validation].cast("boolean")
        return df.filter(~held).drop(validation), df.filter(held).drop(validation)
    train, held_out = df.randomSplit([1 - validation, validation], seed)
    return train, held_out


def _write(df: DataFrame, store: Store, path: str, count: int) -> int:
    """Write Parquet files; return the number of rows."""
    store.fs.create_dir(path, recursive=True)
    written = df.repartition(count).mapInArrow(_writer(store, path), "rows long").collect()
    return sum(row.rows for row in written)


def _writer(store: Store, path: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyarrow import parquet
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"{path}/part-{context.partitionId():05d}"
        # Spark may start a task twice.
        aside = f"{name}.{context.taskAttemptId()}"
        there = list(batches)
        tables = pyarrow.Table.from_batches(there) if there else None
        if tables is not None and tables.num_rows:
            with store.fs.open_output_stream(aside) as stream:
                parquet.write_table(tables, stream, row_group_size=_GROUP_ROWS)
            store.fs.move(aside, f"{name}.parquet")
        rows = 0 if tables is None else tables.num_rows
        yield pyarrow.record_batch([pyarrow.array([rows], pyarrow.int64())], names=["rows"])

    return write


def predicted(
    df: DataFrame,
    features: Sequence[str],
    outputs: Sequence[str],
    kinds: Sequence[tuple[str, int]],
    make: Callable[[], Predict],
) -> DataFrame:
    """Return a data frame with columns of a model's predictions.

    Args:
        df: The data.
        features: The columns of the model's inputs.
        outputs: The names of the new columns.
        kinds: The kind of number of each, as NumPy names it, and the numbers per row; 1: no array.
        make: Makes the prediction function; called once per task.

    Raises:
        ValueError: A column with that name exists.
    """
    from pyspark.sql import types

    taken = [name for name in outputs if name in df.columns]
    if taken:
        raise ValueError(f"the DataFrame has columns {taken} already: setOutputCols chooses others")
    plain = {"i": types.LongType(), "u": types.LongType(), "b": types.BooleanType()}
    fields = []
    for name, (kind, width) in zip(outputs, kinds, strict=True):
        number = plain.get(kind, types.FloatType())
        fields.append(types.StructField(name, number if width == 1 else types.ArrayType(number)))
    # Arrow does not support vectors: they are arrays in the result, too.
    arrays = with_arrays(df)
    schema = types.StructType([*arrays.schema.fields, *fields])
    names = arrays.columns

    def predict(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        function = make()
        for batch in batches:
            table = pyarrow.Table.from_batches([batch])
            inputs = [as_array(table.column(name)) for name in features]
            parts = [
                function([each[start : start + _PREDICTED_ROWS] for each in inputs])
                for start in range(0, table.num_rows, _PREDICTED_ROWS)
            ]
            found = [_arrow(np.concatenate(column)) for column in zip(*parts, strict=True)]
            kept = [table.column(name).combine_chunks() for name in names]
            if table.num_rows:
                columns = [*kept, *found]
                yield from pyarrow.table(columns, names=[*names, *outputs]).to_batches()

    return arrays.mapInArrow(predict, schema)


def _arrow(values: np.ndarray[Any, Any]) -> Any:
    """Return predictions as an Arrow column: numbers, or flat lists."""
    import pyarrow

    kinds = {"i": np.int64, "u": np.int64, "b": np.bool_}
    values = values.astype(kinds.get(values.dtype.kind, np.float32))
    flat = values.reshape(len(values), -1)
    if flat.shape[1] == 1:
        return pyarrow.array(flat[:, 0])
    offsets = np.arange(len(flat) + 1, dtype=np.int32) * flat.shape[1]
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(flat.reshape(-1)))
