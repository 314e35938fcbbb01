"""The work of a rank of `TorchEstimator`: training, validation and saving."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import sirtaki.torch as hvd
from sirtaki.spark.common.work import Work, kind_of
from sirtaki.spark.torch.losses import (
    alike,
    as_list,
    by_sample,
    losses_of,
    tensor,
    tensors,
    total_loss,
)
from sirtaki.spark.torch.metrics import Metric, metrics_of

Rows = Mapping[str, Any]
Entry = dict[str, Any]


def rank_function(work: Work, pickled: bytes) -> Callable[[], dict[str, Any] | None]:
    """Return the function of a rank. pickled: model and optimizer together."""

    def train() -> dict[str, Any] | None:
        hvd.init()
        return _Training(work, *pickle.loads(pickled)).run()

    return train


class _Training:
    """One rank's training."""

    def __init__(
        self, work: Work, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        values = work.values
        self._work = work
        self._values = values
        self._device = self._own_device(bool(values["use_gpu"]))
        self._model = model.to(self._device)
        self._plain = optimizer
        made = values["loss_constructors"]
        loss = values["loss"] if made is None else [each() for each in made]
        self._losses = losses_of(loss, len(values["label_cols"]))
        self._weight = values["sample_weight_col"]
        self._batch_losses = [by_sample(each) for each in self._losses] if self._weight else []
        self._metrics = metrics_of(values["metrics"], values["label_cols"])
        self._history: list[Entry] = []
        self._outputs: list[tuple[str, int]] = []
        self._reader = work.train_reader(hvd.rank())
        self._resume()
        # Horovod's estimator does this, and users choose the rate for one process.
        _scale(optimizer, hvd.size())
        compression = values["gradient_compression"] or hvd.Compression.none
        self._optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=compression,
            backward_passes_per_step=values["backward_passes_per_step"],
        )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self._optimizer, root_rank=0)

    @staticmethod
    def _own_device(wanted: bool) -> torch.device:
        has = wanted and torch.cuda.is_available()
        if len({*hvd.allgather_object(has)}) > 1:
            raise RuntimeError("All ranks don't have same device type!")
        return (
            torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
            if has
            else (torch.device("cpu"))
        )

    def _resume(self) -> None:
        """Continue from the run's checkpoint, if there is one."""
        store, path = self._work.store, self._work.paths.checkpoint_path
        found = store.read(path) if hvd.rank() == 0 and store.exists(path) else None
        found = hvd.broadcast_object(found, root_rank=0)
        if found is None:
            return
        saved = torch.load(io.BytesIO(found), weights_only=True)
        self._model.load_state_dict(saved["model"])
        self._plain.load_state_dict(saved["optimizer"])
        self._history = saved["history"]
        self._outputs = [(str(kind), int(width)) for kind, width in saved["outputs"]]

    def run(self) -> dict[str, Any] | None:
        """Train all epochs; return the result of rank 0."""
        for epoch in range(len(self._history), self._values["epochs"]):
            entry = {"epoch": epoch, "train": self._train(epoch)}
            if self._work.validation:
                entry["validation"] = self._validate()
            self._history.append(entry)
            if hvd.rank() == 0:
                if self._values["verbose"]:
                    print(f"epoch {epoch}: {entry}", flush=True)
                self._save()
            for callback in self._values["callbacks"]:
                callback(entry)
        return self._state() if hvd.rank() == 0 else None

    def _train(self, epoch: int) -> Entry:
        self._model.train()
        steps = self._work.train_steps
        passes = self._values["backward_passes_per_step"]
        sums = _Sums(self._metrics)
        batches = self._reader.steps(epoch, steps)
        for number, rows in enumerate(batches, 1):
            steps_now = number % passes == 0 or number == steps
            if self._values["train_minibatch_fn"] is not None:
                loss = self._by_users_function(rows)
            else:
                loss = self._step(rows, passes, sums)
            if steps_now:
                self._optimizer.step()
                self._optimizer.zero_grad()
            sums.add_loss(loss, self._work.values["batch_size"])
        return sums.averaged("train")

    def _by_users_function(self, rows: Rows) -> float:
        """Run the user's function in place of forward, loss and backward."""
        inputs, labels, weights = self._parts(rows)
        function = self._values["train_minibatch_fn"]
        loss = function(self._model, self._optimizer, inputs, labels, weights)
        return float(loss)

    def _step(self, rows: Rows, passes: int, sums: _Sums) -> float:
        outputs, labels, loss = self._forward(rows)
        (loss / passes).backward()  # type: ignore[no-untyped-call]
        sums.add_metrics(outputs, labels)
        return float(loss.detach())

    def _forward(self, rows: Rows) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        inputs, labels, weights = self._parts(rows)
        outputs = as_list(self._model(*inputs))
        if len(outputs) != len(labels):
            raise ValueError(
                f"the model has {len(outputs)} outputs, and there are {len(labels)} label columns"
            )
        if not self._outputs:
            self._outputs = [kind_of(each.detach().cpu().numpy()) for each in outputs]
        losses = self._losses if weights is None else self._batch_losses
        loss = total_loss(outputs, labels, losses, self._values["loss_weights"], weights)
        return outputs, labels, loss

    def _parts(
        self, rows: Rows
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]:
        values = self._values
        inputs = tensors(rows, values["feature_cols"], values["input_shapes"])
        labels = tensors(rows, values["label_cols"], values["label_shapes"])
        weights = None if self._weight is None else tensor(rows[self._weight]).float()
        placed = None if weights is None else weights.to(self._device)
        return self._moved(inputs), self._moved(labels), placed

    def _moved(self, each: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return [one.to(self._device) for one in each]

    def _validate(self) -> Entry:
        self._model.eval()
        reader = self._work.validation_reader(hvd.rank())
        sums = _Sums(self._metrics)
        count = self._work.validation_steps(hvd.rank())
        with torch.no_grad():
            for _, rows in zip(range(count), reader.once(), strict=False):
                outputs, labels, loss = self._forward(rows)
                sums.add_loss(float(loss), len(outputs[0]))
                sums.add_metrics(outputs, labels)
        return sums.averaged("validation")

    def _state(self) -> dict[str, Any]:
        """Return the state to save, in the form of single-process training."""
        _scale(self._optimizer, 1 / hvd.size())
        try:
            return {
                "model": {name: each.cpu() for name, each in self._model.state_dict().items()},
                "optimizer": self._plain_state(),
                "history": self._history,
                "outputs": [list(each) for each in self._outputs],
            }
        finally:
            _scale(self._optimizer, hvd.size())

    def _plain_state(self) -> dict[str, Any]:
        # Without the compression's additions. Copied, because the rates are about to change again.
        buffer = io.BytesIO()
        torch.save(torch.optim.Optimizer.state_dict(self._optimizer), buffer)
        return dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))

    def _save(self) -> None:
        if not self._work.paths.saving_runs:
            return
        buffer = io.BytesIO()
        torch.save(self._state(), buffer)
        self._work.store.write(self._work.paths.checkpoint_path, buffer.getvalue())


