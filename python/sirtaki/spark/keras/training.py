"""The work of a rank of `KerasEstimator`."""

from __future__ import annotations

import itertools
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.spark.common.parquet import Reader
from sirtaki.spark.common.work import Work
from sirtaki.spark.keras import models

Rows = Mapping[str, Any]


def rank_function(
    work: Work, model: bytes, sent: bytes, backend: str
) -> Callable[[], dict[str, Any] | None]:
    """Return the function of a rank.

    model: a file of Keras. sent: optimizer, loss, metrics, callbacks and custom objects, pickled.
    backend: Keras's.
    """

    def train() -> dict[str, Any] | None:
        models.choose_backend(backend)
        import sirtaki.keras as hvd

        hvd.init()
        # Its functions may import Keras.
        return _Training(work, model, pickle.loads(sent)).run()

    return train


class _Training:
    """One rank's training. sent: the unpickled `sent` of `rank_function`, by name."""

    def __init__(self, work: Work, model: bytes, sent: dict[str, Any]) -> None:
        import keras

        import sirtaki.keras as hvd

        self._keras, self._hvd = keras, hvd
        self._work = work
        self._values = work.values
        self._sent = sent
        self._objects = sent["custom_objects"]
        if work.values["random_seed"] is not None:
            keras.utils.set_random_seed(work.seed + hvd.rank())
        self._history: dict[str, list[float]] = {}
        self._model = self._resumed() or self._compiled(model)

    def _compiled(self, data: bytes) -> Any:
        load = self._keras.models.load_model
        model = models.from_bytes(data, self._objects, load, compile=False)
        sent = {
            name: models.restored(self._sent[name], self._objects)
            for name in ("optimizer", "loss", "metrics")
        }
        compression = self._values["gradient_compression"] or self._hvd.Compression.none
        weighted = sent["metrics"] if self._values["sample_weight_col"] else None
        model.compile(
            optimizer=self._hvd.DistributedOptimizer(
                self._keras.optimizers.get(sent["optimizer"]), compression=compression
            ),
            loss=sent["loss"],
            loss_weights=self._values["loss_weights"],
            metrics=None if weighted else sent["metrics"],
            weighted_metrics=weighted,
        )
        return model

    def _resumed(self) -> Any:
        """Return the model of the run's checkpoint, or None."""
        store, paths = self._work.store, self._work.paths
        found = None
        if self._hvd.rank() == 0 and store.exists(paths.checkpoint_path):
            history = json.loads(store.read(f"{paths.run_path}/history.json"))
            found = store.read(paths.checkpoint_path), history
        found = broadcast_object(found, root_rank=0)
        if found is None:
            return None
        data, self._history = found
        named = models.functions_of([self._sent["loss"], self._sent["metrics"]])
        return models.from_bytes(data, {**named, **self._objects}, self._hvd.load_model)

    def run(self) -> dict[str, Any] | None:
        """Train all epochs; return the result of rank 0."""
        done = len(next(iter(self._history.values()), []))
        epochs = self._values["epochs"]
        with tempfile.TemporaryDirectory() as folder:
            best = self._best(folder)
            if done < epochs:
                self._fit(done, epochs, best)
            if self._hvd.rank() != 0:
                return None
            path = Path(best.filepath) if best is not None else Path()
            data = path.read_bytes() if path.is_file() else models.to_bytes(self._model)
        return {"model": data, "history": self._history}

    def _best(self, folder: str) -> Any:
        """Return the user's best-model callback, with a file of its own."""
        callback = self._sent["checkpoint_callback"]
        if callback is not None:
            callback.filepath = f"{folder}/best.keras"
        return callback

    def _fit(self, done: int, epochs: int, best: Any) -> None:
        own = [
            self._hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            self._hvd.callbacks.MetricAverageCallback(),
        ]
        callbacks = [*own, *self._sent["callbacks"], *([] if best is None else [best])]
        keep = self._keras.callbacks.LambdaCallback(on_epoch_end=self._keep)
        validation = self._work.validation_reader(self._hvd.rank())
        steps = self._work.validation_steps(self._hvd.rank())
        self._model.fit(
            self._train_batches(done),
            initial_epoch=done,
            epochs=epochs,
            steps_per_epoch=self._work.train_steps,
            validation_data=self._validation_batches(validation, steps) if steps else None,
            validation_steps=steps or None,
            callbacks=[*callbacks, keep],
            verbose=2 if self._values["verbose"] and self._hvd.rank() == 0 else 0,
        )

    def _train_batches(self, first: int) -> Iterator[Any]:
        reader = self._work.train_reader(self._hvd.rank())
        for epoch in itertools.count(first):
            for rows in reader.steps(epoch, self._work.train_steps):
                yield self._given(rows)

    def _validation_batches(self, reader: Reader, steps: int) -> Iterator[Any]:
        while True:
            for rows in itertools.islice(reader.once(), steps):
                yield self._given(rows)

    def _given(self, rows: Rows) -> Any:
        """Return a batch in the form that `fit` accepts."""
        values = self._values
        names = values["feature_cols"]
        inputs = models.inputs_of(self._model, [rows[name] for name in names], names)
        shapes = values["label_shapes"] or [None] * len(values["label_cols"])
        labels = [
            rows[name] if shape is None else rows[name].reshape(shape)
            for name, shape in zip(values["label_cols"], shapes, strict=True)
        ]
        labels = models.labels_of(self._model, labels)
        given = inputs, labels[0] if len(labels) == 1 else tuple(labels)
        weight = values["sample_weight_col"]
        return given if weight is None else (*given, rows[weight])

    def _keep(self, epoch: int, logs: Mapping[str, Any] | None) -> None:
        """Record an epoch, and save the model on rank 0."""
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        paths, store = self._work.paths, self._work.store
        if self._hvd.rank() == 0 and paths.saving_runs:
            store.write(paths.checkpoint_path, models.to_bytes(self._model))
            store.write_text(f"{paths.run_path}/history.json", json.dumps(self._history))
