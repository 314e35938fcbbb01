"""Keras's estimator on Spark: `KerasEstimator(...).fit(df)` returns a `KerasModel`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]


def __getattr__(name: str) -> object:
    """Load the estimator on first use: ranks import this package too, but nothing of Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sirtaki.spark.keras import estimator

    return getattr(estimator, name)
