"""`sirtaki predict`: exact times in small cases, more of a good thing is never worse, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.observe.predict import command
from sirtaki.observe.predict.exchange import Setting, pipeline, seconds_of, sent_bytes
from sirtaki.observe.predict.forecast import (
    DILOCO,
    FORMS,
    MOVING_COST,
    Forecast,
    Question,
    forecasts,
    step_seconds,
)
from sirtaki.observe.predict.link import DATA_SHARE, Link, parse_link, read_link
from sirtaki.observe.predict.replay import Cores
from sirtaki.observe.predict.steps import Steps, steps_of
from sirtaki.observe.scaling.causes import Point
from sirtaki.observe.scaling.command import predicted_lines, read_predicted
from sirtaki.observe.trace import files
from sirtaki.observe.trace.chrome import NoTrace
from sirtaki.observe.trace.model import Rank, Trace
from tests.single.trace.made_up import BEGUN, MS, operation, rank, span, trace

KIB = 1 << 10
FREE = Link(1e6, 0.0)


class TestLink:
    @pytest.mark.parametrize(
        ("text", "rate", "seconds"),
        [
            ("1gbit,0.2ms", 1e9, 0.0002),
            ("2.5Gbit/s, 50us", 2.5e9, 50e-6),
            ("100mbit,0s", 1e8, 0.0),
            ("64kbit,.5s", 64e3, 0.5),
            ("8bit,1us", 8.0, 1e-6),
        ],
    )
    def test_a_rate_and_a_round_trip(self, text: str, rate: float, seconds: float) -> None:
        assert parse_link(text) == pytest.approx((rate / 8 * DATA_SHARE, seconds))

    @pytest.mark.parametrize(
        "text",
        ["", "1gbit", "0.2ms", "1gbit,", "fast,0.2ms", "1gbit,0.2", "-1gbit,1ms", "1gbit,1ms,"],
    )
    def test_what_is_no_link(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a rate and a round trip, such as"):
            parse_link(text)

    def test_a_link_of_nothing_and_nonsense_numbers(self) -> None:
        with pytest.raises(ValueError, match="a link of 0 bit/s carries nothing"):
            parse_link("0gbit,0.2ms")
        for text in ("1000tbit,1ms", "1gbit,11s"):
            with pytest.raises(ValueError, match="no link carries"):
                parse_link(text)

    @given(st.text())
    def test_any_other_text_is_refused_with_a_reason(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a rate and a round trip"):
            parse_link(text)

    @given(
        st.floats(0.001, 1e4), st.sampled_from("kmg"), st.floats(0, 9), st.sampled_from(["ms", "s"])
    )
    def test_numbers_are_read_as_written(
        self, rate: float, unit: str, time: float, of: str
    ) -> None:
        link = parse_link(f"{rate:.6f}{unit}bit,{time:.6f}{of}")
        wanted = round(rate, 6) * {"k": 1e3, "m": 1e6, "g": 1e9}[unit] / 8 * DATA_SHARE
        assert link.rate == pytest.approx(wanted)
        assert link.round_trip == pytest.approx(round(time, 6) * (1e-3 if of == "ms" else 1))

    def test_the_slowest_pair_that_the_doctor_measured_counts(self, tmp_path: Path) -> None:
        def pair(**more: object) -> dict[str, object]:
            usual = {"error": "", "sends": 1e8, "receives": 9e7, "latency": 1e-4}
            return {**usual, **more}

        unmeasured = pair(error="refused", sends=None)
        pairs = [pair(), pair(receives=8e7), pair(latency=2e-4), unmeasured]
        path = tmp_path / "doctor.json"
        path.write_text(json.dumps({"pairs": pairs}))
        assert read_link(str(path)) == Link(8e7, 2e-4)
        for text, why in [
            ("{}", "not what `sirtaki doctor --hosts"),
            ("[", "not what `sirtaki doctor --hosts"),
            (json.dumps({"pairs": [unmeasured]}), "it measured no two hosts"),
            (json.dumps({"pairs": [pair(sends=0)]}), "a link of 0 bit/s"),
            (json.dumps({"pairs": [pair(latency=-1)]}), "no link carries"),
            (json.dumps({"pairs": [pair(latency="soon")]}), "not what"),
        ]:
            path.write_text(text)
            with pytest.raises(ValueError, match=why):
                read_link(str(path))


class TestExchange:
    def test_few_bytes_go_at_once_to_all_hosts(self) -> None:
        setting = Setting(4, 1, Link(1e6, 0.01), 0.0)
        assert seconds_of("allreduce", 1000, setting) == pytest.approx(0.005 + 3 * 0.001)
        assert seconds_of("barrier", 0, setting) == pytest.approx(0.005)

    def test_among_many_hosts_few_bytes_take_a_step_for_each_halving(self) -> None:
        setting = Setting(16, 1, Link(1e6, 0.01), 0.0)
        assert seconds_of("allreduce", 1000, setting) == pytest.approx(4 * 0.005 + 15 * 0.001)

    def test_one_chunk_goes_to_its_owners_and_back(self) -> None:
        assert pipeline(64 * KIB, 2, 1) == (1, [32 * KIB, 32 * KIB], 8)
        seconds = seconds_of("allreduce", 64 * KIB, Setting(2, 1, Link(1e6, 0.02), 0.0))
        assert seconds == pytest.approx(2 * (32 * KIB / 1e6 + 0.01))

    def test_chunks_keep_the_link_busy(self) -> None:
        for hosts in (2, 3, 8):
            size = 64 << 20
            taken = seconds_of("allreduce", size, Setting(hosts, 1, Link(1e8, 1e-4), 0.0))
            bound = 2 * (hosts - 1) / hosts * size / 1e8
            crowded = 1 + 0.011 * (hosts - 2)
            assert bound * crowded < taken < 1.01 * bound * crowded

    def test_chunks_of_many_hosts_are_halved(self) -> None:
        cut = pipeline(6400 * KIB, 16, 1)
        assert cut.chunks == 67
        assert cut.ahead == 1
        chunk = 6400 * KIB / 67
        shares = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
        assert cut.phases == pytest.approx([chunk * each for each in (*shares, *shares[::-1])])

    def test_a_slow_core_bounds_a_fast_link(self) -> None:
        size = 64 << 20
        taken = seconds_of("allreduce", size, Setting(2, 1, Link(1e12, 0.0), 1e-9))
        assert taken == pytest.approx(size * 1e-9, rel=0.01)

    def test_nothing_leaves_one_host(self) -> None:
        for kind in ("allreduce", "barrier", "broadcast", "allgather"):
            assert seconds_of(kind, 1e6, Setting(1, 4, Link(1.0, 1.0), 1.0)) == 0

    def test_other_operations_send_what_each_host_lacks(self) -> None:
        assert sent_bytes("allgather", 10, 4, 2) == 60
        assert sent_bytes("reducescatter", 100, 4, 1) == 75
        assert sent_bytes("broadcast", 100, 4, 1) == 100
        setting = Setting(4, 1, Link(100.0, 2.0), 0.0)
        assert seconds_of("broadcast", 100, setting) == 2.0

    @given(
        st.floats(1, 1e8),
        st.integers(2, 20),
        st.integers(1, 4),
        st.floats(1e5, 1e10),
        st.floats(0, 0.1),
        st.floats(0, 1e-8),
    )
    def test_a_better_network_is_never_slower(
        self, size: float, hosts: int, ranks: int, rate: float, trip: float, cost: float
    ) -> None:
        size = min(size, rate)  # so that there are not too many chunks
        own = Setting(hosts, ranks, Link(rate, trip), cost)
        taken = seconds_of("allreduce", size, own)
        assert taken > 0
        better = [
            own._replace(link=Link(rate * 2, trip)),
            own._replace(link=Link(rate, trip / 2)),
            own._replace(cost=cost / 2),
        ]
        slack = 1 + 1e-9
        assert all(seconds_of("allreduce", size, each) <= taken * slack for each in better)
        assert seconds_of("allreduce", size * 2, own) >= taken / slack


def made(*parts: tuple[int, int, int, int], steps: int = 6, each: int = 20) -> Trace:
    """A rank whose steps have operations: submitted, awaited until (0: not), ended, bytes."""
    one = Rank(0, "here", 1, BEGUN, BEGUN + steps * each * MS, calls=1, cpu=0.1, cores=2)
    for step in range(steps):
        at = step * each
        for number, (submitted, waited, ended, size) in enumerate(parts):
            name = f"grad.{number}"
            times = (at + submitted, at + submitted, at + ended)
            one.operations.append(operation(name, *times, size=size))
            if waited:
                one.waits.append(span("wait", at + submitted, at + waited))
    return Trace("cafe", [one])


def step_of(whole: Trace, link: Link, hosts: int = 2, exchange: str = "float32") -> float:
    return step_seconds(Question(steps_of(whole), link, 1, math.inf, 10), hosts, exchange)


class TestSteps:
    def test_the_rank_that_computes_for_longest_counts(self) -> None:
        found = steps_of(trace())
        assert found.step == pytest.approx(0.010)
        assert found.computing == pytest.approx(0.009)  # of rank 1, which loads for 7 ms
        assert (found.ranks, found.gradients, found.alone) == (3, 4000, True)
        assert sum(event.ends for event in found.events) == 3

    def test_ranks_of_a_host_and_cores(self) -> None:
        found = steps_of(Trace("cafe", [rank(0, "a"), rank(1, "b")]))
        assert (found.ranks, found.alone) == (1, False)
        whole = made((10, 11, 11, 400))
        assert steps_of(whole).busy == pytest.approx(0.1 / (6 * 0.019))
        assert steps_of(whole).cores == 2

    def test_no_steps(self) -> None:
        for none in (Trace("cafe", []), made((10, 11, 11, 400), steps=3)):
            with pytest.raises(ValueError, match="no steps in the trace: a rank has"):
                steps_of(none)
        different = made(*((n, n + 1, n + 1, 400) for n in range(9)), steps=1)
        with pytest.raises(ValueError, match=r"has 9 operations, .* returns .*; record more steps"):
            steps_of(different)

    def test_operations_without_names_make_no_steps(self) -> None:
        one = rank(0)
        one.operations[:] = [operation(f"noname.{step}", 1, 2, 3) for step in range(9)]
        with pytest.raises(ValueError, match=r"torch\.distributed cannot have names: use hvd"):
            steps_of(Trace("cafe", [one]))


WAKING = Cores(1.0, 1.0).waking


class TestReplay:
    def test_a_blocking_operation_adds_its_time(self) -> None:
        link = Link(1e8, 0.002)
        setting = Setting(2, 1, link, MOVING_COST, WAKING)
        took = seconds_of("allreduce", 8_000_000, setting)
        step = step_of(made((10, 11, 11, 8_000_000)), link)
        assert step == pytest.approx(0.019 + 0.002 + 3 * WAKING + took)

    def test_a_rank_alone_computes(self) -> None:
        whole = made((10, 11, 11, 8_000_000))
        assert step_of(whole, FREE, hosts=1) == pytest.approx(0.019)
        others = steps_of(Trace("cafe", [rank(0, "a"), rank(1, "b")]))
        assert step_seconds(Question(others, FREE, 1, 1.0, 10), 1, DILOCO) == pytest.approx(0.009)

    def test_ranks_of_one_host_meet_there(self) -> None:
        whole = steps_of(made((10, 11, 11, 8_000_000)))
        two = Question(whole, FREE, 2, 1.0, 10)
        assert step_seconds(two, 1, "float32") == pytest.approx(0.020)

    def test_what_is_awaited_later_is_hidden(self) -> None:
        """Without a wait of its own it is awaited with the step's last operation."""
        link = Link(1e9, 0.0)
        both = made((2, 0, 2, 4_000_000), (15, 16, 16, 40))
        alone = made((15, 16, 16, 40))
        assert step_of(both, link) == pytest.approx(step_of(alone, link), abs=1e-3)
        assert step_of(both, Link(1e8, 0.0)) > 0.04

    def test_where_no_wait_was_seen_the_last_operation_is_awaited(self) -> None:
        unseen = made((10, 0, 10, 400), (15, 0, 15, 4_000_000))
        link = Link(1e8, 0.0)
        took = seconds_of("allreduce", 4_000_000, Setting(2, 1, link, MOVING_COST))
        assert step_of(unseen, link) == pytest.approx(0.020 + took, abs=1e-3)

    def test_operations_that_are_ready_together_are_one(self) -> None:
        several = made(*((10, 0, 10, 4000) for _ in range(9)), (10, 11, 11, 4000))
        link = Link(1e9, 0.004)
        assert step_of(several, link) < 0.019 + 3 * 0.004 + 0.001

    def test_codecs_and_rare_exchanges_send_less(self) -> None:
        whole, link = made((10, 11, 11, 8_000_000)), Link(1e8, 0.0)
        by = {name: step_of(whole, link, exchange=name) for name in (*FORMS, DILOCO)}
        assert by["float32"] - 0.019 == pytest.approx(0.08, rel=0.05)
        assert by["bf16"] - 0.019 == pytest.approx(0.04, rel=0.1)
        assert by["int8"] - 0.019 - 0.0016 == pytest.approx(0.08 * 4 / 15, rel=0.15)
        assert by["int4"] - 0.019 - 0.0016 == pytest.approx(0.08 * 2 / 15, rel=0.15)
        assert by[DILOCO] - 0.019 == pytest.approx(0.008, rel=0.05)

    @pytest.mark.parametrize("hosts", [2, 4, 8, 16])
    def test_a_codec_takes_as_long_on_any_number_of_hosts(self, hosts: int) -> None:
        size, form = 800_000_000, FORMS["int8"]
        step = step_of(made((10, 11, 11, size)), Link(1e15, 0.0), hosts=hosts, exchange="int8")
        moving = sent_bytes("allreduce", size * form.share, hosts, 1) * MOVING_COST
        coding = step - 0.019 - size * form.before - moving
        assert coding == pytest.approx(size * form.cost, rel=0.05)

    def test_moving_data_takes_cores_from_computation(self) -> None:
        assert Cores(2.0, 1.0).taken == 0
        assert Cores(1.0, 1.0).taken == 1
        assert Cores(4.0, 4.0).taken == 0.25
        assert Cores(0.5, 0.0).taken == 0
        assert Cores(1.0, 1.0).speed(True) == 0.5
        assert Cores(1.0, 1.0).speed(False) == 1
        assert Cores(0.5, 1.0).speed(False) == pytest.approx(0.5 / 3)  # who waits polls
        assert Cores(0.5, 1.0).waking == 2 * WAKING
        assert Cores(math.inf, 8.0).speed(True) == 1

    def test_computation_takes_longer_on_less_than_a_core(self) -> None:
        assert Cores(1.0, 1.0).stretched == Cores(math.inf, 3.0).stretched == 1
        assert Cores(0.5, 1.0).stretched == 2
        assert Cores(0.25, 0.1).stretched == pytest.approx(1.3)  # the rest sleeps
        assert Cores(4.0, 6.0).stretched == 1.5

    @given(
        st.lists(st.tuples(st.integers(1, 18), st.integers(4, 10**7)), min_size=1, max_size=5),
        st.floats(1e6, 1e10),
        st.floats(0, 0.05),
        st.integers(2, 12),
    )
    def test_a_step_is_never_shorter_with_less(
        self, parts: list[tuple[int, int]], rate: float, trip: float, hosts: int
    ) -> None:
        whole = made(*((at, at + 1, at + 1, size) for at, size in sorted(parts)))
        steps = steps_of(whole)
        step = step_of(whole, Link(rate, trip), hosts)
        assert step >= steps.computing * 0.999
        assert step_of(whole, Link(rate / 2, trip), hosts) >= step * 0.999
        assert step_of(whole, Link(rate, trip + 0.01), hosts) >= step * 0.999
        few = Question(steps, Link(rate, trip), 1, 0.5, 10)
        assert step_seconds(few, hosts, "float32") >= step * 0.999


