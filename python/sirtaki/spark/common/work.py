"""The work of an estimator's rank; without Spark, because ranks import none of it."""

from __future__ import annotations

from typing import Any

from sirtaki.data.row_groups import Group, total
from sirtaki.spark.common.parquet import Reader, groups, spans_of, train_steps, validation_steps
from sirtaki.spark.common.store import RemotePaths, Store


class Work:
    """The data and the work of each rank, without Spark objects, since it is sent to ranks.

    Attributes:
        values: The parameters by name, with the selected features.
        store: The store of all files.
        paths: The paths of this run.
        train: The row groups of the training data.
        validation: The row groups of the validation data.
        size: The number of ranks.
    """

    def __init__(
        self,
        values: dict[str, Any],
        paths: RemotePaths,
        train: list[Group],
        validation: list[Group],
        size: int,
    ) -> None:
        self.store: Store = values["store"]
        # The others do not concern training, or are sent in a form of their own.
        apart = ("store", "backend", "model", "optimizer")
        self.values = {name: value for name, value in values.items() if name not in apart}
        self.paths = paths
        self.train = train
        self.validation = validation
        self.size = size

    @staticmethod
    def of(values: dict[str, Any], size: int, idx: int | None) -> Work:
        """Inspect the store's data. Raises ValueError."""
        store: Store = values["store"]
        paths = store.to_remote(values["run_id"], idx)
        train = groups(store.fs, paths.train_data_path)
        there = store.is_parquet_dataset(paths.val_data_path) and values["validation"] != 0
        # In a fit on Parquet, validation data is used if requested or if it was written.
        held_out = groups(store.fs, paths.val_data_path) if there else []
        for path, part in ((paths.train_data_path, train), (paths.val_data_path, held_out)):
            if part and total(part) < size:
                raise ValueError(f"{path} has {total(part)} rows, fewer than the {size} ranks")
        return Work(values, paths, train, held_out, size)

    @property
    def seed(self) -> int:
        """Return the seed of shuffles and initial values."""
        return int(self.values["random_seed"] or 0)

    def columns(self) -> list[str]:
        """Return the columns to read."""
        weight = self.values["sample_weight_col"]
        names = [*self.values["feature_cols"], *self.values["label_cols"]]
        return list(dict.fromkeys([*names, *([weight] if weight else [])]))

    def train_reader(self, rank: int) -> Reader:
        """Return a reader of a rank's part of the training data."""
        seed = self.seed if self.values["shuffle"] else None
        return self._reader(self.train, rank, self.values["batch_size"], seed)

    def validation_reader(self, rank: int) -> Reader:
        """Return a reader of a rank's part of the validation data, in order."""
        size = self.values["val_batch_size"] or self.values["batch_size"]
        return self._reader(self.validation, rank, size, None)

    def _reader(
        self, groups_there: list[Group], rank: int, batch_size: int, seed: int | None
    ) -> Reader:
        return Reader(
            self.store.fs,
            spans_of(groups_there, rank, self.size),
            self.columns(),
            batch_size,
            seed,
            self.values["inmemory_cache_all"],
            self.values["transformation_fn"],
        )

    @property
    def train_steps(self) -> int:
        """Return the training batches of each rank in an epoch."""
        values = self.values
        given = values["train_steps_per_epoch"]
        return train_steps(total(self.train), values["batch_size"], self.size, given)

    def validation_steps(self, rank: int) -> int:
        """Return the validation batches of a rank."""
        reader = self.validation_reader(rank)
        given = self.values["validation_steps_per_epoch"]
        return validation_steps(reader.rows, reader.batch_size, given)


def kind_of(output: Any) -> tuple[str, int]:
    """Return the kind of number of a model's output, and the numbers per row."""
    return output.dtype.kind, int(output[:1].size)
