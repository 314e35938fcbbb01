"""Buffers of a module, such as running means, of which each part of a step makes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from sirtaki.core.operations import fixed_point
from sirtaki.core.operations.codes import F32

_MEAN = ("running_mean", "running_var")
_COUNT = "num_batches_tracked"


class Buffers:
    """The buffers of modules: equal before each part, and changed once after all of them.

    Statistics of batch normalization are folded part by part, in order. Other float32 buffers
    become the mean of the parts. A buffer that no part changes stays as it is.

    Args:
        models: The modules.

    Raises:
        ValueError: A module exchanges statistics among ranks.
    """

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        self._models = models
        self._norms = [_Norm(each) for each in _norms(models)]
        # Of the current step, as modules may get other buffers between steps.
        self._others: list[_Place] = self._found()
        self._before: list[torch.Tensor] = []

    def __bool__(self) -> bool:
        return bool(self._norms or self._others)

    def _found(self) -> list[_Place]:
        """Return the buffers but for statistics of batch normalization, each once."""
        norms = {id(norm.module) for norm in self._norms}
        found: dict[int, _Place] = {}
        for model in self._models:
            for path, module in model.named_modules():
                if id(module) in norms:
                    continue
                for name, buffer in module.named_buffers(recurse=False):
                    full = f"{path}.{name}" if path else name
                    found.setdefault(id(buffer), _Place(module, name, full, buffer))
        return list(found.values())

    def begin(self) -> None:
        """Keep the buffers as they are before the step."""
        self._others = self._found()
        self._before = [place.buffer.clone() for place in self._others]
        for norm in self._norms:
            norm.keep()

    @property
    def before(self) -> dict[int, torch.Tensor]:
        """What the buffers were before the step, by their ids."""
        ids = (id(place.buffer) for place in self._others)
        found = dict(zip(ids, self._before, strict=True))
        for norm in self._norms:
            found |= norm.before
        return found

    def enter(self) -> None:
        """Prepare for a part."""
        for norm in self._norms:
            norm.enter()

    def leave(self) -> list[Any]:
        """Return what a part has made of the buffers, and restore them."""
        try:
            made: list[Any] = [norm.made() for norm in self._norms]
            return made + [
                _changed(place, before)
                for place, before in zip(self._others, self._before, strict=True)
            ]
        finally:
            self.restore()

    def restore(self) -> None:
        """Give the buffers back what they had before the step."""
        for norm in self._norms:
            norm.restore()
        for place, before in zip(self._others, self._before, strict=True):
            if place.current is not place.buffer:  # the part has put another tensor there
                setattr(place.module, place.name, place.buffer)
            place.buffer.copy_(before)

    def finish(self, parts: Sequence[list[Any]]) -> None:
        """Change the buffers once, given what each part made of them, in order."""
        count = len(self._norms)
        for i, norm in enumerate(self._norms):
            norm.fold([made[i] for made in parts])
        for i, (place, before) in enumerate(zip(self._others, self._before, strict=True)):
            given = [made[count + i] for made in parts]
            if any(each is not None for each in given):
                kept = before.numpy(force=True)
                values = [kept if each is None else each for each in given]
                place.buffer.copy_(torch.from_numpy(exact_mean(values)))


class _Place(NamedTuple):
    """Where a module has a buffer.

    name: of the attribute. full: with the path to the module. buffer: as it is before the step.
    """

    module: torch.nn.Module
    name: str
    full: str
    buffer: torch.Tensor

    @property
    def current(self) -> torch.Tensor:
        """The buffer that the module has now."""
        found: torch.Tensor = getattr(self.module, self.name)
        return found


class _Norm:
    """A module with running statistics of batches."""

    def __init__(self, module: _BatchNorm) -> None:
        self.module = module
        self._momentum = module.momentum
        self._before: dict[str, torch.Tensor] = {}

    def keep(self) -> None:
        self._before = {name: b.clone() for name, b in self.module.named_buffers(recurse=False)}

    @property
    def before(self) -> dict[int, torch.Tensor]:
        return {id(getattr(self.module, name)): value for name, value in self._before.items()}

    def enter(self) -> None:
        # The running statistics then become those of the part's batch alone.
        self._momentum, self.module.momentum = self.module.momentum, 1.0

    def made(self) -> list[tuple[np.ndarray, ...]]:
        """Return the batch statistics of the part: none if the module did not run."""
        module = self.module
        made = int(getattr(module, _COUNT)) - int(self._before[_COUNT])
        if made > 1:
            raise ValueError(
                f"a {type(module).__name__} ran {made} times in one part, and only the statistics "
                "of its last batch are known: call the model once in each part"
            )
        return [tuple(_numbers(getattr(module, name)) for name in _MEAN)] * made

    def restore(self) -> None:
        self.module.momentum = self._momentum
        for name, before in self._before.items():
            getattr(self.module, name).copy_(before)

    def fold(self, parts: Sequence[list[tuple[np.ndarray, ...]]]) -> None:
        """Update the running statistics with those of each part, as the module does."""
        module = self.module
        count: torch.Tensor = getattr(module, _COUNT)
        for batch in [each for part in parts for each in part]:
            count += 1
            weight = 1.0 / float(count) if module.momentum is None else module.momentum
            for name, value in zip(_MEAN, batch, strict=True):
                running: torch.Tensor = getattr(module, name)
                running.mul_(1 - weight).add_(torch.from_numpy(value), alpha=weight)


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # which NumPy lacks
    found: np.ndarray = wide.numpy(force=True).copy()
    return found


def _changed(place: _Place, before: torch.Tensor) -> np.ndarray | None:
    """Return a buffer's new value, None if it is the old one."""
    buffer = place.current
    if torch.equal(buffer, before):
        return None
    if buffer.dtype != torch.float32:
        raise ValueError(
            f"the buffer {place.full} ({buffer.dtype}) was changed in a part, and reproducible "
            "training can combine float32 buffers and those of batch normalization only: change it "
            "outside of state.parts()"
        )
    made: np.ndarray = buffer.numpy(force=True).copy()
    return made


