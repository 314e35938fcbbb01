"""Averages of integers for backends that only add: exact for any sum."""

from __future__ import annotations

import torch

# The largest double that an int64 holds.
_LARGEST = float((1 << 63) - 1024)


def shares(tensor: torch.Tensor, members: int) -> torch.Tensor:
    """Return the values to add: each number's quotient and remainder in a last dimension.

    Sums of either fit into int64 for any number of members.
    """
    numbers = tensor.long()
    quotients = numbers.div(members, rounding_mode="trunc")
    return torch.stack((quotients, numbers - quotients * members), dim=-1)


def average(added: torch.Tensor, members: int, factor: float, dtype: torch.dtype) -> torch.Tensor:
    """Return the averages of the added values, truncated toward zero.

    Args:
        added: The sum of all members' shares.
        members: The number of members.
        factor: Multiplies the sums, in float64 unless it is 1.
        dtype: The type of the result.
    """
    quotients, remainders = added.unbind(-1)
    if factor != 1.0:
        sums = quotients.double() * members + remainders.double()
        return clamped(sums.mul_(factor).trunc_().div_(members).trunc_(), dtype)
    whole = quotients + remainders.div(members, rounding_mode="floor")
    fraction = remainders.remainder(members)
    return (whole + ((whole < 0) & (fraction > 0)).long()).to(dtype)


def clamped(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return whole numbers in float64 as integers, clamped to the range of their type."""
    limits = torch.iinfo(dtype)
    return numbers.clamp_(float(limits.min), min(float(limits.max), _LARGEST)).to(dtype)
