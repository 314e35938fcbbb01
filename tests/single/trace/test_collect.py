"""Traces are collected piece by piece: of one host after the other, and of few ranks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sirtaki.hang import traces
from sirtaki.hang.asking import NoAnswer
from sirtaki.observe.trace import collect
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
        "dropped": 0,
        "more": more,
        **changes,
    }


class Launcher:
    """Stands for a launcher: rank 2, on host 1, has two pieces. asked: the questions so far."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[str] = []
        self._pieces = {0: 1, 1: 1, 2: 2}
        self._refuses = refuses

    def __call__(self, job: str, question: str) -> list[dict[str, Any]]:
        assert job == "cafe"
        self.asked.append(question)
        number = question.removeprefix("trace take ")
        if number == question:
            return [self._of(rank, self._obeys()) for rank in range(3)]
        if number == "3":
            return [{"over": True}]
        ranks = [rank for rank in range(3) if HOSTS[rank] == "abc"[int(number)]]
        return [{"over": False}, *(self._taken(rank) for rank in ranks)]

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
    takes = [f"trace take {number}" for number in (0, 1, 1, 2, 3)]
    assert launcher.asked == ["trace stop", *takes]
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

    def ask(one: Presence, question: str, patience: float) -> dict[str, Any]:
        asked.append(one.record.rank)
        if one.record.rank == 1:
            raise NoAnswer("is stopped")
        return piece(operations=[{"records": "x" * 400}])

    def record(rank: int, namespace: int) -> Presence:
        found = Record("cafe", rank, 100 + rank, [], ["a"] * 12, 0.0, "", 0, namespace)
        return Presence(Path("/nowhere"), found)

    monkeypatch.setattr(traces, "ask", ask)
    every = [record(rank, own_namespace()) for rank in range(10)]
    monkeypatch.setattr(traces, "present", lambda: [*every, record(11, own_namespace() + 1)])
    return asked


def test_what_is_taken_at_a_time_is_bounded(
    ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_MOST_BYTES", 1000)
    found = traces.ask_to_trace("cafe", traces.TAKE)
    # Four at a time: three of the first have told 400 bytes and a span each.
    assert sorted(ranks) == [0, 1, 2, 3]
    assert [one["rank"] for one in found] == list(range(10))
    assert [one["rank"] for one in found if "answer" in one] == [0, 2, 3]
    assert [one["failed"] for one in found if "failed" in one] == ["is stopped"]


def test_ranks_of_another_container_are_left_to_who_is_there(ranks: list[int]) -> None:
    found = traces.ask_to_trace("cafe", traces.START)
    assert [one["rank"] for one in found] == list(range(10))
    assert sorted(ranks) == list(range(10))