def _norms(models: Sequence[torch.nn.Module]) -> list[_BatchNorm]:
    found = list(dict.fromkeys(module for model in models for module in model.modules()))
    for module in found:
        if type(module).__name__ == "SyncBatchNorm":
            raise ValueError(
                "reproducible training cannot use SyncBatchNorm, whose statistics depend on which "
                "rank computes which part: use BatchNorm"
            )
    # Others, such as InstanceNorm, do not count batches: their statistics are plain buffers.
    return [m for m in found if isinstance(m, _BatchNorm) and m.running_mean is not None]


def exact_mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of float32 arrays, rounded once.

    Infinities and NaNs give what NumPy's sum of them gives.
    """
    first = values[0]
    sums = np.empty(first.shape, np.int64)
    arrays = [np.ascontiguousarray(each) for each in values]
    size = first.size

    def add(array: np.ndarray, exponent: int, mode: int) -> tuple[int, bool]:
        return fixed_point.add_fixed(sums.ctypes.data, array.ctypes.data, F32, size, exponent, mode)

    seen = [add(array, 0, fixed_point.MEASURE) for array in arrays]
    if any(special for _, special in seen):
        mean_of = np.mean(arrays, axis=0, dtype=np.float64)
        return np.asarray(mean_of, np.float32).reshape(first.shape)
    largest = max(magnitude for magnitude, _ in seen)
    if largest == 0:
        return np.zeros_like(first)
    exponent = fixed_point.exponent_for(largest, len(arrays))
    for i, array in enumerate(arrays):
        add(array, exponent, fixed_point.ADD if i else fixed_point.SET)
    mean = np.empty(first.shape, np.float32)
    fixed_point.round_fixed(mean.ctypes.data, sums.ctypes.data, F32, size, exponent, len(arrays))
    return mean
