"""Guards against silent faults: values that differ among ranks, or are not finite."""

from __future__ import annotations

import hashlib
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, ValuesView
from typing import Any

from sirtaki.checkpoint.framework import Framework
from sirtaki.core.errors import DivergedError, NotFiniteError
from sirtaki.core.operations.objects import allgather_object
from sirtaki.core.world import state as world


class Guards:
    """Guards of a framework.

    Args:
        framework: Knows its arrays.
    """

    DivergedError = DivergedError
    NotFiniteError = NotFiniteError

    def __init__(self, framework: Framework) -> None:
        self._framework = framework

    def require_equal(self, value: Any) -> None:
        """Compare hashes of all arrays across ranks; all ranks call it together.

        Ranks exchange 16 bytes per array. Every byte is hashed, so call it once every few hundred
        steps.

        Args:
            value: A model, an optimizer, an elastic state, or a tree or iterator of these or of
                arrays.

        Raises:
            DivergedError: Ranks differ from most others; on all ranks.
            HorovodInternalError: A rank was lost.
        """
        arrays = [(_place_of(name), name, self._hash(leaf)) for name, leaf in self._arrays(value)]
        own = {place: hashed for place, _, hashed in arrays}
        who = socket.gethostname()
        told = allgather_object((own, who), "guards.equal") if world.is_initialized() else []
        if any(hashes != own for hashes, _ in told):
            names = {place: name for place, name, _ in arrays}
            hashes, hosts = [each[0] for each in told], [each[1] for each in told]
            raise DivergedError(_difference(hashes, hosts, names))

    def require_finite(self, value: Any) -> None:
        """Check for infinities and NaNs on this rank alone.

        Call it with gradients before they are reduced: the sum would spread them to all ranks.

        Args:
            value: Gradients, or whatever `require_equal` takes.

        Raises:
            NotFiniteError: There is one; the message names this rank and the first such array.
        """
        for name, leaf in self._arrays(value):
            if not self._framework.is_finite(leaf):
                raise not_finite(name)

    def _hash(self, leaf: Any) -> bytes:
        array = self._framework.to_host(leaf)
        hashed = hashlib.blake2b(f"{array.dtype} {array.shape} ".encode(), digest_size=16)
        hashed.update(array.data.data)
        return hashed.digest()

    def _arrays(self, value: Any) -> Iterator[tuple[str, Any]]:
        return self._walk(self._framework.capture(value), "")

    def _walk(self, tree: Any, name: str) -> Iterator[tuple[str, Any]]:
        if self._framework.is_object(tree):
            tree = self._framework.capture(tree)
        if self._framework.is_array(tree):
            yield name, tree
        elif isinstance(tree, Mapping):
            for key, each in tree.items():
                yield from self._walk(each, f"{name}.{key}" if name else str(key))
        elif isinstance(tree, list | tuple | Iterator | ValuesView):
            for index, each in enumerate(tree):
                yield from self._walk(each, f"{name}[{index}]")
        elif not name and tree is not None:
            raise TypeError(
                f"hvd.guards found no arrays in a value of type {type(tree).__name__}: pass a "
                f"model, an optimizer, or arrays of {self._framework.name}"
            )


def named_variables(value: Any) -> dict[str, Any] | None:
    """Return the variables of a model or an optimizer of Keras or TensorFlow by name, if any."""
    variables = getattr(value, "variables", None)
    if callable(variables):  # an optimizer of Keras 2
        variables = variables()
    if not isinstance(variables, list | tuple):
        return None
    return {f"variables[{index}] ({each.name})": each for index, each in enumerate(variables)}


def _place_of(name: str) -> str:
    """Return a name of `named_variables` without its variable's: Keras counts layers by rank."""
    return re.sub(r"^(variables\[\d+\]) \(.*\)$", r"\1", name)


def not_finite(name: str) -> NotFiniteError:
    """Return the error for an array of this rank."""
    rank = world.rank() if world.is_initialized() else 0
    return NotFiniteError(
        f"rank {rank} ({socket.gethostname()}): {name} has infinite values or NaN; "
        "look at this rank's inputs of this step, and go on from the last checkpoint"
    )


def _difference(hashes: list[dict[str, bytes]], hosts: list[str], names: Mapping[str, str]) -> str:
    """Describe which ranks differ from most others, and in which arrays; names: by their places."""
    keys = [tuple(each.items()) for each in hashes]
    usual, count = Counter(keys).most_common(1)[0]
    different = [rank for rank, key in enumerate(keys) if key != usual]
    first = hashes[different[0]]
    name = next((n for n, hashed in usual if first.get(n) != hashed), "the names")
    ranks = ", ".join(f"{rank} ({hosts[rank]})" for rank in different)
    which = f"differ from {count} others" if count > 1 else "differ from rank 0"
    return (
        f"ranks {ranks} {which}, first in {names.get(name, name)}: go on from the last "
        "checkpoint without the hosts that are named, or look for what these ranks did differently"
    )
