"""Lightning's estimator on Spark: `TorchEstimator(...).fit(df)` returns a `TorchModel`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sirtaki.spark.lightning.estimator import LightningEstimator, TorchEstimator, TorchModel

__all__ = ["LightningEstimator", "TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> object:
    """Load the estimator on first use: ranks import this package too, but nothing of Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sirtaki.spark.lightning import estimator

    return getattr(estimator, name)
