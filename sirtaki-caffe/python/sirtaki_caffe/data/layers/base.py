"""The shared parts of all data layers."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from sirtaki_caffe.data.order import Deal, draws, seed_of
from sirtaki_caffe.data.transform import Cut, Transformer
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Layer, Shape

_LARGEST_BLOB = (1 << 31) - 1  # numbers, as in Caffe
_MOST_ITEMS = 1 << 48
_SEEDS = 1 << 64
_MOST_AHEAD = 64  # batches
_MOST_THREADS = 4


class DataLayer(Layer):
    """A layer without bottoms, whose position can be saved and restored."""

    bottoms: ClassVar[tuple[int, int | None]] = (0, 0)

    @property
    def phase(self) -> int:
        """TRAIN or TEST."""
        return int(self.proto.phase if self.proto.HasField("phase") else self.context.phase)

    def position(self) -> Any:
        """Return its position for JSON; None: it has none."""
        return None

    def restore(self, position: Any) -> None:
        """Continue from the position of a layer with the same parameters.

        Args:
            position: The value of its `position`.
        """
        del position

    def read_position(self, position: Any) -> tuple[int, int]:
        """Return the items and the seed of a position, which may come from any file.

        Raises:
            LayerError: It has none.
        """
        given = position if isinstance(position, dict) else {}
        items, seed = given.get("items"), given.get("seed")
        if not isinstance(items, int) or not isinstance(seed, int):
            raise self.error(f"{str(position)[:80]!r} is no position in its data")
        if not (0 <= items < _MOST_ITEMS and 0 <= seed < _SEEDS):
            raise self.error(f"{str(position)[:80]!r} is no position in its data")
        return items, seed

    def close(self) -> None:
        """End its threads and close its files; it cannot be used afterwards."""

    def check_size(self, shape: Sequence[int]) -> None:
        """Refuse a blob with a negative side, or larger than Caffe allows.

        Raises:
            LayerError: The blob is invalid.
        """
        count = int(np.prod([int(n) for n in shape], dtype=object))
        shown = " ".join(map(str, shape))
        if min(shape, default=0) < 0:
            raise self.error(f"a top of shape {shown}")
        if count > _LARGEST_BLOB:
            raise self.error(f"a top of shape {shown} has more than 2^31 - 1 numbers")

    @property
    def numeric(self) -> np.dtype[Any]:
        """Return the net's type of numbers, for NumPy."""
        return np.dtype("f8" if self.context.dtype == torch.float64 else "f4")

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """Return an array as a blob of the net's type; the blob owns its memory."""
        return torch.from_numpy(array).to(self.context.dtype)


class Item(NamedTuple):
    """The contents of an item before decoding.

    Args:
        number: Its number in the global sequence of items.
        name: Its name for errors: "record '00012'", "line 7".
        content: The content from the layer's `read`.
    """

    number: int
    name: str
    content: Any


