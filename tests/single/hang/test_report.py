"""What the report of a hang says of answers that are made up."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from sirtaki.hang.analysis import Diagnosis, analyse
from sirtaki.hang.answers import compare, job_of
from sirtaki.hang.report import report, spans
from tests.single.hang.made_up import LIBRARY, answer, opened


def finding_of(answers: list[dict[str, Any]]) -> Diagnosis:
    """After two looks, a second apart, that have found the same."""
    earlier, later = job_of(answers), job_of(answers)
    compare(earlier, later, 1.0)
    return analyse(later)


def waiting(rank: int, size: int, name: str = "grad", **more: Any) -> dict[str, Any]:
    return answer(rank, size, opened(name), **more)


def lines_of(*answers: dict[str, Any]) -> list[str]:
    return report(finding_of(list(answers)), "740e7be5").splitlines()


def test_it_names_who_waits_for_whom_in_what_and_what_the_others_do() -> None:
    assert lines_of(waiting(0, 3), answer(1, 3), waiting(2, 3)) == [
        "stalled: no operation has ended for 12 s; rank 1 held up ranks 0,2",
        "  allreduce 'grad' has waited for 12 s; called by ranks 0,2; missing ranks: 1 (node0)",
        "  likely cause: rank 1 does nothing at train.py:31; the others wait for it",
        "  rank 1 (node0, process 1001): idle, in no operation; the last one was allreduce 'a', "
        "12 s ago",
        "      train.py:31 in step: optimizer.step()",
        "  ranks 0,2 (node0): waits in allreduce 'grad'",
        "      train.py:31 in step: optimizer.step()",
        "  more: sirtaki hang 740e7be5 --stacks, sirtaki stacks 740e7be5",
    ]


def test_a_rank_that_computes_makes_progress() -> None:
    before = [waiting(0, 2), answer(1, 2)]
    after = [waiting(0, 2), answer(1, 2, before=(1.9, 0), after=(1.9, 0))]
    earlier, later = job_of(before), job_of(after)
    compare(earlier, later, 1.0)
    head, *_ = report(analyse(later), "job").splitlines()
    assert head.startswith("waiting, still making progress: rank 1 at work; no operation has")
    assert later.ranks[1].share == pytest.approx(0.9)


def test_a_rank_that_wants_a_core_and_gets_none_is_at_work() -> None:
    head, *_ = lines_of(waiting(0, 2), answer(1, 2, state="R"))
    assert head.startswith("waiting, still making progress: rank 1 at work")


@pytest.mark.parametrize(
    ("missing", "cause"),
    [
        ({"state": "T", "silent": "is stopped"}, "rank 1 is stopped by a signal: kill -CONT 1001"),
        ({"state": "t", "traced": True}, "rank 1 is in a debugger: the job goes on when it does"),
        ({"place": {"debugger": "pdb"}}, "rank 1 is in a debugger (pdb)"),
        ({"state": ""}, "the process of rank 1 is dead"),
        ({"told": {"gone": True}}, "rank 1 has left: it had fewer batches"),
        ({"place": {"call": "input"}}, "rank 1 waits for a line on standard input"),
        ({"busy": "no"}, "rank 1 is in C code that holds Python's lock (GIL)"),
        (
            {"place": {"handles": "ValueError: bad"}},
            "rank 1 handles an exception that the others did not get (ValueError: bad)",
        ),
        (
            {"place": {"stack": [LIBRARY, ["train.py", 9, "main", "t.join()", True]]}},
            "rank 1 waits for a lock or another thread of its own at train.py:9",
        ),
        (
            {"place": {"stack": [["train.py", 9, "main", "x = next(batches)", True]]}},
            "rank 1 waits for its data at train.py:9: a slow loader",
        ),
        ({"place": {"call": "child"}}, "rank 1 waits for another process at train.py:31"),
    ],
)
def test_a_likely_cause_is_named(missing: dict[str, Any], cause: str) -> None:
    lines = lines_of(waiting(0, 2), answer(1, 2, **missing))
    assert lines[2].startswith(f"  likely cause: {cause}"), "\n".join(lines)


ELSEWHERE = {"stack": [["train.py", 50, "validate", "", True]]}


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (
            waiting(1, 2, "weights"),
            "train.py:31 gives other tensor names on other ranks: allreduce 'grad' and allreduce "
            "'weights'",
        ),
        (
            waiting(1, 2, "loss", place=ELSEWHERE),
            "control flow depends on the rank: they wait in allreduce 'grad' and allreduce 'loss': "
            "train.py:31, and train.py:50",
        ),
        (
            waiting(1, 2, "elastic.versions.sz", place=ELSEWHERE),
            "rank 0 calls allreduce 'grad' at train.py:31 while others exchange the elastic state",
        ),
        (
            waiting(1, 2, "elastic.news", place=ELSEWHERE),
            "control flow depends on the rank: they wait in allreduce 'grad' and allreduce "
            "'elastic.news'",
        ),
        (
            waiting(1, 2, "loss", place=ELSEWHERE, told={"ended": ["allreduce 'grad'"]}),
            "rank 1 has come to allreduce 'loss', which no rank had come to before, while others "
            "go on: uneven data",
        ),
        (
            waiting(
                *(1, 2, "loss"),
                place=ELSEWHERE,
                told={"ended": ["allreduce 'grad'", "allreduce 'loss'"]},
            ),
            "ranks call allreduce 'grad' and allreduce 'loss' in a different order",
        ),
    ],
    ids=["names", "control flow", "elastic", "commit", "uneven data", "order"],
)
def test_ranks_that_wait_for_one_another_are_told_apart(other: dict[str, Any], cause: str) -> None:
    lines = lines_of(waiting(0, 2), other)
    assert lines[0].endswith("; ranks 0-1 wait for one another")
    assert lines[3].startswith(f"  likely cause: {cause}"), "\n".join(lines)


def test_a_rank_that_holds_up_data_is_found_behind_those_that_wait_for_it() -> None:
    under_way = {"seconds": 12.0, "chunk": 3}
    lines = lines_of(
        answer(0, 3, opened("grad", "under way", peer=1, waits=11.0, **under_way)),
        answer(1, 3, opened("grad", "under way", peer=2, waits=11.0, **under_way)),
        answer(2, 3, opened("grad", "under way", **under_way), state="T", silent="is stopped"),
    )
    assert lines[0] == "stalled: no operation has ended for 11 s; rank 2 held up ranks 0-1"
    assert "rank 2 is stopped by a signal" in lines[2]


def test_an_accelerator_that_does_not_complete_is_named() -> None:
    lines = lines_of(*(answer(rank, 2, opened("grad", "handed over")) for rank in range(2)))
    assert lines[0] == "stalled: no operation has ended for 12 s, and no rank is missing"
    assert lines[1].endswith("handed to the accelerator, which has not completed it")


@pytest.mark.parametrize("seen", ["by the engine", "by the accelerator"])
def test_the_accelerator_that_did_nothing_is_named_and_not_the_ranks_that_wait_for_it(seen: str):
    grad = opened("grad", "handed over")
    if seen == "by the engine":
        others = [answer(rank, 3, grad) for rank in (0, 2)]
    else:
        others = [answer(rank, 3, place={"device": {"": [grad]}}) for rank in (0, 2)]
    lines = lines_of(waiting(1, 3, "next"), *others)
    assert lines[0] == "stalled: no operation has ended for 12 s; rank 1 held up ranks 0,2"
    assert lines[1].endswith("; called by ranks 0,2; their accelerators wait for that of rank 1")
    cause = "the accelerator of rank 1 did nothing in allreduce 'grad', or has not come to it"
    assert f"  likely cause: {cause}" in lines
    assert "  ranks 0,2 (node0): in allreduce 'grad', handed to its accelerator" in lines


def test_a_message_that_is_not_sent_names_its_peer() -> None:
    message = {"kind": "receive", "peer": 1, "waits": 12.0}
    lines = lines_of(answer(0, 2, opened("tag 5", "under way", **message)), answer(1, 2))
    assert lines[1].startswith("  receive with tag 5 has waited for 12 s; called by rank 0; miss")


def test_who_has_joined_is_not_missed() -> None:
    lines = lines_of(waiting(0, 3), answer(1, 3), answer(2, 3, opened("", kind="join")))
    assert lines[0] == "stalled: no operation has ended for 12 s; rank 1 held up rank 0"
    assert lines[1].endswith("; called by rank 0; missing ranks: 1 (node0)")


def test_who_has_joined_waits_for_those_that_have_not() -> None:
    lines = lines_of(answer(0, 2), answer(1, 2, opened("", kind="join")))
    assert lines[0] == "stalled: no operation has ended for 12 s; rank 0 held up rank 1"


def test_ranks_of_hosts_that_do_not_answer_are_named() -> None:
    lines = lines_of(*(waiting(rank, 16) for rank in range(8)))
    assert "  ranks 8-15 (node1): its state is not known" in lines


def test_a_thousand_ranks_fit_on_a_screen_outliers_first() -> None:
    """Each rank is at a line of its own, or in an operation of its own: the worst that can be."""
    size = 1024
    answers = [
        waiting(
            rank,
            size,
            f"grad{rank % 300}",
            place={"stack": [["x" * 300, rank, "step", "y" * 300, True]] * 40},
        )
        for rank in range(size - 1)
    ]
    answers = json.loads(json.dumps([*answers, answer(size - 1, size)]))
    began = time.process_time()
    text = report(finding_of(answers), "job")
    assert time.process_time() - began < 2.0
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 240
    groups = [line for line in text.splitlines() if line.startswith("  rank")]
    assert groups[0].startswith("  rank 1023 (node127, process 2023): idle")
    assert groups[-1].endswith(": each at something else")


def test_a_name_does_nothing_to_a_terminal() -> None:
    lines = lines_of(waiting(0, 2, "\x1b[2J\r\n\u202egrad"), answer(1, 2))
    assert "  allreduce '?[2J???grad' has waited for 12 s; called by rank 0" in lines[1]


def test_numbers_are_written_as_spans() -> None:
    assert spans([3, 1, 2, 7]) == "1-3,7"


def under_way(rank: int, peer: int, **more: Any) -> dict[str, Any]:
    """A rank of two hosts that waits for data of another one in the same operation."""
    return answer(
        rank,
        9,
        opened("grad", "under way", peer=peer, waits=12.0, chunk=3),
        host=f"n{rank}",
        **more,
    )


def test_data_that_do_not_come_from_a_rank_that_runs_point_at_the_network() -> None:
    lines = lines_of(under_way(0, 8), under_way(8, 0))
    assert lines[2] == (
        "  likely cause: the data of allreduce 'grad' come slowly or not at all from n8 to n0: "
        "look at the network between them"
    )


def test_data_of_a_rank_that_is_stopped_do_not_point_at_the_network() -> None:
    lines = lines_of(under_way(0, 8), under_way(8, 0, state="T"))
    assert lines[2] == "  likely cause: rank 8 is stopped by a signal: kill -CONT 1008 resumes it"


def test_members_of_a_group_have_the_numbers_of_the_job_though_none_of_them_answers() -> None:
    """Ranks 1 and 2 of three are ranks 0 and 1 of the group; rank 2 is stopped."""
    told = {"rank": 0, "gone": False, "completed": 1, "idle": 12.0, "ended": []}
    group = {"label": "group pair", "key": "g", "whole": False, "rank": 0, "members": [1, 2]}
    work = [{**group, "sets": {"0": [0, 1]}, "ranks": [{**told, "open": [opened("x")]}]}]
    stopped = answer(2, 3, state="T", silent="is stopped")
    del stopped["work"]
    lines = lines_of(answer(0, 3), answer(1, 3, work=work), stopped)
    assert lines[1] == (
        "  allreduce 'x' of group pair has waited for 12 s; called by rank 1; "
        "missing ranks: 2 (node0)"
    )
