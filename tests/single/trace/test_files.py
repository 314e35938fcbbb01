"""Files of traces: what Chrome, Perfetto and we ourselves read in them."""

from __future__ import annotations

import gzip
import importlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirtaki.observe.trace import files
from sirtaki.observe.trace.chrome import NoTrace, from_json, to_json
from sirtaki.observe.trace.model import LINES, Message, Operation, Rank, Span, Trace
from sirtaki.observe.trace.perfetto import to_protobuf
from tests.single.trace.made_up import BEGUN, MS, STEPS, operation, pipeline, rank, span, trace
from tests.single.trace.trace_events import VALIDATOR

# Whatever ranks may have recorded: times are nanoseconds, but what is read again has microseconds
# with three digits.
times = st.integers(-(10**8), 10**9).map(lambda at: BEGUN + at)
names = st.text(max_size=12)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    submitted, agreed, begun, ended = sorted(draw(st.tuples(times, times, times, times)))
    return Operation(
        *(draw(st.integers(1, 9)), "job", draw(st.integers(0, 3)), "allreduce", draw(names)),
        *("float32", draw(st.integers(0, 1 << 50)), draw(st.booleans())),
        *(submitted, agreed, begun, ended),
    )


@st.composite
def found_messages(draw: st.DrawFn) -> Message:
    begun, ended = sorted(draw(st.tuples(times, times)))
    small = st.integers(0, 3)
    return Message(
        *("job", draw(small), draw(small), draw(st.booleans()), draw(small), draw(small)),
        *(draw(st.integers(0, 1 << 50)), draw(st.integers(0, 1 << 50)), draw(st.booleans())),
        *(begun, ended),
    )


@st.composite
def spans(draw: st.DrawFn) -> Span:
    begun, ended = sorted(draw(st.tuples(times, times)))
    return Span(draw(names), draw(st.sampled_from(["MainThread", "loader"])), begun, ended)


@st.composite
def some_ranks(draw: st.DrawFn) -> list[Rank]:
    def rank_of(number: int) -> Rank:
        return Rank(
            *(number, draw(names), number + 1, BEGUN, BEGUN + 10**9),
            operations=draw(st.lists(operations(), max_size=4)),
            spans=draw(st.lists(spans(), max_size=4)),
            messages=draw(st.lists(found_messages(), max_size=4)),
            cpu=draw(st.floats(0, 1e3)),
            cores=draw(st.integers(0, 64)),
        )

    return [rank_of(number) for number in range(draw(st.integers(1, 3)))]


ranks = some_ranks()


