"""The estimators' parameters: names, defaults, and replacements of petastorm's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

# The parameters of all estimators, with their defaults.
COMMON: dict[str, Any] = {
    "num_proc": None,
    "backend": None,
    "store": None,
    "model": None,
    "optimizer": None,
    "loss": None,
    "loss_weights": None,
    "metrics": [],
    "feature_cols": None,
    "label_cols": None,
    "label_shapes": None,
    "sample_weight_col": None,
    "validation": None,
    "batch_size": 32,
    "val_batch_size": None,
    "epochs": 1,
    "train_steps_per_epoch": None,
    "validation_steps_per_epoch": None,
    "shuffle": True,
    "random_seed": None,
    "partitions_per_process": 10,
    "compress_sparse_cols": False,
    "gradient_compression": None,
    "run_id": None,
    "transformation_fn": None,
    "inmemory_cache_all": False,
    "use_gpu": True,
    "verbose": 1,
    "callbacks": [],
    # Accepted, without effect.
    "shuffle_buffer_size": None,
    "train_reader_num_workers": 2,
    "val_reader_num_workers": 2,
    "reader_pool_type": "thread",
    "mp_start_method": None,
    "transformation_edit_fields": None,
    "transformation_removed_fields": None,
    "data_module": None,
    "continuous_cols": None,
    "categorical_cols": None,
}
_WITHOUT_MEANING = {
    "shuffle_buffer_size": "rows are shuffled by row group, and within each",
    "train_reader_num_workers": "pyarrow reads row groups with its own threads",
    "val_reader_num_workers": "pyarrow reads row groups with its own threads",
    "reader_pool_type": "pyarrow reads row groups with its own threads",
    "mp_start_method": "reading starts no processes",
    "transformation_edit_fields": "the columns are those that transformation_fn returns",
    "transformation_removed_fields": "the columns are those that transformation_fn returns",
}
_REFUSED = {
    "data_module": "petastorm and NVTabular have no part any more: leave it out, and pyarrow "
    "reads the Parquet files; to change rows give transformation_fn=, a function of a DataFrame "
    "of pandas",
    "continuous_cols": "they were for NVTabular: name columns in feature_cols",
    "categorical_cols": "they were for NVTabular: name columns in feature_cols",
}
# Parameters whose methods have different names.
_ODD_GETTERS = {
    "shuffle_buffer_size": "ShufflingBufferSize",
    "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker",
    "inmemory_cache_all": "InMemoryCacheAll",
    "label_cols": "LabelCols",
}


def method_name(parameter: str) -> str:
    """Return the suffix of `get` and `set` in the methods of a parameter."""
    plain = "".join(word.capitalize() for word in parameter.split("_"))
    return _ODD_GETTERS.get(parameter, plain)


def check_names(given: Mapping[str, Any], known: Mapping[str, Any], who: str) -> None:
    """Check the arguments of an estimator's constructor.

    Args:
        given: The values by name.
        known: The defaults of all parameters.
        who: The estimator's name.

    Raises:
        TypeError: A parameter does not exist.
        ValueError: It belongs to a library that is no longer used.
    """
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{who} has no parameter {name!r}")
        if name in _REFUSED and value is not None:
            raise ValueError(f"{who}: {name}: {_REFUSED[name]}")
        if name in _WITHOUT_MEANING and value != known[name]:
            warnings.warn(f"{who}: {name} changes nothing: {_WITHOUT_MEANING[name]}", stacklevel=3)


def check_values(values: Mapping[str, Any]) -> None:
    """Check parameters before a fit.

    Args:
        values: All parameters by name.

    Raises:
        ValueError: One is missing, out of its range, or contradicts another.
    """
    if values["num_proc"] is not None and values["backend"] is not None:
        raise ValueError('At most one of parameters "backend" and "num_proc" may be specified')
    if values["model"] is None:
        raise ValueError("Model parameter is required")
    if values["store"] is None:
        raise ValueError(
            "Store parameter is required: store=Store.create(path), where the ranks find the data"
        )
    if not values["label_cols"]:
        raise ValueError("label_cols is required: the names of the columns to be predicted")
    for name in ("batch_size", "epochs", "partitions_per_process"):
        if values[name] < 1:
            raise ValueError(f"{name}={values[name]} must be > 0")
    if values.get("backward_passes_per_step", 1) <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    weights, labels = values["loss_weights"], values["label_cols"]
    if weights is not None and len(weights) != len(labels):
        raise ValueError(
            "loss_weights needs to be a list with the same length as the label_columns."
        )
    check_validation(values["validation"])


def check_validation(validation: Any) -> None:
    """Check the choice of validation rows. Raises ValueError."""
    if validation is None or isinstance(validation, str):
        return
    if not isinstance(validation, float | int) or not 0 <= validation < 1:
        raise ValueError(f"Validation split {validation} must be in the range: [0, 1)")


def feature_columns(
    given: list[str] | None,
    labels: list[str],
    weight: str | None,
    validation: Any,
    there: list[str],
) -> list[str]:
    """Return the features: the given ones, or all columns without another role.

    Args:
        given: The names that the user gave.
        labels: The label columns.
        weight: The column of sample weights.
        validation: The parameter `validation`; a name refers to a column.
        there: All columns.

    Raises:
        ValueError: A column does not exist.
    """
    features = given or [
        name for name in there if name not in (*labels, weight) and name != validation
    ]
    missing = [name for name in features if name not in there]
    if missing:
        raise ValueError(f"Feature columns {missing} not found in training DataFrame metadata")
    for label in labels:
        if label not in there:
            raise ValueError(f"Label column {label} does not exist in the DataFrame")
    for other in (weight, validation if isinstance(validation, str) else None):
        if other is not None and other not in there:
            raise ValueError(f"Column {other} does not exist in the DataFrame")
    return list(features)