def forecast_of(steps: Steps, link: Link, hosts: int, exchange: str) -> Forecast:
    asked = Question(steps, link, 1, math.inf, 10)
    return next(one for one in forecasts(asked, [hosts]) if one.exchange == exchange)


class TestForecast:
    def test_what_bounds_a_step_and_when_it_pays(self) -> None:
        steps = steps_of(made((10, 11, 11, 8_000_000)))
        slow = forecast_of(steps, Link(1e8, 0.0), 2, "float32")
        assert slow.bound == "bandwidth"
        assert slow.speed_up == pytest.approx(2 * 0.019 / slow.step)
        # 2 * 19 x = 19 x + 80 where both are as fast.
        assert slow.pays_from == pytest.approx(80 / 19, rel=0.02)
        far = forecast_of(steps, Link(1e12, 0.1), 2, "float32")
        assert far.bound == "latency"
        near = forecast_of(steps, Link(1e12, 0.0), 2, DILOCO)
        assert near.bound == "compute"
        assert near.speed_up > 1.9
        starved = Question(steps, Link(1e12, 0.0), 1, 0.01, 10)
        assert next(iter(forecasts(starved, [2]))).bound == "cores"

    def test_never(self) -> None:
        steps = steps_of(made((10, 11, 11, 8_000_000)))
        assert forecast_of(steps, Link(10.0, 0.0), 2, "float32").pays_from is None


