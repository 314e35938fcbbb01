"""The metrics as Prometheus reads them: names, formats, and counters that only grow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from sirtaki.hang.answers import job_of
from sirtaki.inspect.live.prometheus import Written
from sirtaki.inspect.live.totals import Count, JobTotals, RankLabels
from tests.single.hang.made_up import answer
from tests.single.inspect.live.made_up import MadeUp, samples
from tests.single.inspect.live.test_metrics import free_port, scrape
from tests.single.launching import LIMIT, Job

BOARD = Path(__file__).parents[4] / "docs" / "_static" / "grafana.json"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
COUNTERS = (
    "sirtaki_bytes_total",
    "sirtaki_cpu_seconds_total",
    "sirtaki_errors_total",
    "sirtaki_exposed_seconds_total",
    "sirtaki_operations_total",
    "sirtaki_steps_total",
    "sirtaki_waiting_seconds_total",
    "sirtaki_worlds_total",
)
# Enters two worlds, of 20 steps each, and stays in the second one while the file is there.
PROGRAM = """
import os, sys, time, numpy
import sirtaki as hvd

for world in range(2):
    hvd.init()
    for step in range(20):
        hvd.allreduce(numpy.ones(10, numpy.float32), name="gradient")
    if world == 0:
        hvd.shutdown()
