"""`TorchEstimator` and `TorchModel`, and the base of all models that are PyTorch modules."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from sirtaki import shipped
from sirtaki.spark.common.estimator import SparkEstimator, SparkModel
from sirtaki.spark.common.params import COMMON
from sirtaki.spark.common.work import Work
from sirtaki.spark.torch.losses import as_list, tensor
from sirtaki.spark.torch.metrics import metrics_of
from sirtaki.spark.torch.training import rank_function


class ModuleModel(SparkModel):
    """A module as a transformer: it is called with a tensor for each feature column."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {**SparkModel.DEFAULTS, "input_shapes": None}

    def _predictor(self, values: Mapping[str, Any]) -> Any:
        return _predictor(values["model"], values["input_shapes"])


def _predictor(model: torch.nn.Module, shapes: Any) -> Any:
    """Return a function that makes, within a task, the prediction function of a module."""
    data = shipped.dumps(model.cpu())

    def make() -> Any:
        # Spark runs as many tasks as cores.
        torch.set_num_threads(1)
        module = pickle.loads(data).eval()

        def predict(inputs: list[Any]) -> list[Any]:
            each = shapes or [None] * len(inputs)
            given = [tensor(array, shape) for array, shape in zip(inputs, each, strict=True)]
            with torch.no_grad():
                return [output.numpy() for output in as_list(module(*given))]

        return predict

    return make


class TorchEstimator(SparkEstimator):
    """Trains a PyTorch model on ranks that Spark starts.

    All arguments are by name; each has a method `getX` and `setX`.

    Args:
        num_proc: The number of ranks, unless `backend` is given.
        backend: The backend that runs them; default: `SparkBackend(num_proc)`.
        store: The store of data, checkpoints and logs; see `Store.create`.
        model: A module; it is called with a tensor for each feature column.
        optimizer: The model's optimizer. Its rate is multiplied by the number of ranks.
        loss: A function, or one for each label.
        loss_constructors: Functions that create the losses on ranks, in place of `loss`.
        loss_weights: The weight of each label; default: equal weights.
        metrics: Functions of outputs and labels in equal shapes that return a number; with several
            labels both are lists. Or lists of functions, one list for each label or one for all; if
            there are several, their names in the history are `<label>_<function>`.
        feature_cols: Default: all columns without another role.
        label_cols: One for each output of the model.
        input_shapes: The shape of each input, such as `[-1, 1, 28, 28]`; default: as in the data.
        label_shapes: The shapes of labels.
        sample_weight_col: The factor of each sample's loss.
        validation: A fraction of the rows, or the name of a column that is true for them.
        batch_size: The batch size of a rank.
        val_batch_size: Default: `batch_size`.
        epochs: The number of epochs; a resumed run includes its earlier ones.
        train_steps_per_epoch: Default: rows / batch_size / ranks.
        validation_steps_per_epoch: Default: all rows.
        shuffle: Whether each epoch has its own order.
        random_seed: The seed of the order.
        partitions_per_process: The number of Parquet files per rank.
        gradient_compression: Such as `hvd.Compression.fp16`.
        run_id: The name of the run; a run with a checkpoint continues from it.
        transformation_fn: Transforms each pandas DataFrame that was read.
        inmemory_cache_all: Whether ranks keep the data in memory.
        use_gpu: Whether ranks use their GPUs.
        backward_passes_per_step: The number of batches whose gradients are summed for a step.
        train_minibatch_fn: `(model, optimizer, inputs, labels, sample_weights) -> loss`, in place
            of forward, loss and backward.
        callbacks: Functions that each rank calls with the history entry of an epoch.
        verbose: 0 prints nothing.
        **others: petastorm's parameters are accepted if they have become meaningless, and otherwise
            refused with their replacement.

    Raises:
        TypeError: A parameter does not exist.
        ValueError: A parameter is refused.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **COMMON,
        "loss_constructors": None,
        "input_shapes": None,
        "train_minibatch_fn": None,
        "backward_passes_per_step": 1,
    }
    _prefix = "pytorch"

    def _checked(self) -> dict[str, Any]:
        values = super()._checked()
        if values["optimizer"] is None:
            raise ValueError("Optimizer parameter is required")
        if values["loss"] is not None and values["loss_constructors"] is not None:
            raise ValueError("only one of loss_constructors and loss parameters can be specified.")
        has_loss = values["loss"] is not None or values["loss_constructors"] is not None
        if not has_loss and values["train_minibatch_fn"] is None:
            raise ValueError("Loss parameter is required: loss=, or loss_constructors=")
        metrics_of(values["metrics"], values["label_cols"])
        return values

    def _fit_prepared(self, values: dict[str, Any], backend: Any, idx: int | None) -> Any:
        # Pickled together, so that the optimizer's parameters remain the model's.
        self._pickled = shipped.dumps((values["model"], values["optimizer"]))
        return super()._fit_prepared(values, backend, idx)

    def _remote(self, work: Work) -> Any:
        return rank_function(work, self._pickled)

    def _model(self, work: Work, answer: Any) -> TorchModel:
        model, optimizer = pickle.loads(self._pickled)
        model.load_state_dict(answer["model"])
        optimizer.load_state_dict(answer["optimizer"])
        values = work.values
        return TorchModel(
            history=answer["history"],
            model=model,
            feature_columns=values["feature_cols"],
            label_columns=values["label_cols"],
            input_shapes=values["input_shapes"],
            optimizer=optimizer,
            run_id=values["run_id"],
            loss=values["loss"],
            loss_constructors=values["loss_constructors"],
            _metadata={"outputs": [tuple(each) for each in answer["outputs"]]},
        )


class TorchModel(ModuleModel):
    """A PyTorch model as a transformer.

    Args:
        model: The module.
        history: An entry per epoch: `epoch`, `train` and `validation`, each with `loss` and
            `all_metrics`.
        feature_columns: One for each input.
        label_columns: One for each output; the new columns are named after them.
        input_shapes: See `TorchEstimator`.
        optimizer: The optimizer in its final state.
        run_id: The name of the run.
        loss: See `TorchEstimator`.
        loss_constructors: The same.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **ModuleModel.DEFAULTS,
        "loss": None,
        "loss_constructors": None,
    }
