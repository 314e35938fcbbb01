"""The worker of `run`: fetches the function, calls it, and stores the result.

Run as `python -m sirtaki.launch.task` with the variables of a worker.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from sirtaki import keras_2, shipped
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.rendezvous.stores.unix_store import SCHEME
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.schedulers.table import find_start

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

PREFIX = "run"
# Less than the store's limit for one value.
_PART_BYTES = 32 << 20
_STORE_SECONDS = 60.0


def put(store: Store, key: str, data: bytes) -> None:
    """Store bytes of any length under `key`."""
    starts = range(0, len(data), _PART_BYTES)
    for number, start in enumerate(starts):
        store.set(f"{key}/{number}", data[start : start + _PART_BYTES])
    # Last, so that a reader of this key finds all parts.
    store.set(key, str(len(starts)).encode())


def fetch(store: Store, key: str, timeout: float) -> bytes:
    """Return the bytes stored by `put`, waiting up to `timeout` seconds. Raises TimeoutError."""
    count = int(store.get(key, timeout))
    return b"".join(store.get(f"{key}/{number}", _STORE_SECONDS) for number in range(count))


def peek(server: JobServer, key: str) -> bytes | None:
    """Return the bytes stored by `put`, None if there are none."""
    count = server.peek(key)
    if count is None:
        return None
    return b"".join(server.peek(f"{key}/{number}") or b"" for number in range(int(count)))


def main() -> int:
    """Run as one rank; returns 0, or 1 when the function raised."""
    rank = _own_rank()
    address = os.environ["SIRTAKI_RENDEZVOUS"]
    secret = None if address.startswith(SCHEME) else _secret(rank)
    store = open_store(address, _STORE_SECONDS, secret)
    try:
        result = _returned(_call(store), rank)
    except BaseException as error:
        if isinstance(error, SystemExit) and isinstance(error.code, int) and _has_left():
            return error.code
        traceback.print_exc()
        result = _failure(error)
    if (process := os.environ.get("SIRTAKI_PROCESS")) is not None:
        rank, result["rank"] = int(process), _last_rank()
    put(store, f"{PREFIX}/result/{rank}", pickle.dumps(result))
    return 1 if "text" in result else 0


def _secret(rank: int) -> bytes:
    path = os.environ["SIRTAKI_SECRET_FILE"]
    try:
        return read_secret(path)
    except FileNotFoundError:
        raise SystemExit(
            f"rank {rank} ({socket.gethostname()}): the job's secret, {path}, is not on this host; "
            "set SIRTAKI_SHARED_DIR to a folder on a file system that all hosts of the job share"
        ) from None
    except PermissionError as error:
        raise SystemExit(f"rank {rank} ({socket.gethostname()}): {error}") from None


def _own_rank() -> int:
    if "HOROVOD_RANK" in os.environ:
        return int(os.environ["HOROVOD_RANK"])
    start = find_start(os.environ)
    if start is None:
        raise RuntimeError("what started this worker does not tell its rank")
    return start.topology.rank


def _last_rank() -> int:
    """Return this process's rank in its last world, -1 if it joined none."""
    elastic = sys.modules.get("sirtaki.core.elastic")
    if elastic is None or not elastic.is_elastic():
        return -1
    return int(elastic.current_place().topology.rank)


def _has_left() -> bool:
    """Return whether this process exits because its elastic job asked it to."""
    elastic = sys.modules.get("sirtaki.core.elastic")
    return elastic is not None and bool(elastic.has_left())


def _call(store: Store) -> Any:
    surroundings = json.loads(fetch(store, f"{PREFIX}/surroundings", _STORE_SECONDS))
    if list(sys.version_info[:2]) != surroundings["python"]:
        ours, theirs = sys.version_info[:2], surroundings["python"]
        raise RuntimeError(
            f"this worker runs Python {ours[0]}.{ours[1]}, the caller of run() "
            f"{theirs[0]}.{theirs[1]}: functions cannot be sent between them (see executable=)"
        )
    sys.path += [entry for entry in surroundings["path"] if entry not in sys.path]
    function, args, kwargs = pickle.loads(fetch(store, f"{PREFIX}/call", _STORE_SECONDS))
    return function(*args, **kwargs)


def _returned(value: Any, rank: int) -> dict[str, Any]:
    """Describe a function's result. Each part can be unpickled without the others."""
    try:
        return {"value": shipped.dumps(value)}
    except Exception as error:
        why = f"the value that rank {rank} returned cannot be sent back: {error!r}"
        return {"error": None, "text": why, "time": time.time()}


def _failure(error: BaseException) -> dict[str, Any]:
    keras_2.add_cure(error)
    # The hosts' clocks agree well enough to determine which rank failed first.
    data = shipped.error_bytes(error)
    return {"error": data, "text": traceback.format_exc(), "time": time.time()}


if __name__ == "__main__":
    sys.exit(main())
