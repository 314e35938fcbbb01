"""The base of trained models that are PyTorch modules."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from sirtaki.spark.common.estimator import SparkModel
from sirtaki.spark.messages import pickled
from sirtaki.spark.torch.losses import as_list, tensor


class ModuleModel(SparkModel):
    """A module as a transformer: it is called with a tensor for each feature column."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {**SparkModel.DEFAULTS, "input_shapes": None}

    def _predictor(self, values: Mapping[str, Any]) -> Any:
        return _predictor(values["model"], values["input_shapes"])


def _predictor(model: torch.nn.Module, shapes: Any) -> Any:
    """Return a function that makes, within a task, the prediction function of a module."""
    data = pickled(model.cpu())

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
