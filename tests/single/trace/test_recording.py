"""What a rank records of itself, and what `hvd.trace` adds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import _core
from sirtaki.core.tracing import recording
from sirtaki.core.tracing.spans import Sink
from sirtaki.core.world.state import current_world
from sirtaki.observe.trace.collect import add
from sirtaki.observe.trace.model import Rank
from sirtaki.questions.messages import Question


@pytest.fixture
def ask() -> Iterator[Mapping[Question, Callable[[], Any]]]:
    """The answers of a world of one."""
    hvd.init()
    answers = recording.answers(lambda: [current_world()])
    yield answers
    answers[Question.TRACE_STOP]()
    hvd.shutdown()


def taken(ask: Mapping[Question, Callable[[], Any]]) -> Rank:
    found = Rank(0, "here", 1, 0, 0)
    more = True
    while more:
        piece = ask[Question.TRACE_TAKE]()
        add(found, piece)
        more = piece["more"]
    return found


Ask = Mapping[Question, Callable[[], Any]]


class TestOperations:
    def test_those_between_start_and_stop_are_recorded(self, ask: Ask) -> None:
        hvd.allreduce(np.ones(3), name="before")
        assert ask[Question.TRACE_START]() == {}
        for _ in range(2):
            hvd.allreduce(np.ones(5, np.float32), name="grad")
        ask[Question.TRACE_STOP]()
        hvd.allreduce(np.ones(3), name="after")
        found = taken(ask)
        seen = [(one.kind, one.name, one.dtype, one.bytes) for one in found.operations]
        assert seen == [("allreduce", "grad", "float32", 20)] * 2
        for one in found.operations:
            times = one.submitted, one.agreed, one.begun, one.ended
            assert list(times) == sorted(times)
            assert found.begun <= one.submitted <= one.ended <= found.ended

    def test_what_is_taken_is_forgotten(self, ask: Ask) -> None:
        ask[Question.TRACE_START]()
        hvd.allreduce(np.ones(3))
        ask[Question.TRACE_STOP]()
        assert len(taken(ask).operations) == 1
        assert taken(ask).operations == []

    def test_more_than_an_answer_holds_comes_in_pieces(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recording, "_BYTES_OF_AN_ANSWER", 1)
        monkeypatch.setattr(recording, "_PAUSE_SECONDS", 3600)
        ask[Question.TRACE_START]()
        current = recording._Current.recording
        assert current is not None
        for number in range(3):
            hvd.allreduce(np.ones(3), name=f"part {number}")
            current._drain()
        ask[Question.TRACE_STOP]()
        pieces = [ask[Question.TRACE_TAKE]() for _ in range(3)]
        assert [piece["more"] for piece in pieces] == [True, True, False]
        assert [len(piece["operations"]) for piece in pieces] == [1, 1, 1]

    def test_of_too_much_the_latest_is_kept(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recording, "_MOST_BYTES", 200)
        ask[Question.TRACE_START]()
        current = recording._Current.recording
        assert current is not None
        for number in range(3):
            hvd.allreduce(np.ones(3), name=f"part {number}")
            current._drain()
        ask[Question.TRACE_STOP]()
        found = taken(ask)
        assert [one.name for one in found.operations] == ["part 2"]
        assert found.lost == 2

    def test_a_second_start_and_a_second_stop_are_refused(self, ask: Ask) -> None:
        ask[Question.TRACE_START]()
        assert ask[Question.TRACE_START]() == {"refused": "a trace has run for 0 s"}
        ask[Question.TRACE_STOP]()
        assert ask[Question.TRACE_STOP]() == {"refused": "no trace runs"}
        assert ask[Question.TRACE_START]() == {}

    def test_the_engine_is_as_before_afterwards(self, ask: Ask) -> None:
        methods = ("wait", "submit", "send_and_wait", "receive_and_wait")
        before = [getattr(_core.Engine, name) for name in methods]
        threads = set(threading.enumerate())
        ask[Question.TRACE_START]()
        assert not {getattr(_core.Engine, name) for name in methods} & set(before)
        ask[Question.TRACE_STOP]()
        assert [getattr(_core.Engine, name) for name in methods] == before
        assert set(threading.enumerate()) <= threads


def test_the_line_of_the_users_code_is_noted(ask: Ask) -> None:
    ask[Question.TRACE_START]()
    current = recording._Current.recording
    assert current is not None
    current._note_line()
    ask[Question.TRACE_STOP]()
    seen = "in test_the_line_of_the_users_code_is_noted: current._note_line()"
    [one] = [one for one in taken(ask).lines if one.name.endswith(seen)]
    assert one.name.startswith("test_recording.py:")
    assert one.begun == one.ended


class TestMessages:
    def test_those_between_start_and_stop_are_recorded(self, ask: Ask) -> None:
        send_to_self(1)
        ask[Question.TRACE_START]()
        send_to_self(5)
        ask[Question.TRACE_STOP]()
        send_to_self(6)
        found = taken(ask)
        assert found.operations == []
        seen = [(one.sends, one.own, one.peer, one.tag, one.bytes) for one in found.messages]
        assert seen == [(True, 0, 0, 5, 12), (False, 0, 0, 5, 12)]
        for one in found.messages:
            assert found.begun <= one.begun <= one.ended <= found.ended


class TestSpans:
    def test_they_are_recorded_with_their_threads(self, ask: Ask) -> None:
        ask[Question.TRACE_START]()
        with hvd.trace("step"), hvd.trace("load"):
            pass
        thread = threading.Thread(target=_decode, name="loader")
        thread.start()
        thread.join()
        ask[Question.TRACE_STOP]()
        found = taken(ask)
        assert [one.name for one in found.spans] == ["load", "step", "decode"]
        load, step, decode = found.spans
        assert (load.thread, step.thread) == ("MainThread", "MainThread")
        assert decode.thread not in ("", "MainThread")
        assert step.begun <= load.begun <= load.ended <= step.ended

    def test_one_that_an_exception_leaves_is_recorded(self, ask: Ask) -> None:
        ask[Question.TRACE_START]()
        with pytest.raises(ValueError, match="bad sample"), hvd.trace("load"):
            raise ValueError("bad sample")
        ask[Question.TRACE_STOP]()
        assert [one.name for one in taken(ask).spans] == ["load"]

    def test_what_began_or_ended_outside_the_trace_is_left_out(self, ask: Ask) -> None:
        with hvd.trace("earlier"):
            ask[Question.TRACE_START]()
        with hvd.trace("later"):
            ask[Question.TRACE_STOP]()
        assert taken(ask).spans == []

    def test_nothing_is_recorded_without_a_trace_nor_without_a_world(self) -> None:
        assert Sink.record is None
        with hvd.trace("load"):
            pass

    def test_they_are_ranges_of_torchs_profiler(self) -> None:
        torch = pytest.importorskip("torch")
        with torch.profiler.profile() as profile, hvd.trace("load the batch"):
            torch.ones(2) + 1
        assert "load the batch" in {one.key for one in profile.key_averages()}

    def test_ranges_of_torch_are_spans_with_and_without_a_profiler(self, ask: Ask) -> None:
        torch = pytest.importorskip("torch")
        ranges = torch.autograd.profiler.record_function
        before = ranges.__enter__, ranges.__exit__
        ask[Question.TRACE_START]()
        with torch.profiler.record_function("forward"):
            pass
        with torch.profiler.profile(), hvd.trace("backward"):
            pass
        ask[Question.TRACE_STOP]()
        assert [one.name for one in taken(ask).spans] == ["forward", "backward"]
        assert (ranges.__enter__, ranges.__exit__) == before

    def test_all_frameworks_have_it(self) -> None:
        from sirtaki.core import facade

        assert facade.trace is hvd.trace
        assert "trace" in facade.__all__


def send_to_self(tag: int) -> None:
    hvd.send(np.ones(3, np.float32), dest=0, tag=tag)
    hvd.recv(np.zeros(3, np.float32), source=0, tag=tag)


def _decode() -> None:
    with hvd.trace("decode"):
        pass
