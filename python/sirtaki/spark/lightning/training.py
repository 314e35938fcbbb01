"""The work of a rank of Lightning's `TorchEstimator`."""

from __future__ import annotations

import io
import itertools
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

import sirtaki.torch as hvd
from sirtaki.lightning import SirtakiStrategy
from sirtaki.spark.common.parquet import Reader
from sirtaki.spark.common.work import Work
from sirtaki.spark.torch.losses import as_list, losses_of, tensors, total_loss

Entry = dict[str, Any]


def rank_function(work: Work, pickled: bytes) -> Callable[[], dict[str, Any] | None]:
    """Return the function of a rank. pickled: the module."""

    def train() -> dict[str, Any] | None:
        hvd.init()
        return _train(work, pickle.loads(pickled))

    return train


class Wrapped(LightningModule):  # type: ignore[misc]
    """A plain module with its optimizer and losses, as a LightningModule.

    values: the estimator's parameters.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Any, values: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self._optimizer = optimizer
        names = ("feature_cols", "label_cols", "input_shapes", "label_shapes", "loss_weights")
        self._values = {name: values[name] for name in names}
        self._losses = losses_of(values["loss"], len(values["label_cols"]))

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Call the module."""
        return self.model(*inputs)

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = self._loss(batch)
        self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        """Log the loss of a batch."""
        size = len(next(iter(batch.values())))
        self.log("val_loss", self._loss(batch), on_epoch=True, sync_dist=True, batch_size=size)

    def configure_optimizers(self) -> Any:
        """Return the given optimizer."""
        return self._optimizer

    def _loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        values = self._values
        inputs = tensors(batch, values["feature_cols"], values["input_shapes"])
        labels = tensors(batch, values["label_cols"], values["label_shapes"])
        outputs = as_list(self(*inputs))
        return total_loss(outputs, labels, self._losses, values["loss_weights"], None)


class _Batches(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
    """A rank's batches, one epoch per iteration; each maps columns to tensors.

    steps: the number of full batches; None: all rows once.
    """

    def __init__(self, reader: Reader, steps: int | None, first: int) -> None:
        self._reader = reader
        self._steps = steps
        self._epochs = itertools.count(first)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if self._steps is None:
            batches = self._reader.once()
        else:
            batches = self._reader.steps(next(self._epochs), self._steps)
        for rows in batches:
            yield {name: torch.from_numpy(column) for name, column in rows.items()}


class _Keep(Callback):  # type: ignore[misc]
    """Records each epoch, and saves it in the store."""

    def __init__(self, work: Work, history: list[Entry], folder: str) -> None:
        self._work = work
        self._history = history
        self._path = Path(folder, "checkpoint.ckpt")

    def on_train_epoch_end(self, trainer: Any, _: Any) -> None:
        """See Lightning."""
        numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
        held = {name: value for name, value in numbers.items() if name.startswith("val")}
        train = {name: value for name, value in numbers.items() if name not in held}
        entry = {"epoch": trainer.current_epoch, "train": train}
        self._history.append({**entry, "validation": held} if held else entry)
        if not self._work.paths.saving_runs:
            return
        trainer.save_checkpoint(self._path)
        if hvd.rank() == 0:
            saved = {"trainer": self._path.read_bytes(), "history": self._history}
            self._work.store.write(self._work.paths.checkpoint_path, pickle.dumps(saved))


def _train(work: Work, module: LightningModule) -> dict[str, Any] | None:
    values, rank = work.values, hvd.rank()
    history, checkpoint = _last(work)
    validation = work.validation_reader(rank) if work.validation else None
    # Equal on all ranks, since one with an extra batch would wait in Lightning's reductions.
    held = validation and min(hvd.allgather_object(work.validation_steps(rank)))
    train = _Batches(work.train_reader(rank), work.train_steps, len(history))
    with tempfile.TemporaryDirectory() as folder:
        resume = None
        if checkpoint is not None:
            resume = Path(folder, "resume.ckpt")
            resume.write_bytes(checkpoint)
        own = {
            "strategy": SirtakiStrategy(scale_lr=True),
            "accelerator": "auto" if values["use_gpu"] else "cpu",
            "devices": 1,
            "max_epochs": values["epochs"],
            "callbacks": [*values["callbacks"], _Keep(work, history, folder)],
            "logger": False if values["logger"] is None else values["logger"],
            "log_every_n_steps": values["log_every_n_steps"],
            "limit_train_batches": work.train_steps,
            "limit_val_batches": held or 0,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
        }
        trainer = Trainer(**{**own, **(values["trainer_args"] or {})})
        trainer.fit(
            module,
            _loader(train),
            None if validation is None else _loader(_Batches(validation, None, 0)),
            ckpt_path=resume,
        )
    if rank != 0:
        return None
    state = {name: each.cpu() for name, each in module.state_dict().items()}
    return {"model": state, "history": history}


def _loader(batches: _Batches) -> Any:
    return torch.utils.data.DataLoader(batches, batch_size=None)


def _last(work: Work) -> tuple[list[Entry], bytes | None]:
    """Return the run's history and its Lightning checkpoint, on all ranks."""
    store, path = work.store, work.paths.checkpoint_path
    found = store.read(path) if hvd.rank() == 0 and store.exists(path) else None
    found = hvd.broadcast_object(found, root_rank=0)
    if found is None:
        return [], None
    saved = pickle.load(io.BytesIO(found))
    return saved["history"], saved["trainer"]