class TestCommand:
    def traced(self, folder: Path) -> str:
        path = str(folder / "trace.json.gz")
        files.write(made((10, 11, 11, 8_000_000)), path)
        return path

    def test_a_table_and_an_object(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = (self.traced(tmp_path), "--hosts", "4,2", "--link", "1gbit,0.2ms")
        assert command.main([*asked, "--batch", "32"]) == 0
        head, link, columns, *rows, _ = capsys.readouterr().out.splitlines()
        assert head == (
            "1 rank on a host: a step of 20.0 ms, of which 19.0 ms computes; 8 MB of gradients"
        )
        assert link == "link: 119 MB/s, 0.2 ms round trip"
        assert columns.split()[:3] == ["HOSTS", "EXCHANGE", "STEP"]
        assert [row.split()[:2] for row in rows] == [
            [hosts, exchange] for hosts in "24" for exchange in (*FORMS, DILOCO)
        ]
        assert int(rows[0].split()[-1]) > 32
        assert command.main([*asked, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["gradients"] == 8_000_000
        assert [one["hosts"] for one in found["forecasts"]] == [2] * 5 + [4] * 5

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"--link": "0gbit,1ms"}, "a link of 0 bit/s carries nothing"),
            ({"--link": "1gbit"}, "is not a rate and a round trip"),
            ({"--hosts": "0,2"}, "are not numbers of hosts from 1 to 4096"),
            ({"--hosts": "2,x"}, "invalid"),
            ({"--batch": "0"}, "0 is less than 1"),
            ({"--sync-every": "-5"}, "-5 is less than 1"),
            ({"--cores": "0"}, "0 is not from 0.01 to 4096"),
            ({"--cores": "nan"}, "nan is not from 0.01 to 4096"),
        ],
    )
    def test_wrong_arguments(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        changes: dict[str, str],
        why: str,
    ) -> None:
        arguments = {"--hosts": "2", "--link": "1gbit,1ms", **changes}
        words = [f"{name}={value}" for name, value in arguments.items()]
        try:
            code = command.main([self.traced(tmp_path), *words])
        except SystemExit as left:
            code = left.code  # type: ignore[assignment]
        assert code == 2
        assert why in capsys.readouterr().err

    def test_a_file_that_is_no_trace_of_this_version(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "trace.json"
        files.write(made((10, 11, 11, 400), steps=2), str(path))
        asked = (str(path), "--hosts", "2", "--link", "1gbit,1ms")
        assert command.main(asked) == 2
        assert "no steps in the trace" in capsys.readouterr().err
        whole: dict[str, Any] = json.loads(path.read_text())
        for version in (1, "3", None):
            whole["otherData"]["sirtaki"]["format"] = version
            path.write_text(json.dumps(whole))
            assert command.main(asked) == 2
            assert "a trace of another version of Sirtaki" in capsys.readouterr().err
        del whole["otherData"]["sirtaki"]["format"]
        path.write_text(json.dumps(whole))
        with pytest.raises(NoTrace, match="in format 1, where this one reads 2: record it again"):
            files.read(str(path))
        path.unlink()
        assert command.main(asked) == 2


class TestBesideScaling:
    def test_what_was_predicted_is_shown_for_the_same_number_of_ranks(self, tmp_path: Path) -> None:
        path = tmp_path / "told.json"
        steps = [{"hosts": 2, "exchange": name, "step": s} for name, s in (("a", 0.1), ("b", 0.2))]
        path.write_text(json.dumps({"ranks": 2, "forecasts": steps}))
        points = [Point(ranks, 0.11, 1.0, 1.0, []) for ranks in (2, 4)]
        assert predicted_lines(points, read_predicted(str(path))) == [
            "4 ranks, predicted (and measured): a 100.0 ms (+10%), b 200.0 ms (-45%)"
        ]

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": 1, "forecasts": [{}]}'])
    def test_another_file(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "told.json"
        path.write_text(text)
        with pytest.raises(ValueError, match="not what `sirtaki predict"):
            read_predicted(str(path))
