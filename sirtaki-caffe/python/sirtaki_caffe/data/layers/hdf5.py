"""HDF5Data and HDF5Output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from sirtaki_caffe.data.layers.base import DataLayer
from sirtaki_caffe.data.order import Deal, FileOrder, seed_of
from sirtaki_caffe.data.stores.hdf5_files import arrays_of, shapes_of
from sirtaki_caffe.data.stores.lists import read_file_list
from sirtaki_caffe.errors import CaffeError, needed
from sirtaki_caffe.layers.base import Layer, Shape, layer


@layer("HDF5Data")
class HDF5Data(DataLayer):
    """Rows of the datasets named like the tops, from the files that a text file lists.

    Memory holds one file at a time. Rows are distributed to the processes like Data's records. With
    `shuffle`, files and the rows within a file are reordered in each round, equally in all
    processes.
    """

    tops: ClassVar[tuple[int, int | None]] = (1, None)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Read the sizes of all files."""
        del bottoms
        param = self.proto.hdf5_data_param
        if not param.batch_size:
            raise self.error("batch_size must be at least 1")
        if self.proto.HasField("transform_param"):
            raise self.error("transform_param has no effect here: transform the file's data")
        self._batch = int(param.batch_size)
        self._names = list(self.proto.top)
        self._deal = Deal(param.source, self.context.world)
        self._seed = seed_of(self.context.shared_seed, self.name)
        self._taken = 0
        self._loaded = -1
        try:
            self._files = read_file_list(Path(self._deal.source))
            shapes = [shapes_of(file, self._names) for file in self._files]
        except CaffeError as error:
            raise self.error(str(error)) from error
        self._rows = [of_file[0][0] for of_file in shapes]
        self._shapes: list[Shape] = [(self._batch, *shape[1:]) for shape in shapes[0]]
        for file, found in zip(self._files, shapes, strict=True):
            if [shape[1:] for shape in found] != [shape[1:] for shape in shapes[0]]:
                raise self.error(
                    f"{file}: its rows have other shapes than those of {self._files[0]}"
                )
        for shape in self._shapes:
            self.check_size(shape)
        self._begin()

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a batch of the first file's rows."""
        del bottoms
        return self._shapes

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next batch."""
        del bottoms
        tops = [np.empty(shape, self.numeric) for shape in self._shapes]
        for place in range(self._batch):
            file, row = self._order.place(self._deal.number(self._taken + place))
            for top, array in zip(tops, self._arrays_of(file), strict=True):
                top[place] = array[row]
        self._taken += self._batch
        return [self.tensor(top) for top in tops]

    def position(self) -> Any:
        """Return the number of delivered rows, and the seed by which they are shuffled."""
        return {"items": self._taken, "seed": self._seed}

    def restore(self, position: Any) -> None:
        """See the base class."""
        self._taken, self._seed = self.read_position(position)
        self._begin()

    def _begin(self) -> None:
        shuffled = self.proto.hdf5_data_param.shuffle
        self._order = FileOrder(self._rows, self._seed if shuffled else None)

    def _arrays_of(self, file: int) -> list[np.ndarray]:
        """Return the datasets of a file; the previous file's are dropped."""
        if file != self._loaded:
            self._arrays = []
            try:
                self._arrays = arrays_of(self._files[file], self._names, self.numeric)
            except CaffeError as error:
                raise self.error(str(error)) from error
            if len(self._arrays[0]) != self._rows[file]:
                raise self.error(f"{self._files[file]} has changed since the net was built")
            self._loaded = file
        return self._arrays


@layer("HDF5Output")
class HDF5Output(Layer):
    """Writes its bottoms as the datasets "data" and "label"; each forward appends a batch."""

    bottoms: ClassVar[tuple[int, int | None]] = (2, 2)
    tops: ClassVar[tuple[int, int | None]] = (0, 0)
    no_gradient_to: ClassVar[tuple[int, ...]] = (0, 1)
    keeps_means = True

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Start a new file."""
        h5py = needed("h5py")
        name = self.proto.hdf5_output_param.file_name
        if bottoms[0][:1] != bottoms[1][:1]:
            raise self.error(f"{bottoms[0][0]} items of data, {bottoms[1][0]} labels")
        try:
            self._file = h5py.File(name, "w")
        except OSError as error:
            raise self.error(f"cannot write '{name}': {error}") from error
        for dataset, shape in zip(("data", "label"), bottoms, strict=True):
            kind = "f8" if self.context.dtype == torch.float64 else "f4"
            most = (None, *shape[1:])
            self._file.create_dataset(dataset, (0, *shape[1:]), kind, maxshape=most)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return no shapes: it has no tops."""
        del bottoms
        return []

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Write a batch."""
        for dataset, blob in zip(("data", "label"), bottoms, strict=True):
            written = self._file[dataset]
            written.resize(len(written) + len(blob), axis=0)
            written[-len(blob) :] = blob.detach().cpu().numpy()
        self._file.flush()
        return []

    def close(self) -> None:
        """Close the file."""
        self._file.close()
