"""What a rank of an estimator has to do; without Spark, as ranks import nothing of it."""

from __future__ import annotations

from typing import Any

from sirtaki.data.row_groups import Group, total
from sirtaki.spark.common.parquet import Reader, groups
from sirtaki.spark.common.plan import spans_of, train_steps, validation_steps
from sirtaki.spark.common.store import RemotePaths, Store


class Work:
    """What each rank is to read and to do, without anything of Spark: it travels to ranks.

    Attributes:
        values: The parameters by name, with the features that were found.
        store: Where everything is.
        paths: Those of this run.
        train: The row groups of the training data.
        validation: Those of the validation data.
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
        # The others have nothing to do with training, or travel in a form of their own.
        apart = ("store", "backend", "model", "optimizer")
        self.values = {name: value for name, value in values.items() if name not in apart}
        self.paths = paths
        self.train = train
        self.validation = validation
        self.size = size

    @staticmethod
    def of(values: dict[str, Any], size: int, idx: int | None) -> Work:
        """Look at what is in the store. Raises ValueError."""
        store: Store = values["store"]
        paths = store.to_remote(values["run_id"], idx)
        train = groups(store, paths.train_data_path)
        there = store.is_parquet_dataset(paths.val_data_path) and values["validation"] != 0
        # Of a fit on Parquet, validation data count where they are asked for or have been written.
        held_out = groups(store, paths.val_data_path) if there else []
        for path, part in ((paths.train_data_path, train), (paths.val_data_path, held_out)):
            if part and total(part) < size:
                raise ValueError(f"{path} has {total(part)} rows, fewer than the {size} ranks")
        return Work(values, paths, train, held_out, size)

    @property
    def seed(self) -> int:
        """What shuffles and starting values are made of."""
        return int(self.values["random_seed"] or 0)

    def columns(self) -> list[str]:
        """Return the columns that are read."""
        weight = self.values["sample_weight_col"]
        names = [*self.values["feature_cols"], *self.values["label_cols"]]
        return list(dict.fromkeys([*names, *([weight] if weight else [])]))

    def train_reader(self, rank: int) -> Reader:
        """Return what reads a rank's part of the training data."""
        seed = self.seed if self.values["shuffle"] else None
        return self._reader(self.train, rank, self.values["batch_size"], seed)

    def validation_reader(self, rank: int) -> Reader:
        """Return what reads a rank's part of the validation data, in order."""
        size = self.values["val_batch_size"] or self.values["batch_size"]
        return self._reader(self.validation, rank, size, None)

    def _reader(
        self, groups_there: list[Group], rank: int, batch_size: int, seed: int | None
    ) -> Reader:
        return Reader(
            self.store,
            spans_of(groups_there, rank, self.size),
            self.columns(),
            batch_size,
            seed,
            self.values["inmemory_cache_all"],
            self.values["transformation_fn"],
        )

    @property
    def train_steps(self) -> int:
        """How many batches each rank trains on in an epoch."""
        values = self.values
        given = values["train_steps_per_epoch"]
        return train_steps(total(self.train), values["batch_size"], self.size, given)

    def validation_steps(self, rank: int) -> int:
        """How many batches a rank validates on."""
        reader = self.validation_reader(rank)
        given = self.values["validation_steps_per_epoch"]
        return validation_steps(reader.rows, reader.batch_size, given)


def kind_of(output: Any) -> tuple[str, int]:
    """Return NumPy's kind of number of a model's output, and how many there are a row."""
    return output.dtype.kind, int(output[:1].size)
