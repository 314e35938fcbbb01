"""What `sirtaki trace report` finds: where time went, who held up whom, clocks that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirtaki.observe.trace.matching import align, match, match_messages
from sirtaki.observe.trace.model import LINES, Operation, Rank, Trace
from sirtaki.observe.trace.report import examine, text_of
from tests.single.trace.made_up import BEGUN, MS, STEPS, operation, pipeline, rank, span, trace


class TestMatching:
    def test_operations_of_one_name_are_counted(self) -> None:
        groups = match(trace().ranks)
        assert [sorted(each) for each in groups] == [[0, 1, 2]] * STEPS
        assert all(len({one.agreed for one in each.values()}) == 1 for each in groups)

    @pytest.mark.parametrize("late", [0, 1, 2])
    def test_a_rank_that_began_to_record_later_has_fewer(self, late: int) -> None:
        ranks = [rank(0), rank(1), rank(2)]
        del ranks[late].operations[:2]
        groups = match(ranks)
        assert all(len({one.agreed for one in each.values()}) == 1 for each in groups)
        assert [len(each) for each in groups].count(3) == STEPS - 2

    def test_names_of_other_sets_are_others(self) -> None:
        ranks = [rank(0), rank(1)]
        ranks[1].operations = [one._replace(set=2) for one in ranks[1].operations]
        assert match(ranks) == []

    def test_what_failed_is_left_out(self) -> None:
        ranks = [rank(0), rank(1)]
        ranks[0].operations = [one._replace(failed=True) for one in ranks[0].operations]
        assert match(ranks) == []


class TestMessages:
    def test_both_ends_are_found_whatever_their_order(self) -> None:
        whole = pipeline()
        whole.ranks[1].messages.reverse()
        found = sorted(match_messages(whole.ranks), key=lambda ends: ends[0][1].sequence)
        assert [(a, b) for (a, _), (b, _) in found] == [(0, 1)] * STEPS
        assert all(one.sequence == other.sequence for (_, one), (_, other) in found)

    def test_one_whose_other_end_was_not_recorded_has_no_link(self) -> None:
        whole = pipeline()
        del whole.ranks[0].messages[0]
        assert len(match_messages(whole.ranks)) == STEPS - 1

    def test_the_way_back_and_another_world_are_others(self) -> None:
        whole = pipeline()
        back = [one._replace(own=0, peer=1) for one in whole.ranks[1].messages]
        assert match_messages([whole.ranks[0], replace(whole.ranks[1], messages=back)]) == []
        other = [one._replace(world="another") for one in whole.ranks[1].messages]
        assert match_messages([whole.ranks[0], replace(whole.ranks[1], messages=other)]) == []


class TestClocks:
    @pytest.mark.parametrize("late", [0, 3 * MS, -40 * MS, 5000 * MS])
    def test_another_hosts_clock_is_set_by_common_operations(self, late: int) -> None:
        """Each host's rank is the last one in turn, so both sides are bounded closely."""
        ranks = [rank(0, "a"), rank(1, "b")]
        for one in ranks:
            one.operations = []
        for step in range(6):
            at = 10 * step
            for one in ranks:
                waits = 5 if one.rank == step % 2 else 0
                one.operations.append(
                    operation("grad", at + 5 - waits, at + 5, at + 6, number=step)
                )
        del ranks[1].operations[0]  # it began to record later
        wanted = [list(one.operations) for one in ranks]
        ranks[1].shift(-late)
        assert align(Trace("cafe", ranks)) == {"b": (late, 0)}
        assert [one.operations for one in ranks] == wanted

    def test_clocks_that_may_agree_are_left_as_they_are(self) -> None:
        """Rank 1 is always first: it may be up to 5 ms later than it says, but no earlier."""
        ranks = [rank(0, "a"), rank(1, "b")]
        for one in ranks:
            begins = [10 * step + (5 if one.rank == 0 else 0) for step in range(6)]
            ends = [10 * step + 5 for step in range(6)]
            one.operations = [
                operation("grad", begin, end, end + 1, number=step)
                for step, (begin, end) in enumerate(zip(begins, ends, strict=True))
            ]
        wanted = list(ranks[1].operations)
        assert align(Trace("cafe", ranks)) == {"b": (0, 5 * MS)}
        assert ranks[1].operations == wanted

    def test_one_host_is_left_alone(self) -> None:
        whole = trace()
        assert align(whole) == {}
        assert whole == trace()

    def test_hosts_without_a_common_operation_keep_their_clocks(self) -> None:
        ranks = [rank(0, "a"), rank(1, "b")]
        ranks[1].operations = []
        assert align(Trace("cafe", ranks)) == {}


