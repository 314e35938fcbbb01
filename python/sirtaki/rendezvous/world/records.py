"""The records of ranks, hosts and the world that are exchanged when ranks join, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sirtaki.rendezvous.network.tcp_socket import Endpoint

_FAILURES: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TimeoutError, ConnectionError)
}


@dataclass(frozen=True)
class RankRecord:
    """One rank: its place as far as it knows, where it runs and where it listens.

    local_rank and local_size are 0 if unknown. direct_hosts: its setting of how many hosts are
    linked directly.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    machine: str
    boot: str
    name: str
    version: str
    endpoints: list[Endpoint]
    direct_hosts: int = 8


@dataclass(frozen=True)
class WorldRecord:
    """All ranks, and the world's unique number."""

    ranks: list[RankRecord]
    number: bytes = b""


def pack_ranks(ranks: list[RankRecord]) -> bytes:
    """Encode records."""
    return pack_world(WorldRecord(ranks))


def pack_world(world: WorldRecord) -> bytes:
    """Encode a world."""
    ranks = [vars(record) for record in world.ranks]
    return json.dumps({"ranks": ranks, "number": world.number.hex()}).encode()


def pack_failure(error: Exception) -> bytes:
    """Encode the reason why there will be no world."""
    kind = next((name for name, k in _FAILURES.items() if isinstance(error, k)), "ConnectionError")
    return json.dumps({"kind": kind, "message": str(error)}).encode()


def parse(data: bytes) -> WorldRecord:
    """Decode the result of one of the above functions.

    Raises an encoded failure; ValueError for invalid data.
    """
    try:
        found = json.loads(data)
        if "message" in found:
            failure = _FAILURES[found["kind"]](str(found["message"]))
        else:
            ranks = [_parse_rank(record) for record in found["ranks"]]
            return WorldRecord(ranks, bytes.fromhex(found["number"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a record of ranks cannot be understood: {error!r}") from error
    raise failure


def _parse_rank(found: dict[str, Any]) -> RankRecord:
    counts = ("rank", "size", "local_rank", "local_size", "direct_hosts")
    numbers = {name: found[name] for name in counts}
    texts = {name: found[name] for name in ("host", "machine", "boot", "name", "version")}
    endpoints = [(host, port) for host, port in found["endpoints"]]
    good = (
        all(type(value) is int for value in numbers.values())
        and all(type(value) is str for value in texts.values())
        and all(type(host) is str and type(port) is int for host, port in endpoints)
    )
    if not good or not 0 <= numbers["rank"] < numbers["size"]:
        raise ValueError("it has a field of another kind")
    return RankRecord(**numbers, **texts, endpoints=endpoints)
