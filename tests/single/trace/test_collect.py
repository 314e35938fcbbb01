"""Traces are collected piece by piece: of one host after the other, and of few ranks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sirtaki.observe.trace import collect
from sirtaki.questions import collect as questions
from sirtaki.questions.asking import NoAnswer
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import Presence, Record, own_namespace

HOSTS = ["a", "a", "b", "c"]


def piece(more: bool = False, **changes: Any) -> dict[str, Any]:
    """What a rank answers that has recorded a span."""
    return {
        "begun": [5, 1005],
        "ended": [9, 1009],
        "operations": [],
        "spans": [["load", 1, 6, 7]],
        "waits": [],
        "threads": {"1": "MainThread"},
        "main": 1,
        "calls": 3,
        "cpu": 0.5,
        "cores": 2,
        "dropped": 0,
        "more": more,
        **changes,
    }


class Launcher:
    """Stands for a launcher: rank 2, on host 1, has two pieces. asked: the questions so far."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[tuple[Question, int | None]] = []
        self._pieces = {0: 1, 1: 1, 2: 2}
        self._refuses = refuses

    def __call__(
        self, job: str, question: Question, host: int | None = None
    ) -> list[dict[str, Any]] | None:
        assert job == "cafe"
        self.asked.append((question, host))
        if host is None:
            return [self._of(rank, self._obeys()) for rank in range(3)]
        if host == 3:
            return None
        return [self._taken(rank) for rank in range(3) if HOSTS[rank] == "abc"[host]]

    def _obeys(self) -> dict[str, Any]:
        return {"answer": {"refused": "no trace runs"} if self._refuses else {}}

    def _taken(self, rank: int) -> dict[str, Any]:
        self._pieces[rank] -= 1
        return self._of(rank, {"answer": piece(more=self._pieces[rank] > 0)})

    def _of(self, rank: int, more: dict[str, Any]) -> dict[str, Any]:
        return {"rank": rank, "host": HOSTS[rank], "pid": 100 + rank, "hosts": HOSTS, **more}


def test_one_host_is_asked_after_the_other_until_it_has_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher = Launcher()
    monkeypatch.setattr(collect, "ask_launcher", launcher)
    recorder = collect.Recorder("cafe", 1.0)
    found = recorder.take()
    takes = [(Question.TRACE_TAKE, host) for host in (0, 1, 1, 2, 3)]
    assert launcher.asked == [(Question.TRACE_STOP, None), *takes]
    assert [(one.rank, one.host, len(one.spans)) for one in found] == [
        *((0, "a", 1), (1, "a", 1), (2, "b", 2))
    ]
    assert found[0].spans[0].begun == 1006
    assert (recorder.everywhere, recorder.missing, recorder.failures) == (True, [3], {})


def test_a_trace_that_does_not_run_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ask_launcher", Launcher(refuses=True))
    with pytest.raises(collect.Refused, match="no trace runs"):
        collect.Recorder("cafe", 1.0).take()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ten ranks here, each of which has much to tell; returns those that were asked."""
    asked: list[int] = []

    def ask(one: Presence, question: Question, patience: float) -> dict[str, Any]:
        asked.append(one.record.rank)
        if one.record.rank == 1:
            raise NoAnswer("is stopped")
        return piece(operations=[{"records": "x" * 400}])

    def record(rank: int, namespace: int) -> Presence:
        found = Record("cafe", rank, 100 + rank, [], ["a"] * 12, 0.0, "", 0, namespace)
        return Presence(Path("/nowhere"), found)

    monkeypatch.setattr(questions, "ask", ask)
    every = [record(rank, own_namespace()) for rank in range(10)]
    monkeypatch.setattr(questions, "present", lambda: [*every, record(11, own_namespace() + 1)])
    return asked


def test_what_is_taken_at_a_time_is_bounded(
    ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_MOST_BYTES", 1000)
    found = questions.ask_to_trace("cafe", Question.TRACE_TAKE)
    # Four at a time: three of the first have told 400 bytes and a span each.
    assert sorted(ranks) == [0, 1, 2, 3]
    assert [one["rank"] for one in found] == list(range(10))
    assert [one["rank"] for one in found if "answer" in one] == [0, 2, 3]
    assert [one["failed"] for one in found if "failed" in one] == ["is stopped"]


def test_ranks_of_another_container_are_left_to_who_is_there(ranks: list[int]) -> None:
    found = questions.ask_to_trace("cafe", Question.TRACE_START)
    assert [one["rank"] for one in found] == list(range(10))
    assert sorted(ranks) == list(range(10))