def events_of(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


class TestChrome:
    @pytest.mark.parametrize("made", [trace, pipeline])
    def test_it_is_what_chromes_schema_wants(self, made: Callable[[], Trace]) -> None:
        events = json.loads("".join(to_json(made())))
        assert not [error.message for error in VALIDATOR.iter_errors(events)]

    @settings(max_examples=25)  # the schema is slow
    @given(ranks)
    def test_whatever_ranks_record_is_what_the_schema_wants_and_is_read_again(
        self, found: list[Rank]
    ) -> None:
        text = "".join(to_json(Trace("cafe", found)))
        assert not [error.message for error in VALIDATOR.iter_errors(json.loads(text))]
        again = from_json(text)
        for before, after in zip(found, again.ranks, strict=True):
            assert sorted(after.operations) == sorted(before.operations)
            assert sorted(after.messages) == sorted(before.messages)
            assert sorted(after.spans) == sorted(before.spans)

    @pytest.mark.parametrize(
        "event",
        [
            {"ph": "X", "ts": 1, "dur": -1},
            {"ph": "X", "ts": "1", "dur": 1},
            {"ph": "X", "ts": 1},
            {"ph": "C", "ts": 1, "args": {"bytes": "many"}},
            {"ph": "s", "ts": 1},
            {"ph": "M", "args": {"label": "x"}},
            {"ph": "?", "ts": 1},
            {"ph": "X", "ts": 1, "dur": 1, "duration": 1},
        ],
    )
    def test_the_schema_refuses_what_chrome_does_not_know(self, event: dict[str, Any]) -> None:
        whole = {"name": "process_name", "cat": "a", "pid": 1, "tid": 1, **event}
        assert not VALIDATOR.is_valid({"traceEvents": [whole]})

    def test_slices_of_a_track_lie_in_one_another_or_beside(self) -> None:
        tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for event in events_of("".join(to_json(trace()))):
            if event["ph"] == "X":
                place = event["pid"], event["tid"]
                tracks[place].append((event["ts"], event["ts"] + event["dur"]))
        for slices in tracks.values():
            opened: list[float] = []
            for begun, ended in slices:
                while opened and opened[-1] <= begun:
                    opened.pop()
                assert not opened or ended <= opened[-1]
                opened.append(ended)

    def test_operations_that_overlap_are_on_tracks_of_their_own(self) -> None:
        alone = Rank(0, "here", 1, BEGUN, BEGUN + 10 * MS)
        alone.operations = [operation("a", 0, 1, 5), operation("b", 2, 3, 4)]
        tids = {
            e["tid"] for e in events_of("".join(to_json(Trace("cafe", [alone])))) if e["ph"] == "X"
        }
        assert len(tids) == 2

    def test_a_flow_goes_from_the_first_rank_that_asked_to_the_last(self) -> None:
        flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in events_of("".join(to_json(trace()))):
            if event["ph"] in "stf":
                flows[event["id"]].append(event)
        assert len(flows) == STEPS
        for step, flow in enumerate(flows.values()):
            assert [each["ph"] for each in flow] == ["s", "t", "f"]
            assert [each["pid"] for each in flow] == [0, 2, 1]
            assert [each["ts"] for each in flow] == [1e4 * step + ms for ms in (1e3, 1e3, 7e3)]

    def test_a_message_has_a_flow_from_its_begin_to_where_it_has_come(self) -> None:
        events = events_of("".join(to_json(pipeline())))
        flows = [event for event in events if event["ph"] in "stf"]
        assert len(flows) == 2 * STEPS
        for step in range(STEPS):
            start, end = (each for each in flows if each["id"] == flows[2 * step]["id"])
            assert (start["ph"], start["pid"], end["ph"], end["pid"]) == ("s", 0, "f", 1)
            assert end["ts"] - start["ts"] == pytest.approx(1e3, abs=0.01)
        names = {event["name"] for event in events if event.get("cat") == "message"}
        assert names == {"send to 1, tag 7", "receive from 0, tag 7"}

    def test_the_counter_says_how_many_bytes_a_second_moved(self) -> None:
        counts = [
            e for e in events_of("".join(to_json(trace()))) if e["ph"] == "C" and e["pid"] == 0
        ]
        # 4000 bytes in each 10 ms.
        assert [each["args"]["bytes"] for each in counts] == [400_000] * STEPS + [0, 0]

    @pytest.mark.parametrize("made", [trace, pipeline])
    def test_it_is_read_again_as_it_was(self, made: Callable[[], Trace]) -> None:
        assert from_json("".join(to_json(made()))) == made()

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": []}', '{"otherData": 3}'])
    def test_other_json_is_refused(self, text: str) -> None:
        with pytest.raises(NoTrace, match="no trace that sirtaki has written"):
            from_json(text)


class TestPerfetto:
    @pytest.fixture(scope="class")
    @staticmethod
    def parsed() -> Any:
        messages = importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        found = messages.Trace()
        found.ParseFromString(to_protobuf(trace()))
        return found

    def test_nothing_is_unknown_to_the_schema(self, parsed: Any) -> None:
        assert parsed.SerializeToString(deterministic=True)
        for packet in parsed.packet:
            assert packet.trusted_packet_sequence_id == 1
            assert packet.HasField("track_descriptor") or packet.HasField("track_event")

    def test_each_rank_is_a_process_with_tracks(self, parsed: Any) -> None:
        tracks = [one.track_descriptor for one in parsed.packet if one.HasField("track_descriptor")]
        processes = {one.uuid: one for one in tracks if one.HasField("process")}
        names = [one.process.process_name for one in processes.values()]
        assert names == [f"rank {number} (here, process {100 + number})" for number in range(3)]
        children = Counter(one.name for one in tracks if one.parent_uuid in processes)
        assert children == dict.fromkeys(
            ["MainThread", "lines of code", "operations", "bytes a second"], 3
        )

    def test_slices_begin_and_end_in_order_on_each_track(self, parsed: Any) -> None:
        depth: Counter[int] = Counter()
        at = 0
        for packet in parsed.packet:
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            assert packet.timestamp >= at
            at = packet.timestamp
            if event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END):
                depth[event.track_uuid] += 1 if event.type == event.TYPE_SLICE_BEGIN else -1
                assert depth[event.track_uuid] >= 0
        assert not any(depth.values())

    def test_the_straggler_is_in_it(self, parsed: Any) -> None:
        """Of the operation that links three ranks in a step one begins 6 ms after the others."""
        begun: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for packet in parsed.packet:
            for flow in packet.track_event.flow_ids:
                begun[flow].append((packet.timestamp, packet.track_event.track_uuid >> 20))
        assert len(begun) == STEPS
        for first, second, (at, last) in begun.values():
            assert (first[0], second[0], last - 1) == (at - 6 * MS, at - 6 * MS, 1)

    def test_a_message_links_its_begin_and_its_end(self) -> None:
        messages = importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        found = messages.Trace()
        found.ParseFromString(to_protobuf(pipeline()))
        flows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for packet in found.packet:
            for flow in packet.track_event.flow_ids:
                flows[flow].append((packet.track_event.type, packet.track_event.track_uuid >> 20))
        event = found.packet[0].track_event
        ends = [(event.TYPE_SLICE_BEGIN, 1), (event.TYPE_SLICE_END, 2)]
        assert list(flows.values()) == [ends] * STEPS

    def test_an_operation_tells_its_size(self, parsed: Any) -> None:
        notes = [
            {
                one.name: one.int_value or one.string_value
                for one in packet.track_event.debug_annotations
            }
            for packet in parsed.packet
            if packet.track_event.flow_ids
        ]
        assert {(one["tensor"], one["bytes"], one["dtype"]) for one in notes} == {
            ("grad", 4000, "float32")
        }


