"""`KerasEstimator` and `KerasModel`, for Keras 3 on any of its backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sirtaki import shipped
from sirtaki.spark.common.estimator import SparkEstimator, SparkModel
from sirtaki.spark.common.params import COMMON
from sirtaki.spark.common.work import Work
from sirtaki.spark.keras import models
from sirtaki.spark.keras.training import rank_function


class KerasEstimator(SparkEstimator):
    """Trains a Keras 3 model on ranks that Spark starts, with the driver's Keras backend.

    All arguments are by name; each has a method `getX` and `setX`. For those not named here, see
    `horovod.spark.torch.TorchEstimator`.

    Args:
        model: A built model, with one input for each feature column.
        optimizer: An optimizer or its name; default: the model's, if compiled.
        loss: As for `model.compile`; default: the model's.
        metrics: As for `model.compile`.
        custom_objects: Classes and functions that loading the model needs, by name.
        callbacks: Keras callbacks, on all ranks.
        checkpoint_callback: A `horovod.keras.callbacks.BestModelCheckpoint`: the best model is
            returned, not the last one.
        backend_env: Variables for the ranks.
        tensorflow_dataset_prefetch_buffer_size: Accepted; `tf.data` is not used.
        **others: See `TorchEstimator`.

    Raises:
        TypeError: A parameter does not exist.
        ValueError: A parameter is refused.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **COMMON,
        "custom_objects": {},
        "checkpoint_callback": None,
        "backend_env": {},
        "tensorflow_dataset_prefetch_buffer_size": 0,
    }
    _prefix = "keras"

    def _checked(self) -> dict[str, Any]:
        values = super()._checked()
        model = values["model"]
        for name in ("optimizer", "loss"):
            found = values[name] if values[name] is not None else getattr(model, name, None)
            if found is None:
                raise ValueError(f"{name.capitalize()} parameter is required")
            values[name] = found
        if not model.built:
            raise ValueError("the model has no shapes yet: give it an Input, or call model.build")
        return values

    def _environment(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(value) for name, value in values["backend_env"].items()}

    def _fit_prepared(self, values: dict[str, Any], backend: Any, idx: int | None) -> Any:
        import keras

        self._data = models.to_bytes(values["model"])
        self._backend_name = keras.config.backend()
        names = ("optimizer", "loss", "metrics")
        described = {name: models.described(values[name]) for name in names}
        others = ("custom_objects", "callbacks", "checkpoint_callback")
        self._sent = shipped.dumps({**described, **{name: values[name] for name in others}})
        # They are sent in a form of their own.
        kept = {name: value for name, value in values.items() if name not in (*names, *others)}
        return super()._fit_prepared(kept, backend, idx)

    def _remote(self, work: Work) -> Any:
        return rank_function(work, self._data, self._sent, self._backend_name)

    def _model(self, work: Work, answer: Any) -> KerasModel:
        import keras

        objects = self.values()["custom_objects"]
        load = keras.models.load_model
        model = models.from_bytes(answer["model"], objects, load, compile=False)
        return KerasModel(
            history=answer["history"],
            model=model,
            feature_columns=work.values["feature_cols"],
            label_columns=work.values["label_cols"],
            custom_objects=objects,
            run_id=work.values["run_id"],
        )


class KerasModel(SparkModel):
    """A Keras model as a transformer.

    Args:
        model: The model.
        history: The values of each metric by name, one per epoch, as `fit(...).history`.
        feature_columns: One for each input.
        label_columns: One for each output; the new columns are named after them.
        custom_objects: See `KerasEstimator`.
        run_id: The name of the run.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {**SparkModel.DEFAULTS, "custom_objects": {}}

    def _predictor(self, values: Mapping[str, Any]) -> Any:
        import keras

        return models.predictor(
            models.to_bytes(values["model"]),
            values["custom_objects"],
            keras.config.backend(),
            values["feature_columns"],
        )
