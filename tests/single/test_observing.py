"""What a job shows of itself: the timeline, warnings of stalls, the log, what autotuning tried."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.launch.api import run
from tests.single.launching import Job, python

pytestmark = pytest.mark.job


def events(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())


def named(found: list[dict[str, Any]]) -> dict[int, str]:
    """The names of the tracks, one a tensor."""
    return {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}


def ones() -> np.ndarray:
    return np.ones(3, np.float32)


# ---- Timeline ----


def every_operation() -> None:
    hvd.init()
    hvd.allreduce(ones(), name="loss")
    hvd.allgather(ones(), name="rows")
    hvd.broadcast(ones(), 0, name="weights")
    hvd.alltoall(np.ones(2, np.float32), name="parts")
    hvd.reducescatter(np.ones((2, 2), np.float32), name="blocks")
    hvd.allreduce(ones())
    hvd.allreduce(ones(), name="steps", op=hvd.Adasum)
    hvd.shutdown()


def test_the_timeline_shows_negotiation_and_execution_of_every_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    run(every_operation, num_proc=2)
    found = events(path)
    assert found[0]["args"]["start_time_since_epoch_in_micros"] > 0
    tracks = named(found)
    for name in ("allreduce.loss", "allgather.rows", "broadcast.weights", "alltoall.parts"):
        (track,) = (pid for pid, text in tracks.items() if text == name)
        kind = name.split(".")[0].upper()
        shown = [(e["name"], e["ph"]) for e in found if e["pid"] == track and e["ph"] != "M"]
        assert shown[0] == (f"NEGOTIATE_{kind}", "B")
        assert sorted(shown[1:3]) == [("0", "i"), ("1", "i")]  # each rank as it reports
        assert shown[3:] == [(f"NEGOTIATE_{kind}", "E"), (kind, "B"), (kind, "E")]
    assert "reducescatter.blocks" in tracks.values()
    assert "allreduce.noname.0" in tracks.values()
    (run_loss,) = (e for e in found if e["pid"] == 1 and e["name"] == "ALLREDUCE" and "args" in e)
    assert run_loss["args"] == {"dtype": "float32", "shape": "[3]"}
    assert [e["ph"] for e in found if e["name"] == "ADASUM"] == ["B", "E"]
    assert sum(e["name"] == "CYCLE_START" for e in found) == 7


def started_later(path: str) -> bool:
    hvd.init()
    hvd.allreduce(ones(), name="before")
    hvd.barrier()  # the engine of rank 0 writes what it has run only then
    hvd.start_timeline(path)
    hvd.start_timeline(path + ".never")  # once is enough
    hvd.allreduce(ones(), name='quoted "\\ ñ')
    hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.barrier()  # rank 0 writes what others ask for, too, until it has stopped
    hvd.allreduce(ones(), name="after")
    hvd.shutdown()
    return Path(path).exists()


def started_between_reports(path: str) -> None:
    hvd.init()
    early = hvd.allreduce_async(ones(), name="early") if hvd.rank() == 1 else None
    hvd.barrier()  # rank 0 has rank 1's report of what came before
    hvd.start_timeline(path)
    hvd.allreduce(ones(), name="early") if early is None else hvd.synchronize(early)
    hvd.shutdown()


def test_a_timeline_begins_with_what_is_being_negotiated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    run(started_between_reports, (str(path),), num_proc=2)
    shown = [(e["name"], e["ph"]) for e in events(path) if e["pid"] == 1 and e["ph"] != "M"]
    assert shown == [
        ("NEGOTIATE_ALLREDUCE", "B"),
        ("1", "i"),
        ("0", "i"),
        ("NEGOTIATE_ALLREDUCE", "E"),
        ("ALLREDUCE", "B"),
        ("ALLREDUCE", "E"),
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_dynamic_timeline_has_what_happens_between_start_and_stop(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    run(started_later, (str(path),), num_proc=processes)
    names = set(named(events(path)).values())
    assert 'allreduce.quoted "\\ ñ' in names
    assert not names & {"allreduce.before", "allreduce.after"}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert not any(e["name"] == "CYCLE_START" for e in events(path))


def test_a_timeline_that_cannot_be_written_is_a_value_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "/nowhere/timeline.json")
    with pytest.raises(ValueError, match=r"/nowhere/timeline\.json.*No such file"):
        hvd.init()
    assert not hvd.is_initialized()


def busy_until_killed() -> None:
    hvd.init()
    for step in range(200):
        hvd.allreduce(ones(), name=f"step{step}")
    if hvd.rank() == 0:
        time.sleep(0.2)  # for the thread that writes
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_job_leaves_a_timeline_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    with pytest.raises(RuntimeError, match="SIGKILL"):
        run(busy_until_killed, num_proc=2)
    assert len(named(events(path))) == 200


def test_a_full_disk_ends_the_timeline_after_the_last_event_that_fits_and_not_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "timeline.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))

    def write_more_than_allowed() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for _ in range(10):
            for step in range(100):
                hvd.allreduce(ones(), name=f"step{step}")
            time.sleep(0.01)

    def job() -> None:
        hvd.init()
        write_more_than_allowed()
        hvd.shutdown()

    run(job)
    assert 100 < len(events(path)) < 6000
    assert 19_000 < path.stat().st_size <= 20_000
    warnings = [line for line in capfd.readouterr().err.splitlines() if "timeline" in line]
    assert len(warnings) == 1
    assert f"warning: the timeline '{path}' ends early: File too large" in warnings[0]


# ---- Stalls ----

STALL = """if True:
    import time, numpy, sirtaki as hvd
    hvd.init()
    if hvd.rank() == 1:
        time.sleep(2.5)
    try:
        hvd.allreduce(numpy.ones(2), name="gradient")
        print("reduced")
    except hvd.HorovodInternalError as error:
        print(type(error).__name__, error)
    if hvd.rank() == 0:
        time.sleep(2)
