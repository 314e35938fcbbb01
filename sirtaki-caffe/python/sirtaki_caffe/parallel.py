"""The processes that train one net, and their exchanges."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import sirtaki.torch as hvd
from sirtaki.core.config import Config
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Layer, Param, World


class Processes:
    """The processes that train one net; by default only this one.

    All of them call every method, in the same order.

    Args:
        rank: This process, 0 to size - 1.
        size: The number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def current(cls) -> Processes:
        """Return Sirtaki's processes if the script has called its `init`, else only this one."""
        return cls(hvd.rank(), hvd.size()) if hvd.is_initialized() else cls()

    @classmethod
    def join(cls) -> Processes:
        """Join the others, if a launcher has started several.

        Raises:
            CaffeError: Some did not join, or the variables that describe them are invalid.
        """
        try:
            if Config.from_env().topology.size > 1:
                hvd.init()
        except (ValueError, TimeoutError, ConnectionError) as error:
            raise CaffeError(f"the processes cannot meet: {error}") from error
        return cls.current()

    @property
    def world(self) -> World:
        """Return the information for layers."""
        return World(self.rank, self.size, self.mean_of)

    @property
    def is_first(self) -> bool:
        """Return whether this process writes the files and the log."""
        return self.rank == 0

    def seed(self, chosen: int) -> int:
        """Return a seed that all share: the given one, or a random one if that is below 0."""
        if chosen >= 0:
            return chosen
        return int(self.broadcast_object(secrets.randbits(48), "caffe.seed"))

    def mean(self, value: float, name: str) -> float:
        """Return the mean of a number over all processes."""
        return self.sum([value], name)[0] / self.size

    def mean_of(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return the mean of a tensor over all processes."""
        if self.size == 1:
            return tensor
        own = tensor.detach().cpu()  # a number or a few, wherever the net computes
        mean = hvd.allreduce(own, op=hvd.Average, name=f"caffe.{name}")
        return torch.as_tensor(mean).to(tensor.device)

    def sum(self, values: Sequence[float], name: str) -> list[float]:
        """Return the sums of numbers over all processes."""
        return self.begin_sum(values, name)()

    def begin_sum(self, values: Sequence[float], name: str) -> Callable[[], list[float]]:
        """Start `sum`; return a function that waits for it."""
        if self.size == 1 or not values:
            return lambda: list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        handle = hvd.allreduce_async_(tensor, name=f"caffe.{name}", op=hvd.Sum)
        return lambda: list(hvd.synchronize(handle).tolist())

    def broadcast(self, tensors: Sequence[torch.Tensor], name: str) -> None:
        """Overwrite tensors with those of process 0."""
        if self.size > 1:
            named = [(f"caffe.{name}.{i}", tensor) for i, tensor in enumerate(tensors)]
            hvd.broadcast_parameters(named, root_rank=0)

    def broadcast_object(self, value: Any, name: str) -> Any:
        """Return the value of process 0."""
        if self.size == 1:
            return value
        return hvd.broadcast_object(value, root_rank=0, name=f"caffe.{name}")

    def gather(self, value: Any, name: str) -> list[Any]:
        """Return all processes' values, in rank order."""
        if self.size == 1:
            return [value]
        return list(hvd.allgather_object(value, name=f"caffe.{name}"))

    @contextlib.contextmanager
    def averaged(self, tensors: Sequence[torch.Tensor], name: str) -> Iterator[None]:
        """Replace tensors by their means over all processes within the context."""
        if self.size == 1 or not tensors:
            yield
            return
        own = [tensor.clone() for tensor in tensors]
        hvd.grouped_allreduce_(list(tensors), op=hvd.Average, name=f"caffe.{name}")
        try:
            yield
        finally:
            for tensor, value in zip(tensors, own, strict=True):
                tensor.copy_(value)


class GradientAverage:
    """Averages gradients over the processes, each layer's as soon as it is complete.

    Args:
        processes: The processes that take part.
    """

    def __init__(self, processes: Processes) -> None:
        self._alone = processes.size == 1
        self._handles: list[int] = []

    @property
    def after_layer(self) -> Callable[[Layer, list[Param]], None] | None:
        """Return a function to call after each layer of the backward pass; None if not needed."""
        return None if self._alone else lambda layer, params: self.start(layer.name, params)

    def start(self, name: str, params: Sequence[Param]) -> None:
        """Start to average the gradients of params, under a common name."""
        if self._alone:
            return
        gradients = []
        for param in params:
            if param.learns:
                if param.diff is None:
                    param.diff = torch.zeros_like(param.data)
                gradients.append(param.exchanged(param.diff))
        if gradients:
            handle = hvd.grouped_allreduce_async_(
                gradients, op=hvd.Average, name=f"caffe.gradients.{name}"
            )
            self._handles.append(handle)

    def wait(self) -> None:
        """Return once the gradients are means over all processes."""
        for handle in self._handles:
            hvd.synchronize(handle)
        self._handles.clear()


def batch_statistics(layers: Sequence[Layer]) -> list[torch.Tensor]:
    """Return the statistics of BatchNorm layers in this process: means, variances, weights."""
    found: dict[int, torch.Tensor] = {}
    for layer in layers:
        if layer.proto.type not in ("BatchNorm", "MKLBatchNorm"):
            continue
        if not layer.proto.batch_norm_param.use_global_stats:
            found |= {id(param): param.data for param in layer.params[:3]}
    return list(found.values())