def _scale(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] *= factor


class _Sums:
    """Sums of loss and metrics over batches, averaged over samples and ranks."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._numbers = np.zeros(1 + len(self._metrics))
        self._rows = 0.0
        self._seen = 0.0

    def add_loss(self, loss: float, rows: int) -> None:
        """Add the mean loss of a batch."""
        self._numbers[0] += loss * rows
        self._rows += rows

    def add_metrics(self, outputs: list[torch.Tensor], labels: list[torch.Tensor]) -> None:
        """Call the metrics on a batch."""
        if not self._metrics:
            return
        rows = len(outputs[0])
        self._seen += rows
        with torch.no_grad():
            shaped = [alike(*each) for each in zip(labels, outputs, strict=True)]
            for number, metric in enumerate(self._metrics, 1):
                self._numbers[number] += metric.of(outputs, shaped) * rows

    def averaged(self, what: str) -> Entry:
        """Return the means over all ranks."""
        mine = torch.tensor([*self._numbers, self._rows, self._seen], dtype=torch.float64)
        total = hvd.allreduce(mine, op=hvd.Sum, name=f"spark.{what}").tolist()
        *numbers, rows, seen = total
        found = {
            metric.name: value / max(seen, 1)
            for metric, value in zip(self._metrics, numbers[1:], strict=True)
        }
        return {"loss": numbers[0] / max(rows, 1), "all_metrics": found}
