"""What `sirtaki top` makes of what ranks tell."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from sirtaki.core.world.snapshot import Doing, Operation, RankState, _work_of, rates_of
from sirtaki.hang.answers import exposed_share, job_of
from sirtaki.inspect.live.view import cells, table, view
from tests.single.hang.made_up import answer, opened


def operation(number: int, name: str, *times: float | None) -> Operation:
    """times: seconds ago when it was submitted, agreed, and ended."""
    submitted, agreed, ended = times
    stage = "submitted" if ended is None else "done"
    return Operation(
        *(number, "allreduce", name, 0, 1000, "float32", stage),
        *(submitted, agreed, agreed, ended, None),
    )


STEPS = [
    operation(1, "a", 10.0, 9.0, 8.0),
    operation(2, "b", 9.5, 8.5, 8.0),
    operation(3, "a", 6.0, 5.0, 4.0),
]


def test_rates_come_from_the_times_of_operations() -> None:
    assert rates_of(STEPS) == {
        "step": 4.0,
        "operations": 0.3,
        "bytes": 300.0,
        "communicating": 0.4,
        "waiting": 0.25,
    }


def test_an_operation_that_waits_counts_until_now() -> None:
    rates = rates_of([*STEPS, operation(4, "a", 3.0, None, None)])
    assert (rates["step"], rates["operations"]) == (4.0, 0.3)
    assert (rates["communicating"], rates["waiting"]) == (0.7, 0.55)


@pytest.mark.parametrize("operations", [[], STEPS[:1], [operation(0, "message", 3.0, 2.0, 1.0)]])
def test_too_few_operations_tell_no_rate(operations: list[Operation]) -> None:
    assert set(rates_of(operations).values()) == {None}


def rated(rank: int, waiting: float, *operations: dict[str, Any]) -> dict[str, Any]:
    rates = {"step": 0.02, "operations": 100.0, "bytes": 3 << 20, "communicating": 0.8}
    told = {**rates, "waiting": waiting, "at": 12.0, "exposed": 4.5, "calls": 90}
    return answer(rank, 2, *operations, told=told, memory=300 << 20)


# What both ranks told ten seconds before.
EARLIER = {rank: {"at": 2.0, "exposed": 3.0, "calls": 60, "completed": 5} for rank in range(2)}


def test_the_rank_that_others_wait_for_is_marked() -> None:
    answers = [rated(0, 0.7, opened("grad")), rated(1, 0.1)]
    seen = view("job", job_of(answers), answers, EARLIER)
    assert [one["slowest"] for one in seen["ranks"]] == [False, True]
    assert [one["waits_for"] for one in seen["ranks"]] == [[1], []]
    assert [" ".join(line.split()) for line in table(seen)[1:]] == [
        "0 20.0 ms 85% 15% 80% 70% - 3 MiB 300 MiB waits in allreduce 'grad', for rank 1",
        "1* 20.0 ms 85% 15% 80% 10% - 3 MiB 300 MiB in no operation; the last one was "
        "allreduce 'a'",
    ]


def test_what_a_rank_does_in_several_groups_is_added_up() -> None:
    answers = [rated(0, 0.7), rated(1, 0.1)]
    for one in answers:
        (world,) = one["work"]
        (told,) = world["ranks"]
        slow = {**told, "step": 0.5, "operations": 2.0, "bytes": 1 << 20, "communicating": 0.9}
        one["work"].append({**world, "key": "part", "whole": False, "ranks": [slow]})
    row = view("job", job_of(answers), answers, {})["ranks"][0]
    assert (row["step"], row["operations"], row["bytes"]) == (0.02, 102.0, 4 << 20)
    assert (row["communicating"], row["waiting"]) == (0.9, 0.7)


@pytest.mark.parametrize(
    ("stage", "peer", "does"),
    [
        ("under way", 1, "in allreduce 'a' and 1 more, waiting for rank 1"),
        ("under way", None, "in allreduce 'a' and 1 more, waiting for rank 1"),
        ("submitted", None, "waits in allreduce 'a' and 1 more, for rank 1"),
    ],
)
def test_the_awaited_rank_is_named_once(stage: str, peer: int | None, does: str) -> None:
    mine = opened("a", stage, peer=peer, waits=1.0), opened("b")
    answers = [rated(0, 0.7, *mine), rated(1, 0.7)]
    one = view("job", job_of(answers), answers, {})["ranks"][0]
    assert cells(one)[-1] == does


def test_ranks_that_are_equally_fast_have_no_mark() -> None:
    answers = [rated(0, 0.12), rated(1, 0.1)]
    assert not any(one["slowest"] for one in view("job", job_of(answers), answers, {})["ranks"])


def test_ranks_of_other_hosts_are_listed_without_numbers() -> None:
    answers = [answer(0, 9, memory=1 << 20)]
    last = view("job", job_of(answers), answers, {})["ranks"][8]
    assert (last["rank"], last["host"], last["step"], last["memory"]) == (8, "node1", None, None)


def known_of(stage: str, count: int) -> dict[str, Any]:
    """What is known of a rank without records here that has so many operations open."""
    doing = Doing(stage, "allreduce", "grad", None, 3.0, count, 7, 0.0, 0.0, 0, "")
    work = _work_of(RankState(1, doing), doing)
    names = [one["name"] for one in work["open"]]
    return {"open": names, "ended": work["ended"], "idle": work["idle"]}


@pytest.mark.parametrize(
    ("stage", "count", "known"),
    [
        ("submitted", 1, {"open": ["grad"], "ended": [], "idle": None}),
        # It is blocked in another world.
        ("submitted", 0, {"open": [], "ended": [], "idle": None}),
        ("done", 0, {"open": [], "ended": ["allreduce 'grad'"], "idle": 3.0}),
    ],
)
def test_of_a_rank_of_another_host_one_operation_is_known(
    stage: str, count: int, known: dict[str, Any]
) -> None:
    assert known_of(stage, count) == known


class TestExposed:
    """What the share of blocked time is taken from: two looks at a rank, ten seconds apart."""

    BEFORE: ClassVar = {"at": 2.0, "exposed": 3.0, "calls": 60, "completed": 100}

    def share(self, **now: float) -> float | None:
        return exposed_share(self.BEFORE, {**self.BEFORE, "at": 12.0, **now})

    def test_it_is_the_share_in_which_calls_have_blocked(self) -> None:
        assert self.share(exposed=5.5, calls=80, completed=140) == 0.25

    def test_operations_beside_the_computation_are_none(self) -> None:
        assert self.share(calls=80, completed=140) == 0.0

    def test_a_call_that_blocks_all_the_time_counts_although_nothing_ends(self) -> None:
        assert self.share(exposed=13.0) == 1.0

    def test_it_is_not_known_where_operations_end_that_nobody_has_called_for(self) -> None:
        assert self.share(completed=140) is None

    def test_it_is_not_known_where_most_operations_have_ended_so(self) -> None:
        assert self.share(calls=79, completed=140) is None

    def test_it_is_not_known_of_another_process(self) -> None:
        assert self.share(exposed=1.0, calls=3, completed=7) is None

    def test_threads_that_block_at_a_time_are_no_more_than_all_the_time(self) -> None:
        assert self.share(exposed=23.0, calls=70) == 1.0
