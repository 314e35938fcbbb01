"""The base of all estimators and their models, on Spark ML."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

from sirtaki.spark.common.backend import Backend, SparkBackend
from sirtaki.spark.common.params import check_names, check_values, feature_columns, method_name
from sirtaki.spark.common.parquet import column_names, groups
from sirtaki.spark.common.saving import Reader, Writer
from sirtaki.spark.common.util import predicted, prepare_data, with_arrays
from sirtaki.spark.common.work import Work, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _WithParams(MLWritable, MLReadable):  # type: ignore[misc]
    """Defines a `Param` with `getX` and `setX` for each entry of `DEFAULTS`."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.DEFAULTS:
            _add_methods(cls, name)

    def __init__(self, **given: Any) -> None:
        super().__init__()
        check_names(given, self.DEFAULTS, type(self).__name__)
        for name in self.DEFAULTS:
            setattr(self, name, Param(self, name, f"see {type(self).__name__}"))
        self._setDefault(**self.DEFAULTS)
        self._put({name: value for name, value in given.items() if value is not None})

    def _put(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._paramMap[getattr(self, name)] = value

    def setParams(self, **given: Any) -> Any:
        """Set several parameters by name, and return the same object."""
        check_names(given, self.DEFAULTS, type(self).__name__)
        self._put(given)
        return self

    def values(self) -> dict[str, Any]:
        """Return all parameters by name."""
        return {name: self.getOrDefault(name) for name in self.DEFAULTS}

    def named(self, params: Mapping[Any, Any] | None) -> dict[str, Any]:
        """Return parameters by name, without those of other stages of a pipeline."""
        own = {
            key.name if isinstance(key, Param) else key: value
            for key, value in (params or {}).items()
            if not isinstance(key, Param) or key.parent == self.uid
        }
        check_names(own, self.DEFAULTS, type(self).__name__)
        return own

    def write(self) -> MLWriter:
        """Return a writer of all parameters except `backend` and `store`; called by pipelines."""
        return Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """Return a reader for `write`'s files. Only load trusted files: loading may run code."""
        return Reader(cls)


def _add_methods(cls: type, name: str) -> None:
    def getter(self: Any) -> Any:
        return self.getOrDefault(name)

    def setter(self: Any, value: Any) -> Any:
        return self.setParams(**{name: value})

    behind = method_name(name)
    for method, function in ((f"get{behind}", getter), (f"set{behind}", setter)):
        if method not in cls.__dict__:
            function.__doc__ = f"See the parameter `{name}`."
            setattr(cls, method, function)


class SparkEstimator(_WithParams, Estimator):  # type: ignore[misc]
    """Writes a data frame to a store as Parquet, trains on ranks, and returns a model.

    Subclasses define the work of a rank and the use of its result.
    """

    _prefix = "sirtaki"

    def fit(
        self, df: DataFrame, params: Mapping[Any, Any] | Sequence[Mapping[Any, Any]] | None = None
    ) -> Any:
        """Train on a data frame.

        Args:
            df: The data.
            params: Parameters for this fit alone, by name or by `Param`; or a list of these, for
                one training with each.

        Returns:
            The model, a transformer; for a list, a list of models.

        Raises:
            ValueError: A parameter or a column is invalid.
            SparkRunError: A rank failed.
        """
        if isinstance(params, Sequence):
            return [self.fit(df, each) for each in params]
        return self._with(params)._fit(df)

    def _fit(self, df: DataFrame) -> Any:
        values = self._checked()
        backend = self._backend(values)
        features = feature_columns(
            values["feature_cols"],
            values["label_cols"],
            values["sample_weight_col"],
            values["validation"],
            df.columns,
        )
        with prepare_data(
            backend.num_processes(),
            values["store"],
            df,
            values["label_cols"],
            features,
            values["validation"],
            values["sample_weight_col"],
            partitions_per_process=values["partitions_per_process"],
            random_seed=values["random_seed"],
        ) as idx:
            return self._fit_prepared({**values, "feature_cols": features}, backend, idx)

    def fit_on_parquet(
        self, params: Mapping[Any, Any] | None = None, dataset_idx: int | None = None
    ) -> Any:
        """Train on Parquet files that already exist at the store's paths.

        Args:
            params: Parameters for this fit alone.
            dataset_idx: The number of the data set, as in `Store.get_train_data_path`.

        Returns:
            The model.

        Raises:
            ValueError: There are no rows, or a parameter or a column is invalid.
        """
        used = self._with(params)
        values = used._checked()
        store = values["store"]
        path = store.get_train_data_path(dataset_idx)
        groups(store.fs, path)
        features = feature_columns(
            values["feature_cols"],
            values["label_cols"],
            values["sample_weight_col"],
            None,
            column_names(store.fs, path),
        )
        values = {**values, "feature_cols": features}
        return used._fit_prepared(values, used._backend(values), dataset_idx)

    def _with(self, params: Mapping[Any, Any] | None) -> Any:
        """Return a copy of the estimator with other parameters."""
        other = self.copy()
        other._put(self.named(params))
        return other

    def _checked(self) -> dict[str, Any]:
        values = self.values()
        check_values(values)
        return values

    def _backend(self, values: Mapping[str, Any]) -> Backend:
        if values["backend"] is not None:
            return values["backend"]  # type: ignore[no-any-return]
        return SparkBackend(values["num_proc"], verbose=values["verbose"])

    def _fit_prepared(self, values: dict[str, Any], backend: Backend, idx: int | None) -> Any:
        run_id = values["run_id"] or f"{self._prefix}_{int(time.time())}"
        work = Work.of({**values, "run_id": run_id}, backend.num_processes(), idx)
        answers = backend.run(self._remote(work), env=self._environment(values))
        return self._model(work, answers[0])

    def _environment(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return variables for the ranks."""
        return {}

    def _remote(self, work: Work) -> Any:
        """Return the function of a rank; rank 0 returns the trained model."""
        raise NotImplementedError

    def _model(self, work: Work, answer: Any) -> Any:
        """Return the transformer for rank 0's result."""
        raise NotImplementedError


class SparkModel(_WithParams, Model):  # type: ignore[misc]
    """A trained model: a transformer that appends a column for each label.

    Subclasses define the prediction.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "history": None,
        "model": None,
        "feature_columns": None,
        "label_columns": None,
        "optimizer": None,
        "run_id": None,
        "_metadata": None,
        "output_cols": None,
    }

    def getOutputCols(self) -> list[str]:
        """Return the names of the new columns; default: `<label>__output`."""
        return _output_columns(self.values())

    def transform(self, df: DataFrame, params: Mapping[Any, Any] | None = None) -> DataFrame:
        """Return a data frame with a column of predictions for each label.

        Args:
            df: Data with the feature columns.
            params: Parameters for this call alone.

        Raises:
            ValueError: A column has the name of a new one.
        """
        values = {**self.values(), **self.named(params)}
        features = values["feature_columns"]
        missing = [name for name in features if name not in df.columns]
        if missing:
            raise ValueError(f"Feature columns {missing} not found in the DataFrame")
        kinds = (values["_metadata"] or {}).get("outputs") or self._kinds(df, values)
        return predicted(df, features, _output_columns(values), kinds, self._predictor(values))

    def _transform(self, df: DataFrame) -> DataFrame:
        return self.transform(df)

    def _kinds(self, df: DataFrame, values: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Return the types of the model's predictions from the first row. Raises ValueError."""
        row = with_arrays(df.select(*values["feature_columns"])).first()
        if row is None:
            raise ValueError("the DataFrame is empty, so what the model predicts is not known")
        inputs = [np.asarray([value]) for value in row]
        inputs = [each.astype(np.float32) if each.dtype.kind == "f" else each for each in inputs]
        return [kind_of(each) for each in self._predictor(values)()(inputs)]

    def _predictor(self, values: Mapping[str, Any]) -> Any:
        """Return a function that makes, within a task, the prediction function."""
        raise NotImplementedError


def _output_columns(values: Mapping[str, Any]) -> list[str]:
    chosen = values["output_cols"] or [f"{label}__output" for label in values["label_columns"]]
    return list(chosen)
