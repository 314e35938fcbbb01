"""Names of an optimizer's parameters, and their division into buckets."""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.world import World

_SMALL_BYTES = 16 << 10
_TOGETHER_BYTES = 256 << 10


# The current world, and the number of optimizers of each process set.
_world: weakref.ref[World] | None = None
_optimizers: Counter[tuple[int, ...]] = Counter()


def name_of_unnamed(process_set: ProcessSet) -> str:
    """Return the name prefix of a new optimizer's unnamed parameters.

    It is unique among the process set's optimizers and the same on all ranks, which create their
    optimizers in the same order.
    """
    global _world
    world = state.current_world()
    if _world is None or _world() is not world:
        _world = weakref.ref(world)
        _optimizers.clear()
    number_of(process_set)  # raises if the set is not registered
    # Not its number, which later sets of other ranks have again.
    ranks = tuple(process_set.ranks or ())
    _optimizers[ranks] += 1
    count = _optimizers[ranks]
    return "noname" if count == 1 else f"optimizer{count}.noname"


def name_parameters(
    param_groups: Sequence[dict[str, Any]],
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    unnamed: str,
) -> dict[torch.Tensor, str]:
    """Return the given names, or names generated from positions in the optimizer's groups.

    Args:
        param_groups: the optimizer's groups.
        named_parameters: pairs of a name and a parameter, or None.
        unnamed: the prefix of generated names.

    Raises:
        ValueError: names are given, but not as (name, parameter) pairs, or two parameters have
            the same name, or a parameter has none.
    """
    if named_parameters is None:
        return {
            p: f"{unnamed}.{i}.{j}"
            for i, group in enumerate(param_groups)
            for j, p in enumerate(group["params"])
        }
    pairs = list(named_parameters)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(
                "named_parameters must be (name, parameter) pairs, as model.named_parameters() "
                f"gives them, got {type(pair).__name__}"
            )
    repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"named_parameters: names must be unique, repeated: {sorted(repeated)}")
    names = {p: name for name, p in pairs}
    nameless = [
        f"parameter {j} of group {i}, of shape {tuple(p.shape)}"
        for i, group in enumerate(param_groups)
        for j, p in enumerate(group["params"])
        if p not in names
    ]
    if nameless:
        raise ValueError(f"named_parameters: names are missing for {'; '.join(nameless)}")
    return names


def partition(
    param_groups: Sequence[dict[str, Any]],
    names: dict[torch.Tensor, str],
    groups: int | Sequence[Sequence[torch.Tensor]] | None,
    process_set: ProcessSet,
) -> list[list[torch.Tensor]]:
    """Return the optimizer's parameters as lists that are each reduced together.

    Args:
        param_groups: the optimizer's groups.
        names: the names of all parameters.
        groups: a number of lists of about equal length; or the lists themselves, to which all other
            parameters are added one by one; 0 or None: one by one, except for small ones.
        process_set: its first rank determines the order in which lists are filled.

    Raises:
        ValueError: `groups` has another type, or contains a parameter twice, or the ranks have
            parameters of different names and cannot divide them equally.
    """
    params = [p for group in param_groups for p in group["params"]]
    if groups is None or (isinstance(groups, int) and groups == 0):
        return _coalesce(params, names)
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups must not be negative")
        return _split(params, names, groups, process_set)
    if not isinstance(groups, list | tuple) or not all(isinstance(g, list | tuple) for g in groups):
        raise ValueError("groups must be a number or lists of tensors")
    members = [p for group in groups for p in group]
    if not all(isinstance(p, torch.Tensor) for p in members):
        raise ValueError("groups must consist of tensors")
    if len({id(p) for p in members}) < len(members):
        raise ValueError("a parameter can be in one group only")
    # A frozen parameter would delay its group.
    trained = {id(p) for p in params if p.requires_grad}
    together = [[p for p in group if id(p) in trained] for group in groups]
    grouped = {id(p) for group in together for p in group}
    return [group for group in together if group] + [[p] for p in params if id(p) not in grouped]


def _coalesce(
    params: list[torch.Tensor], names: dict[torch.Tensor, str]
) -> list[list[torch.Tensor]]:
    """Merge small parameters, roughly in the order in which backward reaches them.

    The order is that of their names, which all ranks share, whatever their list order.
    """
    # Reducing a small gradient takes less time than Python needs to start it.
    together: list[list[torch.Tensor]] = []
    room = 0
    for p in sorted(params, key=lambda p: _by_number(names[p]), reverse=True):
        size = p.numel() * p.element_size()
        if not p.requires_grad or size > _SMALL_BYTES:
            continue
        if size > room:
            together.append([])
            room = _TOGETHER_BYTES
        together[-1].append(p)
        room -= size
    small = {id(p) for group in together for p in group}
    return [[p] for p in params if id(p) not in small] + together


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts layer 10 after layer 9."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _split(
    params: list[torch.Tensor],
    names: dict[torch.Tensor, str],
    count: int,
    process_set: ProcessSet,
) -> list[list[torch.Tensor]]:
    trained = [p for p in params if p.requires_grad]
    order = [names[p] for p in trained]
    if process_set.included() and process_set.ranks:
        order = broadcast_object(order, process_set.ranks[0], "parameter_order", process_set)
    by_name = {names[p]: p for p in trained}
    if by_name.keys() != set(order):
        differ = ", ".join(sorted(by_name.keys() ^ set(order)))
        raise ValueError(
            f"groups={count}: the ranks must have parameters of the same names, but this rank and "
            f"the first rank differ in {differ}"
        )
    ordered = [by_name[name] for name in order]
    count = min(count, len(ordered))
    bounds = [len(ordered) * i // count for i in range(count + 1)] if count else []
    together = [ordered[a:b] for a, b in pairwise(bounds)]
    return together + [[p] for p in params if not p.requires_grad]