class TestTimes:
    def test_the_time_of_each_rank_is_shared_out(self) -> None:
        """In each 10 ms data move for 1 ms; before that rank 0 waits for 6 ms."""
        first, late, _ = examine(trace()).times
        assert (first.whole, first.step) == pytest.approx((0.05, 0.01))
        assert (first.computing, first.exposed, first.exposed_waiting) == pytest.approx(
            (0.015, 0.035, 0.03)
        )
        assert (late.computing, late.exposed, late.exposed_waiting) == pytest.approx(
            (0.045, 0.005, 0.0)
        )
        assert (first.straggling, late.straggling) == pytest.approx((0.0, 0.03))
        assert (first.operations, first.bytes, first.overlapped) == (STEPS, 4000 * STEPS, 0.0)

    def test_operations_beside_the_computation_are_hidden(self) -> None:
        one = rank(0)
        one.waits = [span("wait", 10 * step + 7, 10 * step + 8) for step in range(STEPS)]
        [times] = examine(Trace("cafe", [one])).times
        assert (times.computing, times.overlapped) == pytest.approx((0.045, 0.03))

    def test_calls_that_never_block_expose_nothing(self) -> None:
        """Every result is there before anybody asks for it."""
        one = rank(0)
        one.waits = []
        found = examine(Trace("cafe", [one]))
        [times] = found.times
        assert (times.exposed, times.computing) == (0.0, pytest.approx(0.05))
        assert (times.overlapped, times.communicating) == (
            pytest.approx(0.035),
            pytest.approx(0.035),
        )
        assert found.advice == [
            "communication costs little here: what is left is the computation of each rank"
        ]

    def test_without_calls_nobody_knows_what_is_exposed(self) -> None:
        one = rank(0)
        one.waits, one.calls = [], 0
        found = examine(Trace("cafe", [one]))
        [times] = found.times
        assert {times.exposed, times.computing, times.exposed_waiting, times.overlapped} == {None}
        assert times.communicating == pytest.approx(0.035)
        assert found.advice == []
        [row] = [line for line in text_of(found).splitlines() if line.startswith("  0")]
        assert row.split()[3:8] == ["-", "-", "70%", "60%", "-"]
        assert "- its framework waits in its own code, which is not seen" in text_of(found)

    def test_messages_count_as_operations_do(self) -> None:
        sender, receiver = examine(pipeline()).times
        assert (sender.exposed, sender.overlapped) == (0.0, pytest.approx(0.005))
        assert (receiver.exposed, receiver.overlapped) == (pytest.approx(0.025), 0.0)
        assert (sender.operations, sender.messages, sender.bytes) == (0, STEPS, 4000 * STEPS)

    def test_who_sends_late_what_another_rank_is_blocked_for_holds_it_up(self) -> None:
        found = examine(pipeline())
        assert found.stragglers == [0]
        sender, receiver = found.times
        assert (sender.straggling, receiver.straggling) == (pytest.approx(0.02), 0.0)
        assert receiver.exposed_waiting == pytest.approx(0.02)

    def test_a_receive_that_was_asked_for_early_holds_up_nobody(self) -> None:
        whole = pipeline()
        whole.ranks[1].waits = []
        assert examine(whole).stragglers == []

    def test_only_the_time_that_all_ranks_recorded_counts(self) -> None:
        short, whole = rank(0), rank(1)
        short.ended = BEGUN + 20 * MS
        assert examine(Trace("cafe", [short, whole])).seconds == pytest.approx(0.02)