class ImageLayer(DataLayer, abc.ABC):
    """A layer of images and labels that are read, decoded and transformed ahead in threads."""

    tops: ClassVar[tuple[int, int | None]] = (1, 2)
    #: The source file named in log lines.
    source_file: ClassVar[str]

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Open the source; the tops have the first item's shape."""
        del bottoms
        param = self.param()
        self._prefetcher: Prefetcher[list[Item], list[torch.Tensor]] | None = None
        self.batch = int(param.batch_size)
        if not self.batch:
            raise self.error("batch_size must be at least 1")
        if not param.source:
            raise self.error("it has no source")
        self.deal = Deal(param.source, self.context.world)
        self.seed = seed_of(self.context.shared_seed, self.name)
        self._taken = 0  # number of items delivered
        try:
            self.transformer = Transformer(self.proto.transform_param, self.phase, self.numeric)
            self.open(self.deal.source)
        except CaffeError as error:
            raise self.error(str(error)) from error
        cut, self._label = self._item(self._read_item(0))
        self._shape = cut.pixels.shape
        shown = ",".join(map(str, (self.batch, *self._shape)))
        self.context.log(self.source_file, f"output data size: {shown}")
        self.check_size((self.batch, *self._shape))

    @abc.abstractmethod
    def param(self) -> Any:
        """The layer's own message, with source and batch_size."""

    @abc.abstractmethod
    def open(self, source: str) -> None:
        """Open the source; CaffeError if it cannot be used."""

    @abc.abstractmethod
    def read(self, number: int) -> tuple[str, Any]:
        """Read an item of the global sequence: its name for errors, and its content.

        Called by one thread at a time, with increasing numbers except after `restore`.
        """

    @abc.abstractmethod
    def made(self, content: Any, random: np.random.Generator) -> tuple[Cut, Any]:
        """Return the image part for the item, and its label; called by several threads.

        Args:
            content: The content from `read`.
            random: The item's random generator.
        """

    def label_blob(self, labels: Sequence[Any]) -> np.ndarray:
        """Return the second top, from the labels of a batch."""
        return np.array(labels)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the first item."""
        del bottoms
        labels = self.label_blob([self._label] * self.batch)
        return [(self.batch, *self._shape), labels.shape][: len(self.proto.top)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next batch."""
        del bottoms
        if self._prefetcher is None:
            self._reading = self._taken
            depth = min(max(1, self.proto.data_param.prefetch), _MOST_AHEAD)
            threads = min(depth, _MOST_THREADS)
            self._prefetcher = Prefetcher(self._read_batch, self._make, depth, threads)
        tops = self._prefetcher.next()
        self._taken += self.batch
        return tops[: len(self.proto.top)]

    def position(self) -> Any:
        """Return the number of delivered items, and the seed by which they were drawn."""
        return {"items": self._taken, "seed": self.seed}

    def restore(self, position: Any) -> None:
        """See the base class."""
        items, seed = self.read_position(position)
        self._stop()
        self._taken = items
        if seed != self.seed:
            self.seed = seed
            self.reseeded()

    def reseeded(self) -> None:
        """Apply a new shuffle seed; called before anything is read with it."""

    def close(self) -> None:
        """See the base class."""
        self._stop()

    def _stop(self) -> None:
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None

    def _read_item(self, item: int) -> Item:
        number = self.deal.number(item)
        try:
            return Item(number, *self.read(number))
        except CaffeError as error:
            raise self.error(str(error)) from error

    def _read_batch(self) -> list[Item]:
        start = self._reading
        self._reading += self.batch
        return [self._read_item(item) for item in range(start, start + self.batch)]

    def _item(self, item: Item) -> tuple[Cut, Any]:
        try:
            return self.made(item.content, draws(self.seed, item.number))
        except CaffeError as error:
            raise self.error(f"{item.name}: {error}") from error

    def _make(self, items: list[Item]) -> list[torch.Tensor]:
        made = [self._item(item) for item in items]
        first = made[0][0].pixels.shape
        for item, (cut, _) in zip(items, made, strict=True):
            if cut.pixels.shape != first:
                raise self.error(
                    f"{item.name} is of shape {_by(cut.pixels.shape)}, the first of its batch of "
                    f"{_by(first)}: give a crop_size, or a batch_size of 1"
                )
        labels = self.label_blob([label for _, label in made]).astype(self.numeric)
        images = self.transformer.numbers([cut for cut, _ in made])
        return [self.tensor(images), self.tensor(labels)]


def _by(shape: Shape) -> str:
    return "x".join(map(str, shape))


Raw = TypeVar("Raw")
Ready = TypeVar("Ready")


class Prefetcher(Generic[Raw, Ready]):
    """Makes batches in threads, and delivers them in the order in which they were read.

    Args:
        read: Reads the next batch; called by one thread at a time.
        make: Decodes and transforms the data; called by several threads.
        depth: Batches made ahead.
        threads: Threads that make them.
    """

    def __init__(
        self, read: Callable[[], Raw], make: Callable[[Raw], Ready], depth: int, threads: int
    ) -> None:
        self._read = read
        self._make = make
        self._reader = ThreadPoolExecutor(1, "sirtaki-caffe-read")
        self._makers = ThreadPoolExecutor(threads, "sirtaki-caffe-data")
        self._ahead: deque[Future[Future[Ready]]] = deque()
        for _ in range(depth):
            self._order()

    def next(self) -> Ready:
        """Return the next batch; raises errors of reading or making it."""
        self._order()
        return self._ahead.popleft().result().result()

    def close(self) -> None:
        """End its threads."""
        self._reader.shutdown(cancel_futures=True)
        self._makers.shutdown(cancel_futures=True)

    def _order(self) -> None:
        self._ahead.append(self._reader.submit(self._start))

    def _start(self) -> Future[Ready]:
        return self._makers.submit(self._make, self._read())
