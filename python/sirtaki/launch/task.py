"""What a worker of `run` does: fetch the function, call it, hand back what it returns.

Run as `python -m sirtaki.launch.task` with the variables that every worker has.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from sirtaki.launch import sources
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.rendezvous.stores.unix_store import SCHEME
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.rendezvous.world.started_by import find_start

if TYPE_CHECKING:
    from sirtaki.launch.plan import JobServer

PREFIX = "run"
# Within the store's limit for one value.
_PART_BYTES = 32 << 20
_STORE_SECONDS = 60.0


def put(store: Store, key: str, data: bytes) -> None:
    """Store bytes of any length under `key`."""
    starts = range(0, len(data), _PART_BYTES)
    for number, start in enumerate(starts):
        store.set(f"{key}/{number}", data[start : start + _PART_BYTES])
    # Last, so that whoever finds it finds all.
    store.set(key, str(len(starts)).encode())


def fetch(store: Store, key: str, timeout: float) -> bytes:
    """Return what `put` has stored, waiting up to `timeout` seconds. Raises TimeoutError."""
    count = int(store.get(key, timeout))
    return b"".join(store.get(f"{key}/{number}", _STORE_SECONDS) for number in range(count))


def peek(server: JobServer, key: str) -> bytes | None:
    """Return the bytes that `put` has stored, None when it has not."""
    count = server.peek(key)
    if count is None:
        return None
    return b"".join(server.peek(f"{key}/{number}") or b"" for number in range(int(count)))


def main() -> int:
    """Work as one rank; returns 0, or 1 when the function raised."""
    rank = _own_rank()
    address = os.environ["SIRTAKI_RENDEZVOUS"]
    secret = None if address.startswith(SCHEME) else _secret(rank)
    store = open_store(address, _STORE_SECONDS, secret)
    try:
        result: dict[str, Any] = {"value": _call(store)}
    except BaseException as error:
        if isinstance(error, SystemExit) and isinstance(error.code, int) and _has_left():
            return error.code
        traceback.print_exc()
        result = _failure(error)
    if (process := os.environ.get("SIRTAKI_PROCESS")) is not None:
        rank, result["rank"] = int(process), _last_rank()
    put(store, f"{PREFIX}/result/{rank}", _pickled(result, rank))
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
    """The rank of this process in its last world, -1 where its function came to none."""
    elastic = sys.modules.get("sirtaki.core.elastic")
    if elastic is None or not elastic.is_elastic():
        return -1
    return int(elastic.current_place().topology.rank)


def _has_left() -> bool:
    """Whether this process exits because its elastic job wants it to."""
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
    sources.remember(surroundings["sources"])
    import cloudpickle

    function, args, kwargs = cloudpickle.loads(fetch(store, f"{PREFIX}/call", _STORE_SECONDS))
    return function(*args, **kwargs)


def _failure(error: BaseException) -> dict[str, Any]:
    # The clocks of hosts agree well enough to tell the caller who failed first.
    return {"error": error, "text": traceback.format_exc(), "time": time.time()}


def _pickled(result: dict[str, Any], rank: int) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(result)
        if "text" in result:
            # Some exceptions can be written but not read again.
            cloudpickle.loads(data)
        return data
    except Exception as error:
        if "text" not in result:
            why = f"the value that rank {rank} returned cannot be sent back: {error!r}"
            result.update(text=why, time=time.time())
        return bytes(cloudpickle.dumps({**result, "value": None, "error": None}))


if __name__ == "__main__":
    sys.exit(main())
