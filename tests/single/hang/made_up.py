"""Answers of ranks as `questions.collect` returns them."""

from __future__ import annotations

from typing import Any

OWN = ["train.py", 31, "step", "optimizer.step()", True]
LIBRARY = ["/usr/lib/python3.11/threading.py", 327, "wait", "waiter.acquire()", False]


def opened(name: str, stage: str = "submitted", **more: Any) -> dict[str, Any]:
    """An operation that a rank has not ended."""
    fields = {"kind": "allreduce", "set": 0, "seconds": 12.0}
    return {
        "name": name,
        "stage": stage,
        "peer": None,
        "waits": None,
        "chunk": None,
        **fields,
        **more,
    }


def answer(rank: int, size: int, *operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a rank tells that is in these operations, and has ended one 12 s ago.

    more: fields that differ; `place` and `told` (of the rank in its world) add theirs.
    """
    place = {"stack": [OWN], "handles": "", "debugger": "", "call": "", **more.pop("place", {})}
    told = {"rank": rank, "gone": False, "completed": 7, "idle": 12.0, "ended": ["allreduce 'a'"]}
    told = {**told, "open": list(operations), **more.pop("told", {})}
    world = {"label": "", "key": "", "whole": True, "rank": rank, "ranks": [told]}
    return {
        "rank": rank,
        "pid": 1000 + rank,
        "host": f"node{rank // 8}",
        "hosts": [f"node{each // 8}" for each in range(size)],
        "state": "S",
        "traced": False,
        "before": (1.0, 0),
        "after": (1.0, 0),
        "work": [{**world, "sets": {"0": list(range(size))}}],
        "place": place,
        **more,
    }
