"""The shared parts of all layers."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

import torch

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.proto.schema import TRAIN

Shape = tuple[int, ...]


class Share(IntEnum):
    """A blob's relation to the whole batch; a layer's top has the greatest one of its bottoms.

    Attributes:
        SAME: Equal in all processes: params, and blobs that depend on them alone.
        MEAN: Computed from all items; its mean over the processes is the whole batch's.
        ITEMS: A part of the items, equally many in every process.
        CHOSEN: A part of the items; other processes may have more or fewer.
    """

    SAME = 0
    MEAN = 1
    ITEMS = 2
    CHOSEN = 3


class Param:
    """A learnable blob of a layer: its values and its accumulated gradient.

    Args:
        data: The values; float32, or float64 in a net of that type.
    """

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data
        self.diff: torch.Tensor | None = None  # None: zeros, not allocated yet
        self.lr_mult = 1.0
        self.decay_mult = 1.0
        self._quick_last = False
        self._diff_held = False

    def keep_channels_last(self) -> None:
        """Keep values and gradient in the memory order in which convolutions are fastest.

        So they change their order in no step; `in_order` ends this.
        """
        self.data = channels_last(self.data)
        self._quick_last = self.data.dim() == 4 and self.data.device.type == "cpu"

    def in_order(self) -> torch.Tensor:
        """Return the values in the order of their axes, permanently, for readers of the memory."""
        if not self.data.is_contiguous():
            # All holders of this tensor, including the test nets, see the values in the new place.
            self.data.data = self.data.detach().contiguous()
        return self.data.detach()

    def diff_in_order(self) -> torch.Tensor:
        """Return the gradient in the order of its axes; zeros without one."""
        if self.diff is None:
            self.diff = torch.zeros(self.data.shape, dtype=self.data.dtype, device=self.data.device)
        elif not self.diff.is_contiguous():
            self.diff = self.diff.contiguous()
        self._diff_held = True
        return self.diff

    def clear_diff(self, *, keep: bool) -> None:
        """Set the gradient to zero.

        Args:
            keep: Whether a script holds the gradient's memory, which must then be kept.
        """
        if keep and self._diff_held and self.diff is not None:
            self.diff.zero_()
        else:
            self.diff = None

    def exchanged(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a view of values or gradient with the same element order in all processes.

        It is dense unless a script has requested another memory order in this process.
        """
        return tensor.permute(0, 2, 3, 1) if self._quick_last else tensor

    @property
    def learns(self) -> bool:
        """Return whether the solver changes it."""
        return self.lr_mult != 0.0

    @property
    def owner(self) -> Param:
        """Return the owner of values and gradient; another param if shared by name."""
        return self

    def add_diff(self, gradient: torch.Tensor, *, ours: bool = False) -> None:
        """Add to the gradient.

        Args:
            gradient: The gradient to add.
            ours: Whether nothing else holds this tensor, so that it may be kept.
        """
        if self.diff is not None:
            self.diff.add_(gradient)
        elif ours and same_order(gradient, self.data):
            self.diff = gradient
        else:
            self.diff = torch.empty_like(self.data, requires_grad=False).copy_(gradient.detach())


@dataclass
class World:
    """The processes that train one net; a process alone by default.

    Args:
        rank: This process, 0 to size - 1.
        size: The number of processes.
        mean: The mean of a tensor over all processes; called by all of them at the same point.
    """

    rank: int = 0
    size: int = 1
    mean: Callable[[torch.Tensor, str], torch.Tensor] = lambda value, name: value


@dataclass
class Context:
    """A layer's information about its net.

    Args:
        phase: TRAIN or TEST of `sirtaki_caffe.proto.schema`.
        world: The processes that share the batch.
        engine: The engine requested by flag, solver or net; "" if none.
        bn_stats_batch_size: The images that BatchNorm normalises together; 0: the whole batch.
        dtype: The type of blobs and params.
        random: Source of random numbers, seeded by `random_seed`; one for all layers of a process.
        shared_seed: Shared by all processes; determines the shuffling and augmentation of data.
        log: Called with a source file's name and a line: ("data_layer.cpp", "Opened lmdb x").
        keep_graphs: Whether a script may run backward again without another forward.
    """

    phase: int = TRAIN
    world: World = field(default_factory=World)
    engine: str = ""
    bn_stats_batch_size: int = 0
    dtype: torch.dtype = torch.float32
    random: torch.Generator = field(default_factory=torch.Generator)
    shared_seed: int = 0
    log: Callable[[str, str], None] = lambda source, text: None
    keep_graphs: bool = False