"""


def test_a_warning_names_the_tensor_that_waits_and_the_missing_ranks() -> None:
    done = Job().run("-np", "2", "--stall-check-warning-time-seconds", "1", *python(STALL))
    assert done.returncode == 0
    assert done.stderr.count("stalled: ") == 1
    report = re.compile(
        r"^stalled: no operation has ended for 1 s; rank 1 held up rank 0\n"
        r"  allreduce 'gradient' has waited for 1 s; called by rank 0; "
        r"missing ranks: 1 \(localhost\)\n"
        r"(?:  likely cause: .*\n)?"
        r"  rank 1 \(localhost, process \d+\): asleep, in no operation yet\n"
        r"      <string>:5 in <module>.*\n"
        r"  rank 0 \(localhost, process \d+\): waits in allreduce 'gradient'\n",
        re.MULTILINE,
    )
    assert report.search(done.stderr), done.stderr
    assert sorted(done.stdout.split()) == ["[0]<stdout>:reduced", "[1]<stdout>:reduced"]


DIFFERENT_WAYS = """if True:
    import numpy, sirtaki as hvd
    hvd.init()
    hvd.allreduce(numpy.ones(2), name="common")
    try:
        hvd.allreduce(numpy.ones(2), name="mine" if hvd.rank() == 0 else "yours")
    except hvd.CollectiveTimeoutError as error:
        print(error)
