"""The base of all estimators and their models, on Spark ML."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param

from sirtaki.spark.common.backend import Backend, SparkBackend
from sirtaki.spark.common.params import check_names, check_values, feature_columns, method_name
from sirtaki.spark.common.parquet import column_names, groups
from sirtaki.spark.common.store import Store
from sirtaki.spark.common.util import predicted, prepare_data, with_arrays
from sirtaki.spark.common.work import Work, kind_of
from sirtaki.spark.messages import pickled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_SAVED = ("backend", "store")
_SAVED = "parameters.pickle"


class _WithParams:
    """Makes a `Param` with `getX` and `setX` of each entry of `DEFAULTS`."""

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
        self._setDefault(**self.DEFAULTS)  # type: ignore[attr-defined]
        self._put({name: value for name, value in given.items() if value is not None})

    def _put(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._paramMap[getattr(self, name)] = value  # type: ignore[attr-defined]

    def setParams(self, **given: Any) -> Any:
        """Set several parameters by name, and return the same object."""
        check_names(given, self.DEFAULTS, type(self).__name__)
        self._put(given)
        return self

    def values(self) -> dict[str, Any]:
        """Return all parameters by name."""
        return {name: self.getOrDefault(name) for name in self.DEFAULTS}  # type: ignore[attr-defined]

    def save(self, path: str) -> None:
        """Write all parameters but `backend` and `store` into a folder or below a URI.

        Args:
            path: As of `Store.create`. It is read with pickle.
        """
        kept = {name: each for name, each in self.values().items() if name not in _NOT_SAVED}
        store = Store.create(path)
        store.write(f"{store.prefix_path}/{_SAVED}", pickled(kept))

    @classmethod
    def load(cls, path: str) -> Any:
        """Return what `save` has written. Only load what you trust: it may run code.

        Args:
            path: As of `save`.
        """
        store = Store.create(path)
        return cls(**pickle.loads(store.read(f"{store.prefix_path}/{_SAVED}")))


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
    """Writes a data frame as Parquet into a store, trains on ranks, returns a model.

    Subclasses say what a rank does, and what becomes of its answer.
    """

    _prefix = "sirtaki"

    def fit(self, df: DataFrame, params: Mapping[Any, Any] | None = None) -> Any:
        """Train on a data frame.

        Args:
            df: The data.
            params: Parameters for this fit alone, by name or by `Param`.

        Returns:
            The model, a transformer.

        Raises:
            ValueError: A parameter or a column does not fit.
            SparkRunError: A rank failed.
        """
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
        """Train on the Parquet files that are at the store's paths already.

        Args:
            params: Parameters for this fit alone.
            dataset_idx: The number of the data set, as in `Store.get_train_data_path`.

        Returns:
            The model.

        Raises:
            ValueError: There are no rows, or a parameter or a column does not fit.
        """
        used = self._with(params)
        values = used._checked()
        store = values["store"]
        path = store.get_train_data_path(dataset_idx)
        groups(store, path)
        features = feature_columns(
            values["feature_cols"],
            values["label_cols"],
            values["sample_weight_col"],
            None,
            column_names(store, path),
        )
        values = {**values, "feature_cols": features}
        return used._fit_prepared(values, used._backend(values), dataset_idx)

    def _with(self, params: Mapping[Any, Any] | None) -> Any:
        """Return the same estimator with other parameters."""
        if not params:
            return self
        named = {getattr(key, "name", key): value for key, value in params.items()}
        return type(self)(**{**self.values(), **named})

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
        """Return the transformer of what rank 0 has returned."""
        raise NotImplementedError


class SparkModel(_WithParams, Model):  # type: ignore[misc]
    """A trained model: a transformer that appends a column for each label.

    Subclasses say how it predicts.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "history": None,
        "model": None,
        "feature_columns": None,
        "label_columns": None,
        "optimizer": None,
        "run_id": None,
        "_metadata": None,
    }

    def setOutputCols(self, names: list[str]) -> Any:
        """Choose the names of the new columns; default: `<label>__output`."""
        self._outputs = list(names)
        return self

    def getOutputCols(self) -> list[str]:
        """Return the names of the new columns."""
        chosen: list[str] | None = getattr(self, "_outputs", None)
        return chosen or [f"{label}__output" for label in self.values()["label_columns"]]

    def transform(self, df: DataFrame, params: Mapping[Any, Any] | None = None) -> DataFrame:
        """Return a data frame with a column of predictions for each label.

        Args:
            df: Data with the feature columns.
            params: Parameters for this call alone.

        Raises:
            ValueError: A column has the name of a new one.
        """
        values = self.values()
        if params:
            values |= {getattr(key, "name", key): value for key, value in params.items()}
        features = values["feature_columns"]
        missing = [name for name in features if name not in df.columns]
        if missing:
            raise ValueError(f"Feature columns {missing} not found in the DataFrame")
        kinds = (values["_metadata"] or {}).get("outputs") or self._kinds(df, values)
        return predicted(df, features, self.getOutputCols(), kinds, self._predictor(values))

    def _transform(self, df: DataFrame) -> DataFrame:
        return self.transform(df)

    def _kinds(self, df: DataFrame, values: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Return what the model predicts, which the first row shows. Raises ValueError."""
        row = with_arrays(df.select(*values["feature_columns"])).first()
        if row is None:
            raise ValueError("the DataFrame is empty, so what the model predicts is not known")
        inputs = [np.asarray([value]) for value in row]
        inputs = [each.astype(np.float32) if each.dtype.kind == "f" else each for each in inputs]
        return [kind_of(each) for each in self._predictor(values)()(inputs)]

    def _predictor(self, values: Mapping[str, Any]) -> Any:
        """Return a function that makes, in a task, the function that predicts."""
        raise NotImplementedError