class Layer(abc.ABC):
    """A layer: constructed from its message, then called with tensors.

    `forward` uses PyTorch's operations, from which gradients follow; a layer that computes its own
    gradients overrides `backward`.

    Args:
        proto: Its LayerParameter, upgraded; `phase` is set.
        context: Its information about the net.
    """

    #: The minimum and maximum of bottoms and tops; None: any number.
    bottoms: ClassVar[tuple[int, int | None]] = (1, 1)
    tops: ClassVar[tuple[int, int | None]] = (1, 1)
    #: A loss: its first top has a loss weight of 1 by default.
    is_loss: ClassVar[bool] = False
    #: The bottoms that never receive gradients, such as labels.
    no_gradient_to: ClassVar[tuple[int, ...]] = ()
    #: The bottoms among these that are only read: gradients for them stop without an error.
    references: ClassVar[tuple[int, ...]] = ()
    #: Whether a top may have the name of the bottom at its position.
    may_be_in_place: ClassVar[bool] = False
    #: Whether its tops are linear in its bottoms, so that means over the processes remain means.
    keeps_means: bool = False
    #: The relation of its bottoms to those of one process with the whole batch.
    shares: Sequence[Share] = (Share.ITEMS,)

    def __init__(self, proto: Any, context: Context) -> None:
        self.proto = proto
        self.context = context
        self.params: list[Param] = []

    @property
    def name(self) -> str:
        """The layer's name in its net."""
        return str(self.proto.name)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters against the bottoms, and create `self.params`; called once.

        Raises:
            LayerError: The bottoms or the parameters are invalid.
        """
        del bottoms

    @abc.abstractmethod
    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tops; a view of a bottom may be one, a bottom itself may not."""

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the tops, by a run of `forward` without computation."""
        given = self.params
        try:
            self.params = [Param(p.data.to("meta")) for p in given]
            blobs = [torch.empty(s, dtype=self.context.dtype, device="meta") for s in bottoms]
            with torch.no_grad():
                return [tuple(top.shape) for top in self.forward(blobs)]
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            if isinstance(error, LayerError):
                raise
            shown = ", ".join(str(list(s)) for s in bottoms)
            raise self.error(f"bottoms of shape {shown} do not fit: {error}") from error
        finally:
            self.params = given

    def before_backward(
        self, bottoms: Sequence[torch.Tensor], tops: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the tops to start backward from if no `forward` has left them.

        Args:
            bottoms: The arguments of `forward`.
            tops: The contents of the blobs.
        """
        del tops
        return self.forward(bottoms)

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return the gradients of the wanted bottoms, by PyTorch; add those of the params.

        Args:
            bottoms: The bottoms of `forward`; wanted ones are leaves that require gradients.
            tops: The tops from it.
            top_diffs: Their gradients; None: zeros.
            wanted: For each bottom, whether its gradient is needed.

        Returns:
            One per bottom, None if unwanted or if the tops do not depend on the bottom.
        """
        pairs = [
            (t, d)
            for t, d in zip(tops, top_diffs, strict=True)
            if d is not None and t.requires_grad
        ]
        leaves = [b for b, wants in zip(bottoms, wanted, strict=True) if wants]
        learning = [p for p in self.params if p.learns]
        if not pairs or (not leaves and not learning):
            return [None] * len(bottoms)
        gradients = torch.autograd.grad(
            [t for t, _ in pairs],
            [*leaves, *(p.data for p in learning)],
            [d for _, d in pairs],
            allow_unused=True,
            retain_graph=self.context.keep_graphs,
        )
        # A gradient may be the same tensor as a top's or another's: it is then copied.
        places = Counter(
            g.data_ptr() for g in (*gradients, *(d for _, d in pairs)) if g is not None
        )
        for param, gradient in zip(learning, gradients[len(leaves) :], strict=True):
            if gradient is not None:
                param.add_diff(gradient, ours=places[gradient.data_ptr()] == 1)
        found = iter(gradients[: len(leaves)])
        return [next(found) if wants else None for wants in wanted]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return the relation of its tops, of these shapes, to those of the whole batch."""
        found = max(self.shares, default=Share.ITEMS)
        shares = [found if shape or self.shares else Share.SAME for shape in tops]
        return [min(found, Share.MEAN), *shares[1:]] if self.is_loss else shares

    @property
    def processes(self) -> int:
        """Return the number of processes among which its items are divided."""
        divided = self.context.phase == TRAIN and max(self.shares, default=0) >= Share.ITEMS
        return self.context.world.size if divided else 1

    def per_process(
        self, count: float | torch.Tensor, *, varies: bool = False, least: float = 1.0
    ) -> torch.Tensor | float:
        """Return, per process, a count of the whole batch that divides a sum over the batch.

        Args:
            count: The counted items of this process.
            varies: Whether counts differ among processes, as they may for chosen items.
            least: The minimum for the whole batch.
        """
        processes = self.processes
        if processes > 1 and (varies or Share.CHOSEN in self.shares):
            own = torch.as_tensor(count, dtype=torch.float64)
            count = float(self.context.world.mean(own, f"{self.name}.count"))
        if isinstance(count, torch.Tensor):
            return count.clamp(min=least)
        return max(least, processes * count) / processes

    def error(self, why: str) -> LayerError:
        """Return an error that names the layer, for the caller to raise."""
        return LayerError(self.name, str(self.proto.type), why)


_kinds: dict[str, type[Layer]] = {}


def layer(kind: str) -> Callable[[type[Layer]], type[Layer]]:
    """Register a class as the layer of a type; a decorator."""

    def register(cls: type[Layer]) -> type[Layer]:
        _kinds[kind] = cls
        return cls

    return register


def layer_class(kind: str) -> type[Layer] | None:
    """Return the class of a layer type, or None if it is unknown."""
    return _kinds.get(kind)


def layer_kinds() -> list[str]:
    """Return the names of all layer types."""
    return sorted(_kinds)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return images with the channels of a pixel adjacent, if the device's kernels prefer this.

    On CPUs pooling is many times faster in this order, and convolution no slower. A layer's results
    stay in it, so that a net's images are reordered once. Only the memory order changes, not shapes
    or indices.
    """
    if x.dim() != 4 or x.device.type != "cpu":
        return x
    if x.shape[1] == 1:  # either order is both; strides tell PyTorch which one is meant
        items, _, height, width = x.shape
        return x.reshape(items, height, width, 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def same_order(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether dense tensors of one shape have the same element order."""
    orders = (torch.contiguous_format, torch.channels_last)
    return any(
        x.is_contiguous(memory_format=order) and y.is_contiguous(memory_format=order)
        for order in (orders if x.dim() == 4 else orders[:1])
    )
