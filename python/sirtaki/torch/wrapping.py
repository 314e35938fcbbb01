"""Optimizers that take over another optimizer's identity and add to its behaviour."""

from __future__ import annotations

from typing import TypeVar, cast

import torch

Added = TypeVar("Added", bound=torch.optim.Optimizer)


def adopt(optimizer: torch.optim.Optimizer, added: type[Added]) -> Added:
    """Return an optimizer of a new class, derived from `added` and the optimizer's own class.

    It shares the parameter groups, state and hooks of the given one.
    """
    own = type(optimizer)
    distributed = cast("type[Added]", type(own.__name__, (added, own), {"__doc__": own.__doc__}))
    wrapper = distributed.__new__(distributed)
    wrapper.__dict__.update(optimizer.__dict__)
    # A learning rate scheduler leaves its own `step` there, bound to the optimizer it was given.
    wrapper.__dict__.pop("step", None)
    return wrapper