"""


def test_ranks_that_have_gone_different_ways_are_told_where() -> None:
    flags = ("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "4")
    done = Job().run("-np", "2", *flags, *python(DIFFERENT_WAYS))
    failed = []
    for mine, yours, rank in (("mine", "yours", 1), ("yours", "mine", 0)):
        missing = rf"  allreduce '{mine}' has waited for 1 s; .* missing ranks: {rank} \("
        assert re.search(missing, done.stderr), done.stderr
        waits = rf"  rank {rank} \(localhost, process \d+\): waits in allreduce '{yours}'\n"
        assert re.search(waits, done.stderr)
        state = rf"Rank {rank}: waiting with allreduce '{yours}', submitted \d+\.\d s ago, for o"
        failed += re.findall(rf"allreduce '{mine}': not submitted within .*{state}", done.stdout)
    assert failed  # the second one may hear that the first has left
    assert "gives other tensor names on other ranks" in done.stderr


def test_no_warning_without_stall_check() -> None:
    flags = ("--no-stall-check", "--stall-check-warning-time-seconds", "1")
    done = Job().run("-np", "2", *flags, *python(STALL))
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_operation_that_waits_too_long_fails_with_the_missing_ranks() -> None:
    flags = ("--no-stall-check", "--stall-check-shutdown-time-seconds", "1")
    done = Job().run("-np", "2", *flags, *python(STALL))
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("[0]"))
    assert "CollectiveTimeoutError" in line
    assert "allreduce 'gradient': not submitted within" in line
    assert "missing ranks: 1 (localhost)" in line


# ---- Log ----

ONE_SUM = "import numpy, sirtaki as hvd; hvd.init(); hvd.allreduce(numpy.ones(2), name='x')"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("warning", []),
        ("INFO", ["info: joins a world of 1", "info: leaves the world"]),
        (
            "debug",
            [
                "info: joins a world",
                "debug: fusion threshold",
                "debug: shared arrays",
                "info: leaves",
            ],
        ),
        (
            "trace",
            ["info: joins", "debug: ", "debug: ", "trace: runs allreduce 'x'", "info: leaves"],
        ),
    ],
)
def test_the_log_shows_what_is_severe_enough(level: str, expected: list[str]) -> None:
    flags = ("--log-level", level, "--log-without-timestamp")
    done = Job().run("-np", "1", *flags, *python(ONE_SUM))
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    for line, text in zip(lines, expected, strict=True):
        assert line.startswith(f"[0]<stderr>:sirtaki: rank 0 (localhost): {text}")


def test_log_lines_begin_with_the_time_unless_told_otherwise() -> None:
    done = Job().run("-np", "1", "--log-level", "info", *python(ONE_SUM))
    lines = done.stderr.splitlines()
    assert lines
    for line in lines:
        assert re.match(r"\[0\]<stderr>:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} sirtaki: ", line)


# ---- Autotuning ----


def many_steps() -> None:
    hvd.init()
    hvd.broadcast(np.ones(1000), 0, name="parameters")  # as most scripts begin
    tensors = [np.ones(1000, np.float32) for _ in range(4)]
    for _ in range(60):
        handles = [hvd.allreduce_async(t, name=f"t{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            assert hvd.synchronize(handle)[0] == 1


def autotune(path: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> list[dict[str, str]]:
    """Train with autotuning; return the rows of its log."""
    variables = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": str(path),
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
        **more,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run(many_steps, num_proc=2)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_autotuning_logs_what_it_tried_and_keeps_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = autotune(tmp_path / "tried.csv", monkeypatch)
    assert set(rows[0]) == {"chunk_kb", "fusion_threshold_mb", "bytes_per_microsecond"}
    *tried, last = rows
    assert len(tried) > 2
    assert len({row["chunk_kb"] for row in tried}) > 1
    assert len({row["fusion_threshold_mb"] for row in tried}) > 1
    assert last == max(tried, key=lambda row: float(row["bytes_per_microsecond"]))


def test_autotuning_leaves_alone_what_the_user_has_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_by_user = {"HOROVOD_FUSION_THRESHOLD": str(3 << 20), "SIRTAKI_CHUNK_BYTES": "65536"}
    rows = autotune(tmp_path / "tried.csv", monkeypatch, **set_by_user)
    assert {(row["chunk_kb"], row["fusion_threshold_mb"]) for row in rows} == {("64", "3")}