class TestFiles:
    @pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
    def test_json_is_read_again(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        files.write(trace(), str(path))
        assert files.read(str(path)) == trace()
        assert [one.name for one in tmp_path.iterdir()] == [name]

    def test_the_ending_says_what_is_written(self, tmp_path: Path) -> None:
        files.write(trace(), str(tmp_path / "a.pftrace"))
        assert (tmp_path / "a.pftrace").read_bytes() == to_protobuf(trace())
        with pytest.raises(ValueError, match=r"a\.txt: a trace's name ends in \.json, "):
            files.write(trace(), str(tmp_path / "a.txt"))

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="missing"):
            files.require_writable(str(tmp_path / "missing" / "a.json"))

    @pytest.mark.parametrize(
        "data", [b"\x1f\x8b", b"\xff\xfe", b"{", gzip.compress(b"{}", mtime=0)[:-4]]
    )
    def test_a_damaged_file_is_named(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "a.json.gz"
        path.write_bytes(data)
        with pytest.raises(NoTrace, match=r"a\.json\.gz: "):
            files.read(str(path))


def test_spans_of_other_threads_have_tracks_behind_the_main_one() -> None:
    one = rank(0)
    one.spans.append(span("decode", 3, 4, thread="A loader"))
    names = [
        (each["tid"], each["args"]["name"])
        for each in events_of("".join(to_json(Trace("cafe", [one]))))
        if each["name"] == "thread_name"
    ]
    assert names == [(1, "MainThread"), (2, "A loader"), (999, LINES), (1000, "operations")]
