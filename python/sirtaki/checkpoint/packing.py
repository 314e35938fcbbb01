"""Trees of Python containers as JSON, with their arrays stored separately."""

from __future__ import annotations

import base64
import pickle
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from sirtaki.checkpoint.framework import Framework
from sirtaki.core.errors import CheckpointError

_PLAIN = (type(None), bool, int, float, str)


def pack(tree: Any, framework: Framework, arrays: list[Any]) -> Any:
    """Return a tree as JSON objects.

    Args:
        tree: Dicts, lists, tuples, arrays, numbers and strings; other objects are pickled.
        framework: Knows which leaves are arrays.
        arrays: The tree's arrays are appended here.

    Raises:
        CheckpointError: An object cannot be pickled; the message gives its location.
    """
    return _Packer(framework, arrays).pack(tree, "state")


class _Packer:
    def __init__(self, framework: Framework, arrays: list[Any]) -> None:
        self._framework = framework
        self._arrays = arrays

    def pack(self, value: Any, where: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if self._framework.is_array(value):
            self._arrays.append(value)
            return {"array": len(self._arrays) - 1}
        if type(value) in (dict, OrderedDict):
            pairs = [
                [self.pack(key, where), self.pack(each, f"{where}[{key!r}]")]
                for key, each in value.items()
            ]
            return {"dict": pairs}
        if type(value) is Counter:  # PyTorch's MultiStepLR has one
            return {"counter": [[self.pack(key, where), count] for key, count in value.items()]}
        if type(value) in (list, tuple):
            parts = [self.pack(each, f"{where}[{i}]") for i, each in enumerate(value)]
            return {type(value).__name__: parts}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        return _pickled(value, where)


def _pickled(value: Any, where: str) -> Any:
    try:
        data = pickle.dumps(value)
    except Exception as error:
        raise CheckpointError(
            f"{where}, a {type(value).__qualname__}, can be no part of a checkpoint, for it cannot "
            f"be pickled: {error}; leave it out, or give it state_dict() and load_state_dict()"
        ) from error
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return {"pickle": base64.b64encode(data).decode(), "class": name, "where": where}


def unpack(packed: Any, arrays: Sequence[Any], trusted: bool) -> Any:
    """Return the tree that was passed to `pack`.

    Args:
        packed: JSON objects.
        arrays: The arrays, in the order of `pack`.
        trusted: Whether to unpickle, which runs code that the file names.

    Raises:
        CheckpointError: An object needs unpickling, and `trusted` is False.
    """
    if not isinstance(packed, dict):
        return packed

    def again(each: Any) -> Any:
        return unpack(each, arrays, trusted)

    if "array" in packed:
        return arrays[packed["array"]]
    if "dict" in packed:
        return {again(key): again(value) for key, value in packed["dict"]}
    if "counter" in packed:
        return Counter({again(key): count for key, count in packed["counter"]})
    if "list" in packed:
        return [again(each) for each in packed["list"]]
    if "tuple" in packed:
        return tuple(again(each) for each in packed["tuple"])
    if "bytes" in packed:
        return base64.b64decode(packed["bytes"])
    if not trusted:
        raise CheckpointError(
            f"{packed['where']} is a pickled {packed['class']}, and unpickling runs code that the "
            "file names: pass trusted=True to load() if you trust whoever wrote it"
        )
    return pickle.loads(base64.b64decode(packed["pickle"]))


def shares(sizes: Sequence[int], parts: int) -> list[int]:
    """Return the part of each array, so that parts have about the same number of bytes.

    Args:
        sizes: The arrays' bytes.
        parts: The number of parts.
    """
    chosen = [0] * len(sizes)
    filled = [0] * parts
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        part = filled.index(min(filled))
        chosen[index] = part
        filled[part] += sizes[index]
    return chosen
