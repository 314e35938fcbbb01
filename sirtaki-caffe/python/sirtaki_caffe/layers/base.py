"""What all layers have in common."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.formats import channels_last, same_order
from sirtaki_caffe.layers.shares import Share
from sirtaki_caffe.proto.schema import TRAIN

Shape = tuple[int, ...]


class Param:
    """A learnable blob of a layer: its values, and where its gradient is added up.

    Args:
        data: Its values; float32, or float64 in a net of that type.
    """

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data
        self.diff: torch.Tensor | None = None  # None: zeros, not allocated yet
        self.lr_mult = 1.0
        self.decay_mult = 1.0
        self._quick_last = False
        self._diff_held = False

    def keep_channels_last(self) -> None:
        """Keep values and gradient in the order of memory that convolutions are quickest in.

        So they change their order in no step; `in_order` ends it.
        """
        self.data = channels_last(self.data)
        self._quick_last = self.data.dim() == 4 and self.data.device.type == "cpu"

    def in_order(self) -> torch.Tensor:
        """The values in the order of their axes, where they stay: for who looks at the memory."""
        if not self.data.is_contiguous():
            # All who have this tensor, the test nets too, find the values in the new place.
            self.data.data = self.data.detach().contiguous()
        return self.data.detach()

    def diff_in_order(self) -> torch.Tensor:
        """The gradient likewise; zeros where there is none."""
        if self.diff is None:
            self.diff = torch.zeros(self.data.shape, dtype=self.data.dtype, device=self.data.device)
        elif not self.diff.is_contiguous():
            self.diff = self.diff.contiguous()
        self._diff_held = True
        return self.diff

    def clear_diff(self, *, keep: bool) -> None:
        """Set the gradient to zero.

        Args:
            keep: A script that has looked at the gradient's memory goes on finding it there.
        """
        if keep and self._diff_held and self.diff is not None:
            self.diff.zero_()
        else:
            self.diff = None

    def exchanged(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view of values or gradient whose elements all processes have in one order.

        It is dense where no script has asked for another order of memory in this process.
        """
        return tensor.permute(0, 2, 3, 1) if self._quick_last else tensor

    @property
    def learns(self) -> bool:
        """Whether the solver changes it."""
        return self.lr_mult != 0.0

    @property
    def owner(self) -> Param:
        """Whose values and gradient these are; another's where params are shared by name."""
        return self

    def add_diff(self, gradient: torch.Tensor, *, ours: bool = False) -> None:
        """Add to the gradient.

        Args:
            gradient: What to add.
            ours: Nobody else has this tensor, so that it may be kept.
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
        size: How many there are.
        mean: The mean of a tensor over all processes; called by all of them at the same place.
    """

    rank: int = 0
    size: int = 1
    mean: Callable[[torch.Tensor, str], torch.Tensor] = lambda value, name: value


