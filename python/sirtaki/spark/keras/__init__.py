"""Keras's estimator on Spark: `KerasEstimator(...).fit(df)` returns a `KerasModel`."""

from typing import TYPE_CHECKING

from sirtaki.spark import lazily

if TYPE_CHECKING:
    from sirtaki.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
__getattr__ = lazily(__name__, dict.fromkeys(__all__, "estimator"))
