"""Random programs of collectives, messages and process sets, in several threads, against numpy."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sirtaki as hvd
from tests.parallel.core.inputs import IN_STEP, part

in_step = settings(IN_STEP, max_examples=25)
KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "message")
STEPS = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from([0, 1, 7, 1000, 60_000]),  # rows
    st.integers(0, 2),  # the process set
    st.integers(0, 2**20),  # what else there is to choose
)
PROGRAMS = st.lists(STEPS, min_size=1, max_size=8)
Step = tuple[str, int, int, int]
# Starts a step's part of this rank and returns what checks its result.
Check = Callable[[], None]


def start(step: Step, name: str, tag: int, chosen: hvd.ProcessSet) -> Check | None:
    """Start this rank's part; None if it has none."""
    kind, rows, _, seed = step
    members = chosen.ranks or []
    rank = hvd.rank()
    if rank not in members:
        return None
    if kind == "message":
        return exchange(rows, seed, tag, chosen)
    count = len(members)
    if kind in ("alltoall", "reducescatter"):
        rows *= count
    parts = {r: part(seed, r, (rows, 2), np.int64) for r in members}
    own, place = parts[rank], members.index(rank)
    everything = np.stack(list(parts.values()))
    options: dict[str, Any] = {"name": name, "process_set": chosen}
    if kind == "allreduce":
        handle = hvd.allreduce_async(own, op=hvd.Sum, **options)
        return lambda: expect(hvd.synchronize(handle), everything.sum(0))
    if kind == "allgather":
        handle = hvd.allgather_async(own, **options)
        return lambda: expect(hvd.synchronize(handle), np.concatenate(list(everything)))
    if kind == "broadcast":
        root = members[seed % count]
        handle = hvd.broadcast_async(own, root, **options)
        return lambda: expect(hvd.synchronize(handle), parts[root])
    if kind == "alltoall":
        handle = hvd.alltoall_async(own, **options)
        wanted = np.concatenate([np.split(each, count)[place] for each in everything])
        return lambda: expect(hvd.synchronize(handle)[0], wanted)
    handle = hvd.reducescatter_async(own, op=hvd.Sum, **options)
    return lambda: expect(hvd.synchronize(handle), np.split(everything.sum(0), count)[place])


def exchange(rows: int, seed: int, tag: int, chosen: hvd.ProcessSet) -> Check:
    """Every member sends to the one that is some places further, perhaps itself."""
    members = chosen.ranks or []
    place, distance = members.index(hvd.rank()), seed % len(members)
    dest = members[(place + distance) % len(members)]
    source = members[(place - distance) % len(members)]
    sent, received = part(seed, hvd.rank(), (rows, 2), np.int64), np.zeros((rows, 2), np.int64)
    whose = hvd.ANY_SOURCE if seed % 2 else source
    handles = [
        hvd.irecv(received, whose, tag, chosen),
        hvd.isend(sent, dest, tag, chosen),
    ]

    def check() -> None:
        assert hvd.synchronize(handles[0]) == source
        hvd.synchronize(handles[1])
        expect(received, part(seed, source, (rows, 2), np.int64))

    return check


def expect(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(found, wanted)


def run(program: list[Step], thread: int, sets: list[hvd.ProcessSet]) -> None:
    """Run a program: started in one order, waited for in another, both other ones on each rank."""
    order = random.Random(hvd.rank() * 7 + thread)
    numbered = list(enumerate(program))
    order.shuffle(numbered)
    checks = []
    for number, step in numbered:
        chosen = sets[step[2] % len(sets)]
        check = start(step, f"thread {thread} step {number}", thread * 100 + number, chosen)
        if check is not None:
            checks.append(check)
    order.shuffle(checks)
    for check in checks:
        check()


@in_step
@given(programs=st.lists(PROGRAMS, min_size=1, max_size=3))
def test_programs_give_what_numpy_does(
    sets: list[hvd.ProcessSet], programs: list[list[Step]]
) -> None:
    with ThreadPoolExecutor(len(programs)) as pool:
        done = [pool.submit(run, program, thread, sets) for thread, program in enumerate(programs)]
        for each in done:
            each.result(timeout=120)
    hvd.barrier()
