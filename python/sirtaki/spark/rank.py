"""A rank: the process that a Spark task starts. `python -m sirtaki.spark.rank DESCRIPTOR`.

It reads its call from standard input and writes the outcome to the descriptor.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from typing import Any

from sirtaki import shipped
from sirtaki.core import placed
from sirtaki.spark.failures import missing_module_hint
from sirtaki.spark.messages import read_part, write_part


def main() -> int:
    """Run as one rank; return 0, or 1 if the function raised."""
    said, place, call = (read_part(sys.stdin.buffer) for _ in range(3))
    surroundings = json.loads(said)
    try:
        result = _returned(_called(surroundings, place, call))
    except BaseException as error:
        traceback.print_exc()
        result = _raised(error)
    with os.fdopen(int(sys.argv[1]), "wb") as answer:
        write_part(answer, pickle.dumps(result))
    return 1 if "text" in result else 0


def _returned(value: Any) -> dict[str, Any]:
    """Return a function's result as parts that can each be read without the others."""
    try:
        return {"value": shipped.dumps(value)}
    except Exception as error:
        why = f"what this rank returned cannot be sent back: {error!r}"
        return {"error": None, "text": why, "follows": False}


def _raised(error: BaseException) -> dict[str, Any]:
    from sirtaki.core.errors import HorovodInternalError

    follows = isinstance(error, HorovodInternalError)
    text = traceback.format_exc()
    return {"error": shipped.error_bytes(error), "text": text, "follows": follows}


def _called(surroundings: dict[str, Any], place: bytes, call: bytes) -> Any:
    _require_same_python(surroundings)
    sys.path += [entry for entry in surroundings["path"] if entry not in sys.path]
    placed.take(pickle.loads(place), surroundings["host"])
    try:
        function, args, kwargs = pickle.loads(call)
    except ModuleNotFoundError as error:
        hint = missing_module_hint(str(error.name))
        raise ModuleNotFoundError(
            f"the function needs a module that this rank's Python ({sys.executable}) does not "
            f"have: {hint}",
            name=error.name,
        ) from error
    return placed.call(function, *args, **kwargs)


def _require_same_python(surroundings: dict[str, Any]) -> None:
    ours = sys.version_info[:2]
    if list(ours) != surroundings["version"]:
        theirs = ".".join(map(str, surroundings["version"]))
        raise RuntimeError(
            f"this rank runs Python {ours[0]}.{ours[1]} ({sys.executable}), the driver {theirs}: "
            "functions cannot be sent between them; set PYSPARK_PYTHON, or give run(executable=…)"
        )


if __name__ == "__main__":
    sys.exit(main())
