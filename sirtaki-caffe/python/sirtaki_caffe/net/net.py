"""A net: built from its file, run layer by layer, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from sirtaki.core.errors import HorovodInternalError
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Context, Layer, Param, World
from sirtaki_caffe.net import weights
from sirtaki_caffe.net.batch_norm import settle_batch_norm
from sirtaki_caffe.net.build import Builder, log_net
from sirtaki_caffe.net.filter import filter_net, repeated_names
from sirtaki_caffe.net.splits import insert_splits
from sirtaki_caffe.net.step import Step
from sirtaki_caffe.proto.schema import TRAIN, NetParameter

if TYPE_CHECKING:
    from sirtaki_caffe.proto.blobs import Saved
    from sirtaki_caffe.proto.weights import LayerWeights

Log = Callable[[str, str], None]
AfterLayer = Callable[[Layer, list[Param]], None]
_Result = TypeVar("_Result")


@dataclass
class Watchers:
    """Functions called with the number of each layer before and after it runs."""

    before_forward: list[Callable[[int], object]] = field(default_factory=list)
    after_forward: list[Callable[[int], object]] = field(default_factory=list)
    before_backward: list[Callable[[int], object]] = field(default_factory=list)
    after_backward: list[Callable[[int], object]] = field(default_factory=list)


class Net:
    """A Caffe net, with blobs between its layers.

    Run it under `torch.no_grad()` if no backward follows; then no data is kept for it.

    Args:
        proto: A NetParameter, upgraded.
        phase: TRAIN or TEST.
        level: The level for selecting layers.
        stages: The stages for selecting layers, besides the file's.
        world: The processes that train together.
        engine: The engine requested by a flag or the solver; "" for the net's choice.
        dtype: The type of blobs and params.
        seed: The seed of weights, dropout and other random numbers; None: a random one.
        shared_seed: The seed of the data order, shared by all processes.
        device: The device for computation.
        keep_graphs: Whether blobs' gradients stay after a backward, which can then be repeated
            without another forward, as scripts expect; costs memory.
        log: Called with a source file's name and a log line of building.
        warn: Called in the same way with warnings.
        file: The net's file, for warnings.

    Raises:
        CaffeError: The net cannot be built; the text names the layer.

    Attributes:
        proto: Its layers as built, with splits and phases; stored in snapshots.
        layers: The layers, in order.
        blobs: The blobs by name, in order of creation.
        learnable: The params without duplicates, in net order; including those with lr_mult 0.
        learnable_names: A unique name for each: `conv1.0`.
        outputs: Blobs that no layer reads, in byte order.
        loss_weights: The weights of the blobs that are part of the loss.
        watchers: Functions called for the layers that run.
    """

    def __init__(
        self,
        proto: Any,
        *,
        phase: int = TRAIN,
        level: int = 0,
        stages: Sequence[str] = (),
        world: World | None = None,
        engine: str = "",
        dtype: torch.dtype = torch.float32,
        seed: int | None = None,
        shared_seed: int = 0,
        device: torch.device | str = "cpu",
        keep_graphs: bool = False,
        log: Log | None = None,
        warn: Log | None = None,
        file: str | Path = "",
    ) -> None:
        kept = filter_net(proto, phase, level, stages)
        log_net(kept, log)
        if warn:
            for text in repeated_names(kept, file):
                warn("net.cpp", text)
        settle_batch_norm(kept, engine)
        split = insert_splits(kept)
        for message in split.layer:
            if not message.HasField("phase"):
                message.phase = phase
        self.proto = NetParameter(name=split.name, layer=split.layer)
        self.phase = phase
        self.context = Context(
            phase=phase,
            world=world or World(),
            engine=engine or split.engine,
            bn_stats_batch_size=split.bn_stats_batch_size,
            dtype=dtype,
            random=_generator(seed),
            shared_seed=shared_seed,
            keep_graphs=keep_graphs,
        )
        if log:
            self.context.log = log
        built = Builder(self.proto, self.context, split.force_backward, log)
        self.steps = built.steps
        self.layers = [step.layer for step in self.steps]
        self.blobs = built.blobs
        self.outputs = built.outputs()
        self.loss_weights = _loss_weights(self.steps)
        self.learnable: list[Param] = []
        self.learnable_names: list[str] = []
        self._list_learnable()
        self.watchers = Watchers()
        self.device = torch.device(device)
        self._elsewhere = self.device.type != "cpu"
        if self._elsewhere:
            self._move()

    def forward(self, start: int = 0, end: int | None = None) -> torch.Tensor:
        """Run the layers from start to end, inclusive; all of them by default.

        Returns:
            The sum of the losses in the range, a scalar outside of any graph.
        """
        stop = len(self.steps) if end is None else end + 1
        loss: torch.Tensor | None = None
        watchers = self.watchers
        for index, step in enumerate(self.steps[start:stop], start):
            for watch in watchers.before_forward:
                watch(index)
            part = None if step.is_input else self._forward(step)
            if part is not None:
                loss = part if loss is None else loss + part
            for watch in watchers.after_forward:
                watch(index)
        return torch.zeros((), dtype=self.context.dtype) if loss is None else loss

    def backward(
        self, start: int | None = None, end: int = 0, after_layer: AfterLayer | None = None
    ) -> None:
        """Run the layers' gradients from start down to end, inclusive; all by default.

        Gradients of params are added to `Param.diff`. A layer without a forward with gradients uses
        the current values of its blobs.

        Args:
            start: The last layer of the range.
            end: The first layer of the range.
            after_layer: Called with a layer and those of its params whose complete gradient has
                been accumulated: params shared by several layers after the first of these.
        """
        last = len(self.steps) - 1 if start is None else start
        for index in range(last, end - 1, -1):
            step = self.steps[index]
            for watch in self.watchers.before_backward:
                watch(index)
            if step.needs_backward:
                self._backward(step)
            for watch in self.watchers.after_backward:
                watch(index)
            if after_layer is not None and step.complete:
                after_layer(step.layer, step.complete)

    def clear_diffs(self) -> None:
        """Set the params' gradients to zero."""
        for param in self.learnable:
            param.clear_diff(keep=self.context.keep_graphs)

    def reshape(self) -> None:
        """Recompute all shapes after the shape of an Input's blob has changed."""
        for step in self.steps:
            if step.is_input:
                continue
            shapes = step.layer.shapes([bottom.shape for bottom in step.bottoms])
            for top, shape in zip(step.tops, shapes, strict=True):
                top.reshape(shape)

    def share_weights(self, other: Net) -> None:
        """Use the weights of another net's layers with the same names, in the same memory.

        Raises:
            LayerError: A layer of that name has other blobs.
        """
        weights.share(self, other)

    def load(self, given: Sequence[LayerWeights], log: Log | None = None) -> None:
        """Copy weights into the layers with the same names.

        Raises:
            LayerError: A layer of that name has other blobs; nothing was copied.
        """
        weights.load(self, given, log)

    def saved(self) -> dict[str, list[Saved]]:
        """Return the blobs of the layers that have some, in the form of files."""
        return weights.saved(self)

    def make_affine(self, layer: Layer, blobs: int) -> list[Param]:
        """Give a BatchNorm a scale of 1 and, with 2 blobs, a shift of 0; return these."""
        channels = layer.params[0].data.shape
        added = [Param(torch.ones(channels, dtype=self.context.dtype, device=self.device))]
        if blobs > 1:
            added.append(Param(torch.zeros_like(added[0].data)))
        for param in added:
            param.data.requires_grad_()
        layer.params += added
        layer.proto.batch_norm_param.use_weight_bias = True
        layer.proto.batch_norm_param.bias_term = blobs > 1
        self._list_learnable()
        return added

    def close(self) -> None:
        """Stop the layers' background threads."""
        for layer in self.layers:
            close = getattr(layer, "close", None)
            if close is not None:
                close()

    def _list_learnable(self) -> None:
        self.learnable.clear()
        self.learnable_names.clear()
        seen: set[int] = set()
        names: set[str] = set()
        for layer in self.layers:
            for index, param in enumerate(layer.params):
                owner = param.owner
                if id(owner) in seen:
                    continue
                seen.add(id(owner))
                name = f"{layer.name}.{index}"
                while name in names:
                    name += "'"
                names.add(name)
                self.learnable.append(owner)
                self.learnable_names.append(name)

    def _move(self) -> None:
        """Move params to the device, and draw random numbers there from now on."""
        for layer in self.layers:
            for param in layer.params:
                moved = param.data.detach().to(self.device)
                if param.owner is not param:
                    moved = param.owner.data.detach().view(param.data.shape)
                param.data = moved.requires_grad_(param.learns)
        seed = self.context.random.initial_seed()
        self.context.random = torch.Generator(self.device).manual_seed(seed)

    def _leaf(self, bottom: torch.Tensor, wants: bool, in_place: bool) -> torch.Tensor:
        """Return a bottom from which the layer's own graph starts."""
        if in_place and self.context.keep_graphs:
            bottom = bottom.clone()  # its top may be written to the same memory
        return bottom.detach().requires_grad_(wants)

    def _forward(self, step: Step) -> torch.Tensor | None:
        graph = step.needs_backward and torch.is_grad_enabled()
        bottoms = step.means([bottom.data for bottom in step.bottoms], "forward")
        if self._elsewhere:
            bottoms = [bottom.to(self.device, non_blocking=True) for bottom in bottoms]
        with torch.set_grad_enabled(graph):
            if graph:
                bottoms = [
                    self._leaf(bottom, wants, step.in_place)
                    for bottom, wants in zip(bottoms, step.wants, strict=True)
                ]
            tops = _guarded(step.layer.forward, step.layer, bottoms)
        if self._elsewhere:
            tops = [top.to(self.device, non_blocking=True) for top in tops]
        step.ran = (bottoms, tops) if graph else None
        for blob, top in zip(step.tops, tops, strict=True):
            blob.put(top.detach() if graph else top)
        return step.loss(tops) if step.has_loss else None

    def _run_for_backward(self, step: Step) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Run a layer on the current contents of its blobs, for a backward without a forward."""
        bottoms = step.means([bottom.data.to(self.device) for bottom in step.bottoms], "again")
        fixed = [(p.data, p.data.clone()) for p in step.layer.params if not p.learns]
        with torch.enable_grad():
            bottoms = [
                self._leaf(bottom, wants, step.in_place)
                for bottom, wants in zip(bottoms, step.wants, strict=True)
            ]
            tops = [top.data.to(self.device) for top in step.tops]
            tops = _guarded(step.layer.before_backward, step.layer, bottoms, tops)
        for data, before in fixed:
            data.copy_(before)  # the statistics of a BatchNorm stay unchanged
        if step.has_loss:
            step.loss(tops)
        return bottoms, tops

    def _backward(self, step: Step) -> None:
        if step.ran is None or not step.fits(step.ran[0]):
            step.ran = self._run_for_backward(step)
        bottoms, tops = step.ran
        diffs = [top.diff for top in step.tops]
        if self._elsewhere:
            diffs = [None if diff is None else diff.to(self.device) for diff in diffs]
        gradients = _guarded(step.layer.backward, step.layer, bottoms, tops, diffs, step.wants)
        if not self.context.keep_graphs:
            step.ran = None
            for top, weight in zip(step.tops, step.loss_weights, strict=True):
                if not weight:
                    top.diff = None
        gradients = step.means(gradients, "backward")
        for bottom, wants, gradient in zip(step.bottoms, step.wants, gradients, strict=True):
            if wants:
                bottom.put_diff(gradient)


def _guarded(run: Callable[..., _Result], layer: Layer, *arguments: Any) -> _Result:
    """Run a method of a layer; errors name the layer."""
    try:
        return run(*arguments)
    except (CaffeError, HorovodInternalError):
        raise
    except Exception as error:
        way = run.__name__.removeprefix("before_")
        raise layer.error(f"{way} failed: {error}") from error


def _loss_weights(steps: Sequence[Step]) -> dict[str, float]:
    """Return the weights of the tops that are losses."""
    return {
        top.name: weight
        for step in steps
        for top, weight in zip(step.tops, step.loss_weights, strict=True)
        if weight
    }


def _generator(seed: int | None) -> torch.Generator:
    random = torch.Generator()
    if seed is None:
        random.seed()
    else:
        random.manual_seed(seed)
    return random
