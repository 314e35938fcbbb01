"""Records of groups of `torch.distributed` in the format of PyTorch's flight recorder.

`torchfrtrace FOLDER/torch` reads them: a pickled dict for each rank of the job, of plain values.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sirtaki.hang.answers import job_of, numbering
from sirtaki.questions.messages import RankAnswer

FLIGHT_RECORDS = "torch"
_VERSION = "2.10"
# PyTorch's names of operations, under a backend that its reader knows.
_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "gather": "gather",
    "reduce": "reduce",
    "reducescatter": "reduce_scatter",
    "scatter": "scatter",
}
_DTYPES = {
    "uint8": ("Byte", 1),
    "int8": ("Char", 1),
    "bool": ("Bool", 1),
    "int16": ("Short", 2),
    "float16": ("Half", 2),
    "bfloat16": ("BFloat16", 2),
    "int32": ("Int", 4),
    "float32": ("Float", 4),
    "int64": ("Long", 8),
    "float64": ("Double", 8),
    "complex64": ("ComplexFloat", 8),
    "complex128": ("ComplexDouble", 16),
}
# Each rank has its own part of these, so sizes need not agree.
_UNEVEN = ("alltoall", "gather", "scatter")


@dataclass
class _Group:
    """members: their numbers in the job. operations: the members' records, by number."""

    name: str
    members: list[int]
    operations: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)

    def aligned(self, rank: int) -> Iterator[Mapping[str, Any]]:
        """Yield the operations of a rank that every member still has on record."""
        firsts = [each[0]["number"] for each in self.operations.values() if each]
        for one in self.operations.get(rank, ()):
            if one["number"] >= max(firsts):
                yield one


def flight_records(answers: Sequence[RankAnswer]) -> dict[int, bytes]:
    """Return the file of each rank; none if no group of `torch.distributed` is known.

    Args:
        answers: The answers of the ranks; see `questions.collect`.
    """
    groups = _groups(answers)
    stacks = {rank: one.stack for rank, one in job_of(answers).ranks.items()}
    # Other ranks of the host know the records of ranks that have ended.
    known = {answer["rank"] for answer in answers}.union(*(group.operations for group in groups))
    found: dict[int, bytes] = {}
    for rank in sorted({rank for group in groups for rank in group.members} & known):
        ours = [group for group in groups if rank in group.members]
        timed = [(one, group) for group in ours for one in group.aligned(rank)]
        timed.sort(key=lambda pair: -(pair[0]["submitted"] or 0.0))
        entries = [
            _entry(number, group, one, rank) for number, (one, group) in enumerate(timed, start=1)
        ]
        if entries and entries[-1]["state"] != "completed":
            entries[-1]["frames"] = [
                {"name": each.function, "filename": each.file, "line": each.line}
                for each in stacks.get(rank, ())
            ]
        config = {g.name: {"desc": "undefined", "ranks": str(g.members)} for g in ours}
        found[rank] = pickle.dumps(
            {"version": _VERSION, "pg_config": config, "pg_status": {}, "entries": entries}
        )
    return found


def _groups(answers: Sequence[RankAnswer]) -> list[_Group]:
    found: dict[str, _Group] = {}
    for answer in answers:
        for world in answer.get("work") or ():
            if not world.get("members"):
                continue
            name = world["label"].removeprefix("group ")
            group = found.setdefault(world["key"], _Group(name, list(world["members"])))
            of_job = numbering(world, 0, {})
            for state in world["ranks"]:
                rank = of_job(state["rank"])
                records = [one for one in state.get("recorded", ()) if _is_shown(one)]
                if rank is not None and records:
                    group.operations[rank] = sorted(records, key=lambda one: int(one["number"]))
    return list(found.values())


def _is_shown(one: Mapping[str, Any]) -> bool:
    """Return whether PyTorch has this operation: not a message, and not the end of a group."""
    return bool(one["number"]) and one["kind"] in _NAMES and one["name"] != "farewell"


def _entry(number: int, group: _Group, one: Mapping[str, Any], rank: int) -> dict[str, Any]:
    dtype, size = _DTYPES.get(one["dtype"], ("Byte", 1))
    count = 0 if one["kind"] in _UNEVEN else one["bytes"] // size
    given, taken = count, count
    if one["kind"] == "allgather":
        taken *= len(group.members)
    elif one["kind"] == "reducescatter":
        taken //= len(group.members)
    state = "completed" if one["stage"] == "done" else "started" if one["begun"] else "scheduled"
    now = time.time_ns()
    times = {name: _at(one[name], now) for name in ("submitted", "begun", "ended")}
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": (group.name, "undefined"),
        "collective_seq_id": one["number"],
        "p2p_seq_id": 0,
        "op_id": one["number"],
        "profiling_name": f"gloo:{_NAMES[one['kind']]}",
        "input_sizes": [[given]],
        "input_dtypes": [dtype],
        "output_sizes": [[taken]],
        "output_dtypes": [dtype],
        "state": state,
        "time_created_ns": times["submitted"],
        "time_discovered_started_ns": times["begun"],
        "time_discovered_completed_ns": times["ended"] if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 0,
        "is_p2p": False,
        "frames": [],
    }


def _at(age: float | None, now: int) -> int | None:
    return None if age is None else now - int(age * 1e9)