end = time.monotonic() + 60
while os.path.exists(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.01)
"""


def totals(began: int = 1, operations: int = 5, exposed: float = 1.5) -> dict[str, Any]:
    """What a rank has counted: a step of 20 ms for each operation but one."""
    steps = operations - 1
    return {
        "began": began,
        "operations": {"allreduce": operations},
        "bytes": {"allreduce": 40 * operations},
        "errors": {"allreduce": 0},
        "seconds": {"waiting": 0.5, "exposed": exposed, "steps": 0.02 * steps},
        "steps": {"0.01": 0, "0.025": steps, "+Inf": 0},
    }


def sampled(*answers: dict[str, Any], counted: JobTotals | None = None) -> JobTotals:
    """Return the counters after a sample more."""
    counted = counted or JobTotals()
    counted.add(job_of(answers), answers)  # type: ignore[arg-type]
    return counted


def written(accept: str = "", host: str = "node0") -> tuple[str, str]:
    looks = MadeUp(host=host)
    told = [answer(rank, 2, told={"totals": totals()}, host=host) for rank in range(2)]
    text, kind = Written(looks, sampled(*told))(accept)
    return text.decode(), kind


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"])
def test_who_asks_for_no_other_format_gets_that_of_prometheus(accept: str) -> None:
    text, kind = written(accept)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in plain(text)}
    assert all(family.documentation for family in families.values())
    assert families["sirtaki_step_seconds"].type == "histogram"
    for name in COUNTERS:
        assert families[name.removesuffix("_total")].type == "counter"
        assert f"# TYPE {name} counter\n" in text
        assert f"\n{name}{{" in text


def test_who_asks_for_openmetrics_gets_it() -> None:
    text, kind = written(f"{OPEN_METRICS},text/plain;version=0.0.4;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text.endswith("\n# EOF\n")
    assert "# TYPE sirtaki_bytes counter\n" in text
    names = {one.name for family in open_metrics(text) for one in family.samples}
    assert names == {name for name, _ in samples(written()[0])}


def test_promtool_has_nothing_to_say() -> None:
    tool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if tool is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    before, _ = Written(MadeUp(ranks=0), JobTotals())("")
    for text in (written()[0], before.decode()):
        command = [tool, "check", "metrics"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_buckets_of_a_step_s_time_add_up() -> None:
    labels = {("sirtaki_job", "0123abcd"), ("rank", "1"), ("host", "node0")}
    found = samples(written()[0])
    name = "sirtaki_step_seconds"
    buckets = [
        found[f"{name}_bucket", frozenset({*labels, ("le", bound)})]
        for bound in ("0.01", "0.025", "+Inf")
    ]
    assert buckets == [0, 4, 4]
    assert found[f"{name}_count", frozenset(labels)] == 4
    assert found[f"{name}_sum", frozenset(labels)] == pytest.approx(0.08)
    assert found["sirtaki_steps_total", frozenset(labels)] == 4


def test_a_host_cannot_add_lines() -> None:
    host = 'x"} 1\nevil{a="\\'
    for accept, parse in (("", plain), (OPEN_METRICS, open_metrics)):
        families = list(parse(written(accept, host)[0]))
        assert not any(family.name == "evil" for family in families)
        assert {one.labels.get("host", host) for f in families for one in f.samples} == {host}


def test_before_a_rank_has_begun_there_are_none() -> None:
    looks = MadeUp()
    looks.ended = True
    text = Written(looks, JobTotals())("")[0].decode()
    assert list(samples(text).values()) == [0]


def test_counters_go_on_where_an_elastic_job_gives_a_rank_to_another_process() -> None:
    place, count = RankLabels(0, "node0"), Count("operations", "allreduce")
    counted = sampled(answer(0, 1, told={"totals": totals(1, 10)}))
    assert counted.told()[place][count] == 10
    sampled(answer(0, 1, told={"totals": totals(1, 12)}), counted=counted)
    assert counted.told()[place][count] == 12
    for _ in range(2):
        sampled(answer(0, 1, told={"totals": totals(7, 3)}), counted=counted)
        assert counted.told()[place][count] == 15
    assert counted.told()[place][Count("worlds", "")] == 2
    sampled(counted=counted)  # between two worlds nobody answers
    assert counted.told()[place][count] == 15


def test_what_ended_after_the_last_sample_of_a_world_counts_in_the_next_one() -> None:
    counted = sampled(answer(0, 1, told={"totals": totals(1, 10)}))
    told = answer(0, 1, told={"totals": totals(7, 1)})
    told["work"][0]["ended"] = [{"key": "", "rank": 0, "totals": totals(1, 14)}]
    for _ in range(2):
        sampled(told, counted=counted)
        assert counted.told()[RankLabels(0, "node0")][Count("operations", "allreduce")] == 15


def test_a_wait_that_seemed_longer_does_not_count_back() -> None:
    place, count = RankLabels(0, "node0"), Count("seconds", "exposed")
    counted, seen = JobTotals(), []
    for exposed in (2.0, 1.9, 2.5):
        sampled(answer(0, 1, told={"totals": totals(1, 5, exposed)}), counted=counted)
        seen.append(counted.told()[place][count])
    assert seen == [2.0, 2.0, 2.5]


def test_groups_of_a_framework_add_operations_and_no_steps() -> None:
    told = answer(0, 1, told={"totals": totals(1, 10)})
    group = answer(0, 1, told={"totals": totals(2, 100)})["work"][0]
    told["work"].append({**group, "key": "group", "whole": False, "members": [0]})
    counts = sampled(told).told()[RankLabels(0, "node0")]
    assert counts[Count("operations", "allreduce")] == 110
    assert (counts[Count("steps", "0.025")], counts[Count("worlds", "")]) == (9, 1)


def test_the_board_of_grafana_asks_for_metrics_that_exist() -> None:
    board = json.loads(BOARD.read_text())
    known = {name for name, _ in samples(written()[0])}
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"sirtaki_\w+(?=[{])", query)}
    assert asked <= known
    # A histogram has three; everything else is on the board.
    assert asked >= {name for name in known if not name.startswith("sirtaki_step_seconds")}
    assert board["schemaVersion"] >= 36
    datasource, job = board["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert job["query"]["query"] == "label_values(sirtaki_ranks, sirtaki_job)"
    assert all('{sirtaki_job=~"$job"}' in query for query in queries)
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}


def test_a_job_counts_all_steps_of_its_worlds(job: Job, tmp_path: Path) -> None:
    script, token = tmp_path / "program.py", tmp_path / "token"
    script.write_text(PROGRAM)
    port = free_port()
    flags = ("--metrics-port", str(port), "--metrics-token-file", str(token))
    process = job.start("-np", "2", *flags, sys.executable, str(script), str(token))
    assert process.stdout is not None
    assert any("/metrics" in line for line in process.stdout)
    bearer = f"Bearer {token.read_text().strip()}"
    end = time.monotonic() + LIMIT
    calls: list[float] = []
    while calls != [40, 40]:
        assert time.monotonic() < end, calls
        found = samples(scrape(port, Authorization=bearer)[1])
        calls = [
            value
            for (name, labels), value in found.items()
            if name == "sirtaki_operations_total" and ("kind", "allreduce") in labels
        ]
    worlds = [value for (name, _), value in found.items() if name == "sirtaki_worlds_total"]
    steps = [value for (name, _), value in found.items() if name == "sirtaki_steps_total"]
    assert (worlds, steps) == ([2, 2], [38, 38])
    token.unlink()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0
