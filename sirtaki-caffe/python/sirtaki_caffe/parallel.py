"""The processes that train one net, and what they exchange."""

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
    """The processes that train one net; by default this one alone.

    Every method is called by all of them, in the same order.

    Args:
        rank: This process, 0 to size - 1.
        size: How many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def current(cls) -> Processes:
        """Those of Sirtaki where the script has called its `init`; else this one alone."""
        return cls(hvd.rank(), hvd.size()) if hvd.is_initialized() else cls()

    @classmethod
    def join(cls) -> Processes:
        """Meet the others, if a launcher has started several.

        Raises:
            CaffeError: Some did not come, or the variables that describe them make no sense.
        """
        try:
            if Config.from_env().topology.size > 1:
                hvd.init()
        except (ValueError, TimeoutError, ConnectionError) as error:
            raise CaffeError(f"the processes cannot meet: {error}") from error
        return cls.current()

    @property
    def world(self) -> World:
        """What layers may know of them."""
        return World(self.rank, self.size, self.mean_of)

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0

    def seed(self, chosen: int) -> int:
        """A seed that all have in common: the one chosen, or if that is below 0 a random one."""
        if chosen >= 0:
            return chosen
        return int(self.broadcast_object(secrets.randbits(48), "caffe.seed"))

    def mean(self, value: float, name: str) -> float:
        """The mean of a number over all processes."""
        return self.sum([value], name)[0] / self.size

    def mean_of(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The mean of a tensor over all processes."""
        if self.size == 1:
            return tensor
        own = tensor.detach().cpu()  # a number or a few, wherever the net computes
        mean = hvd.allreduce(own, op=hvd.Average, name=f"caffe.{name}")
        return torch.as_tensor(mean).to(tensor.device)

    def sum(self, values: Sequence[float], name: str) -> list[float]:
        """The sums of numbers over all processes."""
        return self.begin_sum(values, name)()

    def begin_sum(self, values: Sequence[float], name: str) -> Callable[[], list[float]]:
        """Start `sum`; what is returned waits for it."""
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
        """What process 0 has."""
        if self.size == 1:
            return value
        return hvd.broadcast_object(value, root_rank=0, name=f"caffe.{name}")

    def gather(self, value: Any, name: str) -> list[Any]:
        """What each has, in rank order."""
        if self.size == 1:
            return [value]
        return list(hvd.allgather_object(value, name=f"caffe.{name}"))

    @contextlib.contextmanager
    def averaged(self, tensors: Sequence[torch.Tensor], name: str) -> Iterator[None]:
        """While entered, tensors hold their means over all processes."""
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
    """Averages gradients over the processes, each layer's as soon as it is known.

    Args:
        processes: Who takes part.
    """

    def __init__(self, processes: Processes) -> None:
        self._alone = processes.size == 1
        self._handles: list[int] = []

    @property
    def after_layer(self) -> Callable[[Layer, list[Param]], None] | None:
        """To be called for each layer in its turn of the backward pass; None: there is no need."""
        return None if self._alone else lambda layer, params: self.start(layer.name, params)

    def start(self, name: str, params: Sequence[Param]) -> None:
        """Begin to average the gradients of params, which have a name together."""
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
        """Return when the gradients are the means over all processes."""
        for handle in self._handles:
            hvd.synchronize(handle)
        self._handles.clear()


def batch_statistics(layers: Sequence[Layer]) -> list[torch.Tensor]:
    """What BatchNorm layers have seen of their process's data: means, variances, their weight."""
    found: dict[int, torch.Tensor] = {}
    for layer in layers:
        if layer.proto.type not in ("BatchNorm", "MKLBatchNorm"):
            continue
        if not layer.proto.batch_norm_param.use_global_stats:
            found |= {id(param): param.data for param in layer.params[:3]}
    return list(found.values())