@dataclass
class Context:
    """What a layer knows of the net that it is part of.

    Args:
        phase: TRAIN or TEST of `sirtaki_caffe.proto.schema`.
        world: The processes that share the batch.
        engine: The engine asked for by flag, solver or net; "" if none.
        bn_stats_batch_size: Images that BatchNorm normalises together; 0: all of the batch.
        dtype: Of blobs and params.
        random: Source of random numbers, seeded by `random_seed`; one for all layers of a process.
        shared_seed: Common to all processes; data are shuffled and augmented by it.
        log: Takes a source file's name and a line: ("data_layer.cpp", "Opened lmdb x").
        keep_graphs: A script may go backward again without another forward.
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
    """A layer: built from its message, then called with tensors.

    `forward` is written with PyTorch's operations, from which gradients follow; a layer that
    computes its own gradients overrides `backward`.

    Args:
        proto: Its LayerParameter, upgraded; `phase` is set.
        context: What it may know of its net.
    """

    #: Least and most bottoms and tops; None: any number.
    bottoms: ClassVar[tuple[int, int | None]] = (1, 1)
    tops: ClassVar[tuple[int, int | None]] = (1, 1)
    #: A loss: its first top has a loss weight of 1 where none is given.
    is_loss: ClassVar[bool] = False
    #: Which bottoms gradients never go to: labels, for instance.
    no_gradient_to: ClassVar[tuple[int, ...]] = ()
    #: Which of these are only looked at: gradients that would go there end without an error.
    references: ClassVar[tuple[int, ...]] = ()
    #: A top may have the name of the bottom at its place.
    may_be_in_place: ClassVar[bool] = False
    #: Its tops are linear in its bottoms, so that means over the processes stay such.
    keeps_means: bool = False
    #: What its bottoms are to those of one process with the whole batch.
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
        """Check its parameters against the bottoms, and make `self.params`; once, at building.

        Raises:
            LayerError: The bottoms or the parameters do not fit.
        """
        del bottoms

    @abc.abstractmethod
    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tops; a view of a bottom may be one, a bottom itself not."""

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """The shapes of the tops, by a run of `forward` that computes nothing."""
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
        """The tops to go backward from where no `forward` has left them.

        Args:
            bottoms: As `forward` takes them.
            tops: What the blobs hold.
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
        """The gradients of the bottoms that are wanted, by PyTorch; adds those of the params.

        Args:
            bottoms: What `forward` was given; those wanted are leaves that require gradients.
            tops: What it returned.
            top_diffs: Their gradients; None: zeros.
            wanted: For each bottom, whether its gradient is needed.

        Returns:
            One a bottom, None where none is wanted or the bottom has no part in the tops.
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
        # A gradient may be the very tensor that a top's or another's is: that one is copied.
        places = Counter(
            g.data_ptr() for g in (*gradients, *(d for _, d in pairs)) if g is not None
        )
        for param, gradient in zip(learning, gradients[len(leaves) :], strict=True):
            if gradient is not None:
                param.add_diff(gradient, ours=places[gradient.data_ptr()] == 1)
        found = iter(gradients[: len(leaves)])
        return [next(found) if wants else None for wants in wanted]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """What its tops, of these shapes, are to those of one process with the whole batch."""
        found = max(self.shares, default=Share.ITEMS)
        shares = [found if shape or self.shares else Share.SAME for shape in tops]
        return [min(found, Share.MEAN), *shares[1:]] if self.is_loss else shares

    @property
    def processes(self) -> int:
        """Among how many processes the items that it reads are divided."""
        divided = self.context.phase == TRAIN and max(self.shares, default=0) >= Share.ITEMS
        return self.context.world.size if divided else 1

    def per_process(
        self, count: float | torch.Tensor, *, varies: bool = False, least: float = 1.0
    ) -> torch.Tensor | float:
        """A count of the whole batch, by which a sum over it is divided, for each process.

        Args:
            count: The items, or what else is counted, of this process.
            varies: Other processes may have other counts; so they may where items are chosen.
            least: Of the whole batch.
        """
        processes = self.processes
        if processes > 1 and (varies or Share.CHOSEN in self.shares):
            own = torch.as_tensor(count, dtype=torch.float64)
            count = float(self.context.world.mean(own, f"{self.name}.count"))
        if isinstance(count, torch.Tensor):
            return count.clamp(min=least)
        return max(least, processes * count) / processes

    def error(self, why: str) -> LayerError:
        """An error that names the layer; to be raised."""
        return LayerError(self.name, str(self.proto.type), why)


_kinds: dict[str, type[Layer]] = {}


def layer(kind: str) -> Callable[[type[Layer]], type[Layer]]:
    """Register a class as the layer of a type; a decorator."""

    def register(cls: type[Layer]) -> type[Layer]:
        _kinds[kind] = cls
        return cls

    return register


def layer_class(kind: str) -> type[Layer] | None:
    """The class of a layer type, None if it is not known."""
    return _kinds.get(kind)


def layer_kinds() -> list[str]:
    """The names of all layer types."""
    return sorted(_kinds)
