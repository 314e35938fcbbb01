"""`caffe.Net`: a net for scripts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Layer as NetLayer
from sirtaki_caffe.net.array_blob import Array, ArrayBlob, ParamBlob
from sirtaki_caffe.net.net import Net as Engine
from sirtaki_caffe.proto.formats import hdf5
from sirtaki_caffe.proto.schema import TEST, TRAIN
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import read_weights, write_weights
from sirtaki_caffe.pycaffe import mode


@dataclass(frozen=True)
class LayerView:
    """A layer, for scripts.

    Attributes:
        type: Its type, for example `Convolution`.
        blobs: Its weights and biases.
    """

    type: str
    blobs: list[ParamBlob]


class Net:
    """A net, its blobs and weights as NumPy arrays.

    `Net(prototxt, phase)`, `Net(prototxt, phase, weights=...)` or, as in old scripts,
    `Net(prototxt, weights, phase)`.

    Args:
        network_file: The net's text.
        arguments: The phase; or the weights' file and the phase.
        level: The level for selecting layers.
        stages: The stages for selecting layers.
        weights: A `.caffemodel` or `.caffemodel.h5`.
        phase: The phase by its name.

    Raises:
        CaffeError: A file cannot be read, or the net cannot be built.
    """

    def __init__(
        self,
        network_file: str | Path,
        *arguments: str | Path | int,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: str | Path | None = None,
        phase: int | None = None,
    ) -> None:
        for argument in arguments:
            if isinstance(argument, int):
                phase = argument
            else:
                weights = argument
        if phase not in (TRAIN, TEST):
            raise CaffeError("Net needs a phase: caffe.TRAIN or caffe.TEST")
        engine = Engine(
            read_net(Path(network_file)),
            phase=phase,
            level=level,
            stages=stages or (),
            seed=mode.next_seed(),
            keep_graphs=True,
            warn=mode.warn,
            file=network_file,
        )
        self._wrap(engine)
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def of(cls, engine: Engine) -> Net:
        """Return an existing net, such as a solver's."""
        net = cls.__new__(cls)
        net._wrap(engine)
        return net

    def _wrap(self, engine: Engine) -> None:
        self.engine = engine
        self.blobs = OrderedDict((name, ArrayBlob(blob)) for name, blob in engine.blobs.items())
        self.params = OrderedDict(
            (layer.name, _params_of(layer)) for layer in engine.layers if layer.params
        )
        self.layers = [
            LayerView(str(layer.proto.type), _params_of(layer)) for layer in engine.layers
        ]
        self._layer_names = [layer.name for layer in engine.layers]
        self._blob_names = list(self.blobs)
        self.layer_dict = OrderedDict(zip(self._layer_names, self.layers, strict=True))
        self.top_names = OrderedDict((layer.name, list(layer.proto.top)) for layer in engine.layers)
        self.bottom_names = OrderedDict(
            (layer.name, list(layer.proto.bottom)) for layer in engine.layers
        )
        self.inputs = [
            name for step in engine.steps if step.is_input for name in step.layer.proto.top
        ]
        self.outputs = list(engine.outputs)
        self._blobs = list(self.blobs.values())
        self._inputs = [self._blob_names.index(name) for name in self.inputs]
        self._outputs = [self._blob_names.index(name) for name in self.outputs]
        self.blob_loss_weights = OrderedDict(
            (name, engine.loss_weights.get(name, 0.0)) for name in self.blobs
        )

    def forward(
        self,
        blobs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Array,
    ) -> dict[str, Array]:
        """Run the net, or a part of it.

        Args:
            blobs: Blobs to return besides the outputs.
            start: The first layer that runs; the net's by default.
            end: The last layer that runs; its tops are returned instead of the outputs.
            inputs: Values of all of the net's inputs; default: the blobs' contents.

        Returns:
            Outputs by name, as views: the next forward writes to them.
        """
        first = 0 if start is None else self._index(start)
        last = None if end is None else self._index(end)
        wanted = [*(blobs or ()), *(self.outputs if end is None else self.top_names[end])]
        return self._forward(wanted, inputs, first, last)

    def _forward(
        self,
        wanted: Sequence[str],
        inputs: Mapping[str, Array],
        first: int = 0,
        last: int | None = None,
    ) -> dict[str, Array]:
        if inputs:
            self._write(inputs, self.inputs, "inputs", gradient=False)
        self.engine.forward(first, last)
        return {name: self._blob(name).data for name in wanted}

    def backward(
        self,
        diffs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **tops: Array,
    ) -> dict[str, Array]:
        """Run the gradients, from the end of the net or of a layer.

        Args:
            diffs: Blobs whose gradients to return besides the inputs'.
            start: The last layer in the net that runs.
            end: The first layer; its bottoms' gradients are returned instead of the inputs'.
            tops: Gradients of all of the net's outputs; default: the blobs' `diff`.

        Returns:
            Gradients by name, as views.
        """
        last = None if start is None else self._index(start)
        first = 0 if end is None else self._index(end)
        wanted = [*(diffs or ()), *(self.inputs if end is None else self.bottom_names[end])]
        return self._backward(wanted, tops, last, first)

    def _backward(
        self,
        wanted: Sequence[str],
        tops: Mapping[str, Array],
        last: int | None = None,
        first: int = 0,
    ) -> dict[str, Array]:
        if tops:
            self._write(tops, self.outputs, "outputs", gradient=True)
        self.engine.backward(last, first)
        return {name: self._blob(name).diff for name in wanted}

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Array) -> dict[str, Array]:
        """Run the net on any number of items, batch by batch.

        Args:
            blobs: Blobs to return besides the outputs.
            inputs: All items of each of the net's inputs.

        Returns:
            Outputs by name, one row per item.
        """
        return self._all(blobs or (), inputs)

    def _all(self, blobs: Sequence[str], inputs: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, list[Array]] = {}
        for batch in self._batches(inputs):
            for name, values in self._forward([*blobs, *self.outputs], batch).items():
                found.setdefault(name, []).extend(values.copy())
        return _first_rows(found, inputs)

    def forward_backward_all(
        self,
        blobs: Sequence[str] | None = None,
        diffs: Sequence[str] | None = None,
        **values: Array,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Run the net forwards and backwards on any number of items, batch by batch.

        Args:
            blobs: Blobs to return besides the outputs.
            diffs: Blobs whose gradients to return besides the inputs'.
            values: All items of each of the net's inputs, and gradients of each of its outputs.

        Returns:
            Outputs, and gradients, by name, one row per item.
        """
        inputs = {name: rows for name, rows in values.items() if name in self.inputs}
        tops = {name: rows for name, rows in values.items() if name not in self.inputs}
        found: dict[str, list[Array]] = {}
        gradients: dict[str, list[Array]] = {}
        none: dict[str, Array] = {}
        for batch, batch_tops in zip_longest(
            self._batches(inputs), self._batches(tops), fillvalue=none
        ):
            for name, rows in self._forward([*(blobs or ()), *self.outputs], batch).items():
                found.setdefault(name, []).extend(rows.copy())
            for name, rows in self._backward([*(diffs or ()), *self.inputs], batch_tops).items():
                gradients.setdefault(name, []).extend(rows.copy())
        return _first_rows(found, inputs), _first_rows(gradients, inputs)

    def reshape(self) -> None:
        """Recompute all shapes after inputs have changed theirs."""
        self.engine.reshape()

    def copy_from(self, weights: str | Path) -> None:
        """Copy weights from a file into the layers with the same names."""
        before = len(self.engine.learnable)
        self.engine.load(read_weights(Path(weights)))
        if len(self.engine.learnable) != before:  # a BatchNorm has received a scale from the file
            self._wrap(self.engine)

    def load_hdf5(self, weights: str | Path) -> None:
        """Copy weights from an HDF5 file; `copy_from` supports both formats."""
        self.copy_from(weights)

    def save(self, path: str | Path) -> None:
        """Write the weights as a `.caffemodel`."""
        write_weights(Path(path), self.engine.proto, self.engine.saved())

    def save_hdf5(self, path: str | Path) -> None:
        """Write the weights as HDF5, whatever the name; `copy_from` detects the format."""
        names = [layer.name for layer in self.engine.proto.layer]
        hdf5.write_layers(path, names, self.engine.saved())

    def share_with(self, other: Net) -> None:
        """Use another net's weights, in the same memory."""
        self.engine.share_weights(other.engine)

    def clear_param_diffs(self) -> None:
        """Set the weights' gradients to zero."""
        self.engine.clear_diffs()

    def set_input_arrays(self, data: Array, labels: Array) -> None:
        """Set the items of a MemoryData layer, the net's first."""
        layer = self.engine.layers[0]
        if layer.proto.type != "MemoryData":
            raise CaffeError("set_input_arrays needs a net whose first layer is a MemoryData")
        layer.reset(data, labels)  # type: ignore[attr-defined]

    def before_forward(self, run: Callable[[int], object]) -> None:
        """Call a function with the number of each layer before it runs forward."""
        self.engine.watchers.before_forward.append(run)

    def after_forward(self, run: Callable[[int], object]) -> None:
        """Call a function with the number of each layer after it ran forward."""
        self.engine.watchers.after_forward.append(run)

    def before_backward(self, run: Callable[[int], object]) -> None:
        """Call a function with the number of each layer before it runs backward."""
        self.engine.watchers.before_backward.append(run)

    def after_backward(self, run: Callable[[int], object]) -> None:
        """Call a function with the number of each layer after it ran backward."""
        self.engine.watchers.after_backward.append(run)

    def _top_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that a layer makes."""
        return [self._blob_names.index(name) for name in self.top_names[self._layer_names[layer]]]

    def _bottom_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that a layer reads."""
        names = self.bottom_names[self._layer_names[layer]]
        return [self._blob_names.index(name) for name in names]

    def _index(self, layer: str) -> int:
        try:
            return self._layer_names.index(layer)
        except ValueError:
            raise CaffeError(f"the net has no layer '{layer}'") from None

    def _blob(self, name: str) -> ArrayBlob:
        try:
            return self.blobs[name]
        except KeyError:
            raise CaffeError(f"the net has no blob '{name}'") from None

    def _write(
        self, values: Mapping[str, Array], names: Sequence[str], what: str, *, gradient: bool
    ) -> None:
        if set(values) != set(names):
            raise CaffeError(f"{sorted(values)} given, the net's {what} are {sorted(names)}")
        for name, array in values.items():
            blob = self.blobs[name]
            if np.shape(array)[:1] != blob.shape[:1]:
                raise CaffeError(
                    f"'{name}' has shape {list(np.shape(array))}, its blob {list(blob.shape)}"
                )
            (blob.diff if gradient else blob.data)[...] = array

    def _batches(self, values: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Yield batches of the blobs' size; the last one is padded with zeros."""
        if not values:
            return
        size = self._blob(next(iter(values))).shape[0]
        count = len(next(iter(values.values())))
        for start in range(0, count, size):
            batch = {}
            for name, rows in values.items():
                part = np.asarray(rows[start : start + size])
                missing = [(0, size - len(part))] + [(0, 0)] * (part.ndim - 1)
                batch[name] = np.pad(part, missing)
            yield batch


def _params_of(layer: NetLayer) -> list[ParamBlob]:
    return [ParamBlob(param) for param in layer.params]


def _first_rows(
    found: Mapping[str, Iterable[Array]], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    count = len(next(iter(inputs.values())))
    return {name: np.asarray(rows)[:count] for name, rows in found.items()}
