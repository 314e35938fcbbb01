"""How long an operation takes among hosts: the plans of cpp/collectives as formulas.

docs/design/prediction.md explains them. The numbers are those of `Cut` and `algorithm_for` there.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from sirtaki.observe.predict.link import Link

# Hosts that all talk to each other; more exchange sums in halves.
DIRECT_HOSTS = 8
_SMALL_BYTES = 16 << 10
_GATHERED_BYTES = 64 << 10
_CHUNK_BYTES = 96 << 10
_LEAST_SLICE = 32 << 10
_STAGING_BYTES = 20 << 20
_SLOT_BYTES = 3 << 20
_LINE = 64
# What is lost of a link for each host more that sends to it at once, because packets are dropped.
_CROWDED = 0.011


class Setting(NamedTuple):
    """What an operation runs on.

    ranks: of a host. cost: seconds of a core for each byte that a rank sends, and receives. waking:
    seconds until a thread runs when what it waits for is there.
    """

    hosts: int
    ranks: int
    link: Link
    cost: float
    waking: float = 0.0


def sent_bytes(kind: str, size: float, hosts: int, ranks: int) -> float:
    """Return how many bytes a host sends for an operation with tensors of `size` bytes."""
    others = (hosts - 1) / hosts
    if kind == "allreduce":
        return 2 * others * size
    if kind == "allgather":
        return (hosts - 1) * ranks * size
    if kind in ("alltoall", "reducescatter"):
        return others * ranks * size
    return size  # from one host to the next


def seconds_of(kind: str, size: float, setting: Setting) -> float:
    """Return how long the hosts move the data of an operation on which they agree."""
    hosts, ranks, link, cost, waking = setting
    half = link.round_trip / 2 + waking
    if hosts == 1:
        return 0.0
    if kind == "allreduce" and not _goes_at_once(size, hosts):
        return _pipelined(size, setting)
    if kind in ("allreduce", "barrier"):
        blocks = [had - left for had, left in pairwise(_kept(hosts))]
        return sum(half + size * each * (1 / link.rate + cost) for each in blocks)
    sent_in_all = sent_bytes(kind, size, hosts, ranks)
    return half + max(sent_in_all / link.rate, sent_in_all / ranks * cost)


def _goes_at_once(size: float, hosts: int) -> bool:
    return size <= _SMALL_BYTES and size * (hosts - 1) <= _GATHERED_BYTES


def _kept(hosts: int) -> list[int]:
    """Return of how many hosts' blocks a host has sums before and after each step."""
    radix = hosts if hosts <= DIRECT_HOSTS else 2
    kept = [hosts]
    while kept[-1] > 1:
        kept.append(-(-kept[-1] // radix))
    return kept


class Pipeline(NamedTuple):
    """A sum in chunks.

    chunks: how many. phases: what a host sends for a chunk, bytes in each phase of it. ahead: so
    many chunks are sent in a phase before the first of them must have arrived.
    """

    chunks: int
    phases: list[float]
    ahead: int


def pipeline(size: float, hosts: int, ranks: int) -> Pipeline:
    """Return how a sum of so many bytes is cut."""
    kept = _kept(hosts)
    steps = len(kept) - 1
    once, shared = steps == 1, ranks > 1
    ahead = (2 if shared else 8) if once else 1
    most = (_SLOT_BYTES if shared else _STAGING_BYTES) / 2 / (2 * steps * ahead + 3)
    sharers = hosts * ranks if once else ranks
    piece = max(size / sharers / (8 if once else 64), _LEAST_SLICE)
    chunk = max(_LINE, min(min(piece, _CHUNK_BYTES) * sharers, most) // _LINE * _LINE)
    count = max(1, -int(-size // chunk))
    there = [(had - left) / hosts * size / count for had, left in pairwise(kept)]
    return Pipeline(count, [*there, *reversed(there)], ahead)


@lru_cache(1 << 14)
def _pipelined(size: float, setting: Setting) -> float:
    """Follow the chunks through their phases as the engine does, with all hosts alike."""
    hosts, ranks, link, cost, waking = setting
    cut = pipeline(size, hosts, ranks)
    senders = hosts - 1 if len(cut.phases) == 2 else 1
    rate = link.rate / (1 + _CROWDED * (senders - 1))
    now = free = 0.0
    arrived: dict[tuple[int, int], float] = {}
    for turn in range(1, cut.chunks + 1 + len(cut.phases) * cut.ahead):
        for phase in range(len(cut.phases) + 1):
            chunk = turn - 1 - phase * cut.ahead
            if not 0 <= chunk < cut.chunks:
                continue
            there = arrived.pop((chunk, phase - 1), 0.0)
            now = there + waking if there > now else now
            if phase == len(cut.phases):
                continue
            sent = cut.phases[phase]
            now += sent / ranks * cost
            free = max(free, now) + sent / rate
            arrived[chunk, phase] = free + link.round_trip / 2
    return now
