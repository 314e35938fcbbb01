"""Trees of containers, numbers, texts and arrays, as JSON and bytes.

Reading runs no code of the file, as unpickling would.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sirtaki.checkpoint.codec import Array
from sirtaki.checkpoint.errors import CheckpointError

_ALIGNMENT = 64
_PLAIN = (bool, int, float, str)


@dataclass
class Encoded:
    """A tree as JSON, and the bytes of its arrays by file.

    Attributes:
        tree: What `decode` reads.
        files: For each file, where each of its arrays begins, and its bytes.
        sizes: The length of each file.
    """

    tree: Any
    files: list[list[tuple[int, Any]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


def encode(
    tree: Any, to_array: Callable[[Any], Array | None], files: int, spread: str = ""
) -> Encoded:
    """Encode a tree.

    Args:
        tree: Of dicts, lists, tuples, numbers, texts, bytes, None and arrays.
        to_array: See `Codec.to_array`.
        files: How many files its arrays are spread over.
        spread: The first key of the arrays that are spread; others are in the first file.

    Raises:
        CheckpointError: A value is nothing of these; the message says where.
    """
    encoder = _Encoder(to_array, files, spread)
    found = Encoded(encoder.encode(tree, ()), encoder.files, encoder.sizes)
    return found


class _Encoder:
    def __init__(self, to_array: Callable[[Any], Array | None], files: int, spread: str) -> None:
        self._to_array = to_array
        self._spread = spread
        self.files: list[list[tuple[int, Any]]] = [[] for _ in range(files)]
        self.sizes = [0] * files

    def encode(self, value: Any, where: tuple[str, ...]) -> Any:
        if value is None or type(value) in _PLAIN:
            return value
        if isinstance(value, dict):
            items = ((k, v, (*where, str(k))) for k, v in value.items())
            return {"dict": [[self.encode(k, at), self.encode(v, at)] for k, v, at in items]}
        if type(value) in (list, tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.encode(v, (*where, str(n))) for n, v in enumerate(value)]}
        if isinstance(value, bytes):
            return {"bytes": base64.b64encode(value).decode()}
        array = self._to_array(value)
        if array is None:
            raise CheckpointError(
                f"a checkpoint cannot hold {'.'.join(where)}, of type {type(value).__name__}: give "
                "numbers, texts, arrays, containers of these, or objects with state_dict() and "
                "load_state_dict()"
            )
        return self._placed(array, where)

    def _placed(self, array: Array, where: tuple[str, ...]) -> Any:
        kind, dtype, shape, data = array
        spread = self._spread and where[:1] == (self._spread,)
        file = min(range(len(self.sizes)), key=self.sizes.__getitem__) if spread else 0
        begin = -(-self.sizes[file] // _ALIGNMENT) * _ALIGNMENT
        self.files[file].append((begin, data))
        self.sizes[file] = begin + len(data)
        return {"array": [kind, dtype, list(shape), file, begin, len(data)]}


def decode(
    tree: Any,
    from_array: Callable[[str, str, tuple[int, ...], bytearray], Any],
    read: Callable[[int, int, int], bytearray],
) -> Any:
    """Return the tree that was encoded.

    Args:
        tree: `Encoded.tree`.
        from_array: See `Codec.from_array`.
        read: Returns bytes of a file: its number, where they begin, and how many.

    Raises:
        CheckpointError: It makes no sense.
    """
    try:
        return _decode(tree, from_array, read)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise CheckpointError(f"what the checkpoint holds makes no sense: {error!r}") from error


def _decode(tree: Any, from_array: Any, read: Any) -> Any:
    if not isinstance(tree, dict):
        if tree is None or type(tree) in _PLAIN:
            return tree
        raise ValueError(f"a value of type {type(tree).__name__}")
    ((kind, content),) = tree.items()
    if kind == "dict":
        pairs = [[_decode(each, from_array, read) for each in pair] for pair in content]
        return {key: value for key, value in pairs}  # noqa: C416
    if kind in ("list", "tuple"):
        found = [_decode(each, from_array, read) for each in content]
        return found if kind == "list" else tuple(found)
    if kind == "bytes":
        return base64.b64decode(content, validate=True)
    if kind != "array":
        raise ValueError(f"a value of kind {kind!r}")
    what, dtype, shape, file, begin, length = content
    return from_array(what, dtype, tuple(shape), read(file, begin, length))
