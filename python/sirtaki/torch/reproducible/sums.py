"""Sums of the gradients of a step's parts, exact and so independent of who computes which part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from sirtaki.core.operations import fixed_point
from sirtaki.core.operations.codes import BF16, F16, F32
from sirtaki.core.operations.reduce_ops import Sum
from sirtaki.torch.memory import empty
from sirtaki.torch.ops.allreduce import allreduce_async_
from sirtaki.torch.ops.handles import synchronize

_CODES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}


class Seen(NamedTuple):
    """The gradients of one parameter in some parts.

    Attributes:
        used: Whether a part had one.
        largest: The bits of the largest finite magnitude, as a float32.
        special: Whether a part had an infinity or NaN.
    """

    used: bool = False
    largest: int = 0
    special: bool = False

    def and_also(self, other: Seen) -> Seen:
        """Return what these parts and others have together."""
        return Seen(
            self.used or other.used,
            max(self.largest, other.largest),
            self.special or other.special,
        )


class GradientSum:
    """The sum of one parameter's gradients over this rank's parts.

    Args:
        param: The parameter.
        name: Its name.

    Raises:
        TypeError: Its gradients cannot be added exactly.
    """

    def __init__(self, param: torch.Tensor, name: str) -> None:
        self.param = param
        self.name = name
        self.seen = Seen()
        self.exponent: int | None = None
        self._sum: torch.Tensor | None = None
        self._special: torch.Tensor | None = None
        self._spare: torch.Tensor | None = None  # memory for the result
        self._empty = True
        _require(param, f"the parameter {name}")
        self._dtype = _CODES[param.dtype]

    def begin(self, exponent: int | None) -> None:
        """Forget all parts; the next are added with this exponent, None: only measured."""
        self.seen = Seen()
        self.exponent = (
            fixed_point.FLOAT16_EXPONENT if self.param.dtype == torch.float16 else exponent
        )
        self._special = self._spare = None
        self._empty = True

    def check(self) -> None:
        """Raise TypeError if the parameter's gradient cannot be added exactly."""
        if self.param.grad is not None:
            _require(self.param.grad, f"the gradient of {self.name}")

    def take(self, last: bool) -> None:
        """Add the parameter's gradient, the complete one of a part, and remove it.

        Args:
            last: Whether no part of this rank follows.
        """
        grad, self.param.grad = self.param.grad, None
        if grad is None:
            return
        if grad.stride() != self._laid_out().stride():
            grad = self._laid_out().copy_(grad)
        mode, address = fixed_point.MEASURE, 0
        if self.exponent is not None:
            mode = fixed_point.SET if self._empty else fixed_point.ADD
            address = self._memory().data_ptr()
            self._empty = False
        largest, special = fixed_point.add_fixed(
            address, grad.data_ptr(), self._dtype, grad.numel(), self.exponent or 0, mode
        )
        self.seen = self.seen.and_also(Seen(True, largest, special))
        if last:
            self._spare = grad
        if special:
            rest = torch.where(torch.isfinite(grad), 0, grad)
            self._special = rest if self._special is None else self._special + rest

    def start(self) -> int | None:
        """Start to add the sums of all ranks; return the handle, None without an exponent."""
        if self.exponent is None:
            return None
        if self._empty:
            self._memory().zero_()
        return allreduce_async_(self._memory(), name=sum_name(self.name), op=Sum)

    @property
    def started(self) -> int:
        """How many numbers `start` adds over the ranks, 0 without an exponent."""
        return 0 if self.exponent is None else self.param.numel()

    def finish(self, seen: Seen, divisor: int) -> None:
        """Store the sum of all ranks as the parameter's gradient, rounded once.

        Args:
            seen: The gradients of all ranks.
            divisor: What the sum is divided by.
        """
        grad, self._spare = self._spare, None
        if not seen.used:
            return
        if grad is None:
            grad = self._laid_out()
        if self.exponent is None:  # all were zeros
            grad.zero_()
        else:
            fixed_point.round_fixed(
                grad.data_ptr(),
                self._memory().data_ptr(),
                self._dtype,
                grad.numel(),
                self.exponent,
                divisor,
            )
        if seen.special:
            grad = grad + self._special_of_all()
        self.param.grad = grad

    def _special_of_all(self) -> torch.Tensor:
        """Return the infinities and NaNs, and zeros elsewhere; opposite infinities are NaN."""
        found = torch.zeros_like(self._laid_out()) if self._special is None else self._special
        handle = allreduce_async_(found, name=f"reproducible.special.{self.name}", op=Sum)
        synchronize(handle)
        # The sign and the payload of a NaN depend on the order of the additions.
        return torch.where(found.isnan(), torch.nan, found)

    def _laid_out(self) -> torch.Tensor:
        return torch.empty_like(self.param, requires_grad=False)

    def _memory(self) -> torch.Tensor:
        if self._sum is None:
            self._sum = empty(self.param.numel(), dtype=torch.int64)
        return self._sum


def sum_name(name: str) -> str:
    """Return the name of the operation that adds a parameter's sums."""
    return f"reproducible.{name}"


def _require(tensor: torch.Tensor, what: str) -> None:
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"{what} is sparse, and reproducible=True adds dense gradients: make the embedding "
            "with sparse=False"
        )
    if tensor.dtype not in _CODES:
        raise TypeError(
            f"{what} is {tensor.dtype}; reproducible=True adds float32, bfloat16 and float16"
        )
    if not tensor.is_cpu:
        raise TypeError(
            f"{what} is on {tensor.device}; reproducible=True adds gradients in CPU memory"
        )


def exponents_after(
    sums: Sequence[GradientSum], seen: Sequence[Seen], terms: int
) -> list[int | None]:
    """Return the exponents that these gradients suggest; all zeros keep the old one."""
    return [
        fixed_point.exponent_for(each.largest, terms) if each.largest else one.exponent
        for one, each in zip(sums, seen, strict=True)
    ]


def does_not_fit(one: GradientSum, seen: Seen, terms: int) -> bool:
    """Return whether the gradients are the first ones, or too large or small for their sum."""
    if not seen.largest or one.param.dtype == torch.float16:
        return False
    return one.exponent is None or not fixed_point.fits(seen.largest, one.exponent, terms)