class TestAdvice:
    def test_the_straggler_is_named_with_what_takes_longer_there(self) -> None:
        found = examine(trace())
        assert found.stragglers == [1]
        assert found.advice[0] == (
            "rank 1 (here) held up the others for 60% of the time: its 'load' takes 7.0 ms, 1.0 ms "
            "elsewhere"
        )

    def test_without_spans_it_says_how_to_find_out(self) -> None:
        whole = trace()
        for one in whole.ranks:
            one.spans = []
        assert "hvd.trace(...)" in examine(whole).advice[0]

    def test_a_span_that_explains_nothing_is_not_blamed_but_the_line_is(self) -> None:
        """All compute for longer than rank 1 loads: the line that differs counts."""
        whole = trace()
        for one in whole.ranks:
            one.spans = [span("zero_grad", 10 * step, 10 * step + 1) for step in range(STEPS)]
            loads, name = (7, "load") if one.rank == 1 else (1, "compute")
            one.lines = [
                span(f"train.py:{4 + half} in {name}: x", 10 * step + at, 10 * step + at, LINES)
                for step in range(STEPS)
                for half, at in enumerate((0, loads - 1, 7))
            ]
        assert examine(whole).advice[0] == (
            "rank 1 (here) held up the others for 60% of the time: it spends 6.7 ms of each step "
            "more than the others at train.py:4 in load: x"
        )

    def test_a_line_where_ranks_wait_for_others_is_not_blamed(self) -> None:
        whole = trace()
        for one in whole.ranks:
            one.spans = []
            one.lines = [
                span("train.py:9 in <module>: step()", 10 * step + 7, 10 * step + 7, LINES)
                for step in range(STEPS)
            ]
        assert "hvd.trace(...)" in examine(whole).advice[0]

    def test_slow_transfers_are_another_matter(self) -> None:
        ranks = [Rank(number, "here", 1, BEGUN, BEGUN + 50 * MS) for number in range(2)]
        for one in ranks:
            for at in range(0, 50, 10):
                one.operations.append(operation("grad", at, at, at + 6))
                one.waits.append(span("wait", at, at + 6))
                one.calls += 1
        found = examine(Trace("cafe", ranks))
        assert found.stragglers == []
        [advice] = found.advice
        assert advice.startswith("60% of the time ranks wait for data that move: send fewer bytes")

    def test_ranks_that_are_late_in_turn_are_no_stragglers(self) -> None:
        ranks = [Rank(number, "here", 1, BEGUN, BEGUN + 1000 * MS) for number in range(40)]
        for step, one in enumerate(ranks * 2):
            for each in ranks:
                begun = 10 * step + (2 if each is one else 0)
                each.operations.append(operation("grad", begun, 10 * step + 2, 10 * step + 2))
                each.waits.append(span("wait", begun, 10 * step + 2))
                each.calls += 1
        found = examine(Trace("cafe", ranks))
        assert found.stragglers == []
        assert "wait for one another, each in turn" in found.advice[0]

    def test_a_job_that_computes_is_left_alone(self) -> None:
        one = Rank(0, "here", 1, BEGUN, BEGUN + 1000 * MS)
        one.operations, one.calls = [operation("grad", 1, 2, 3)], 1
        found = examine(Trace("cafe", [one]))
        assert found.advice == [
            "communication costs little here: what is left is the computation of each rank"
        ]

    def test_a_trace_in_which_nothing_ended_says_so(self) -> None:
        found = examine(Trace("cafe", [Rank(0, "here", 1, BEGUN, BEGUN + MS)]))
        assert found.advice[0].startswith("no operation ended while the trace ran")


def test_the_text_has_a_line_for_each_rank_and_marks_the_straggler() -> None:
    head, titles, *rows = text_of(examine(trace())).splitlines()
    assert head == "job cafe: 3 ranks, 0.05 s"
    assert titles.split()[:3] == ["RANK", "STEP", "COMPUTE"]
    assert [row.split()[0] for row in rows[:3]] == ["0", "1*", "2"]
    assert rows[0].split()[1:8] == ["10.0", "ms", "30%", "70%", "70%", "60%", "0%"]
    assert rows[0].split()[-1] == "#" * 9 + "=" * 3 + "." * 18


def test_an_operation_reads_as_kind_and_name() -> None:
    one: Operation = operation("grad", 0, 1, 2)
    assert one.title == "allreduce grad"
