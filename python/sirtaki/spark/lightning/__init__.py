"""Lightning's estimator on Spark: `TorchEstimator(...).fit(df)` returns a `TorchModel`."""

from typing import TYPE_CHECKING

from sirtaki.spark import lazily

if TYPE_CHECKING:
    from sirtaki.spark.lightning.estimator import LightningEstimator, TorchEstimator, TorchModel

__all__ = ["LightningEstimator", "TorchEstimator", "TorchModel"]
__getattr__ = lazily(__name__, dict.fromkeys(__all__, "estimator"))
