"""The parameters of Spark's estimators: what is refused, and what replaces it."""

from __future__ import annotations

from typing import Any

import pytest

from sirtaki.spark.common.params import (
    COMMON,
    check_names,
    check_values,
    feature_columns,
    method_name,
)

GOOD = {**COMMON, "model": object(), "store": object(), "label_cols": ["y"]}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model", None, "Model parameter is required"),
        ("store", None, "Store parameter is required"),
        ("label_cols", None, "label_cols is required"),
        ("validation", 1, r"Validation split 1 must be in the range: \[0, 1\)"),
        ("validation", -0.1, "must be in the range"),
        ("batch_size", 0, "batch_size=0 must be > 0"),
        ("epochs", 0, "epochs=0 must be > 0"),
        ("partitions_per_process", 0, "must be > 0"),
        ("loss_weights", [1, 2], "same length as the label_columns"),
        ("backward_passes_per_step", 0, "backward_passes_per_step must be > 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_named(name: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_values({**GOOD, name: value})


def test_good_parameters_pass() -> None:
    check_values(GOOD)
    check_values({**GOOD, "validation": "held_out"})
    check_values({**GOOD, "validation": 0.25, "num_proc": 2})


def test_number_and_backend_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="At most one"):
        check_values({**GOOD, "num_proc": 2, "backend": object()})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("data_module", "transformation_fn"),
        ("continuous_cols", "feature_cols"),
        ("categorical_cols", "feature_cols"),
    ],
)
def test_what_was_petastorms_or_nvtabulars_is_refused_with_what_replaces_it(
    name: str, says: str
) -> None:
    with pytest.raises(ValueError, match=f"Estimator: {name}: .*{says}"):
        check_names({name: ["a"]}, COMMON, "Estimator")


def test_what_has_no_meaning_any_more_is_accepted_and_said_so() -> None:
    with pytest.warns(UserWarning, match="reader_pool_type changes nothing: pyarrow reads"):
        check_names({"reader_pool_type": "process"}, COMMON, "Estimator")


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(TypeError, match="Estimator has no parameter 'epoch'"):
        check_names({"epoch": 3}, COMMON, "Estimator")


@pytest.mark.parametrize(
    ("parameter", "method"),
    [
        ("batch_size", "BatchSize"),
        ("shuffle_buffer_size", "ShufflingBufferSize"),
        ("inmemory_cache_all", "InMemoryCacheAll"),
        ("train_reader_num_workers", "TrainReaderNumWorker"),
    ],
)
def test_methods_are_called_as_in_horovod(parameter: str, method: str) -> None:
    assert method_name(parameter) == method


def test_features_are_all_columns_without_another_part() -> None:
    there = ["a", "b", "y", "w", "held"]
    assert feature_columns(None, ["y"], "w", "held", there) == ["a", "b"]
    assert feature_columns(["b"], ["y"], None, 0.5, there) == ["b"]


@pytest.mark.parametrize(
    ("features", "labels", "weight", "says"),
    [
        (["q"], ["y"], None, r"Feature columns \['q'\] not found"),
        (None, ["q"], None, "Label column q does not exist"),
        (None, ["y"], "q", "Column q does not exist"),
    ],
)
def test_a_column_that_is_not_there_is_named(
    features: list[str] | None, labels: list[str], weight: str | None, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        feature_columns(features, labels, weight, None, ["a", "y"])
