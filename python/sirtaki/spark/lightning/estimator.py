"""Lightning's `TorchEstimator` and `TorchModel`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

from lightning.pytorch import LightningModule

from sirtaki import shipped
from sirtaki.spark.common.estimator import SparkEstimator
from sirtaki.spark.common.params import COMMON
from sirtaki.spark.common.work import Work
from sirtaki.spark.lightning.training import Wrapped, rank_function
from sirtaki.spark.torch.estimator import ModuleModel

# Horovod's minimum Lightning version, printed by its examples; ours is in `sirtaki[lightning]`.
MIN_PL_VERSION = "1.3.8"


class TorchEstimator(SparkEstimator):
    """Trains a LightningModule on ranks that Spark starts, by `Trainer(strategy="horovod")`.

    A batch maps column names to tensors. All arguments are by name; each has a method `getX` and
    `setX`. For those not named here, see `horovod.spark.torch.TorchEstimator`.

    Args:
        model: A `LightningModule`, or a plain module with `optimizer` and `loss`.
        num_gpus: Accepted; a rank has one GPU or none.
        logger: A Lightning logger; default: none.
        log_every_n_steps: As for `Trainer`.
        callbacks: Lightning callbacks.
        trainer_args: More arguments of `Trainer`, which override ours.
        **others: See `TorchEstimator` of `horovod.spark.torch`.

    Raises:
        TypeError: A parameter does not exist.
        ValueError: A parameter is refused.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **COMMON,
        "input_shapes": None,
        "num_gpus": None,
        "logger": None,
        "log_every_n_steps": 50,
        "trainer_args": None,
        "loader_num_epochs": None,
        "terminate_on_nan": False,
        "profiler": None,
        "debug_data_loader": False,
        "train_async_data_loader_queue_size": None,
        "val_async_data_loader_queue_size": None,
    }
    _prefix = "lightning"

    def _checked(self) -> dict[str, Any]:
        values = super()._checked()
        own = [name for name in ("optimizer", "loss", "loss_weights") if values[name] is not None]
        if isinstance(values["model"], LightningModule):
            if own:
                raise ValueError(
                    f"a LightningModule has its own {', '.join(own)}: leave these parameters out"
                )
        elif values["optimizer"] is None or values["loss"] is None:
            raise ValueError("a plain module needs optimizer= and loss=")
        if values["sample_weight_col"] is not None:
            raise ValueError(
                "sample_weight_col: name the column in feature_cols, and use it in training_step"
            )
        return values

    def _fit_prepared(self, values: dict[str, Any], backend: Any, idx: int | None) -> Any:
        module = values["model"]
        if not isinstance(module, LightningModule):
            module = Wrapped(module, values["optimizer"], values)
        self._pickled = shipped.dumps(module)
        return super()._fit_prepared(values, backend, idx)

    def _remote(self, work: Work) -> Any:
        return rank_function(work, self._pickled)

    def _model(self, work: Work, answer: Any) -> TorchModel:
        module = pickle.loads(self._pickled)
        module.load_state_dict(answer["model"])
        return TorchModel(
            history=answer["history"],
            model=module.model if isinstance(module, Wrapped) else module,
            feature_columns=work.values["feature_cols"],
            label_columns=work.values["label_cols"],
            input_shapes=work.values["input_shapes"],
            run_id=work.values["run_id"],
        )


class TorchModel(ModuleModel):
    """A trained module as a transformer.

    Args:
        model: The module; it is called with a tensor for each feature column.
        history: An entry per epoch: `epoch`, `train` and `validation` with the logged values.
        feature_columns: One for each input.
        label_columns: One for each output; the new columns are named after them.
        input_shapes: The shape of each input, such as `[-1, 784]`.
        run_id: The name of the run.
    """


# The name in Horovod's documentation.
LightningEstimator = TorchEstimator
