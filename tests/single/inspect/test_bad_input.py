"""Questions about jobs of other users, and records that a dying process has left half written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sirtaki.inspect import hang
from sirtaki.inspect.ps import main as ps
from sirtaki.launch.job_watch import JobWatch
from sirtaki.observe.trace import command as trace
from sirtaki.questions.asking import (
    SeveralJobs,
    UnknownJob,
    ask_launcher,
    find,
    find_launched,
    jobs,
    launched_here,
)
from sirtaki.questions.collect import collect
from sirtaki.questions.launcher import LauncherAnswers
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import Presence, Record, own_folder, own_namespace, prepare
from tests import needs

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIRTAKI_RUNTIME_DIR", str(tmp_path / "run"))
    return own_folder()


@pytest.fixture
def listening(folder: Path) -> Iterator[Presence]:
    """A rank that takes questions and answers none."""
    record = Record("a1b2c3d4", 0, os.getpid(), ["train.py"], ["here"], 0.0)
    presence = prepare(record._replace(namespace=own_namespace()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.bind(presence.socket)
        link.listen()
        presence.announce()
        yield presence


@needs.root
def test_a_job_of_another_user_is_not_known(listening: Presence) -> None:
    """Nobody else can enter the folder; that user is told what somebody without jobs is."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        sys.stderr = os.fdopen(writer, "w", buffering=1)
        os._exit(hang.main([listening.record.job]))
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        said = file.read()
    assert os.waitstatus_to_exitcode(status) == 2
    assert "no running job" in said


def test_the_only_job_needs_no_name(
    listening: Presence, capsys: pytest.CaptureFixture[str]
) -> None:
    job = listening.record.job
    assert find(None) == find(job[:3]) == jobs()[job]
    with pytest.raises(SystemExit, match="2"):
        trace.main([job])
    assert f"`sirtaki trace start {job}` begins to record" in capsys.readouterr().err
    other = prepare(listening.record._replace(job="another"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.bind(other.socket)
        link.listen()
        other.announce()
        with pytest.raises(SeveralJobs, match=f"several jobs are running: {job}, another; name"):
            find(None)
        with pytest.raises(UnknownJob, match=f"no running job 'x'; running: {job}, another"):
            find("x")


@pytest.mark.parametrize(
    "left", ["", '{"job": "dead', "[1, 2]", "null", '{"job": 1}', "\x00\x00\x00\x00"]
)
def test_a_record_that_is_damaged_hides_no_other(
    listening: Presence, folder: Path, left: str
) -> None:
    (folder / "123.dead").mkdir()
    (folder / "123.dead" / "record.json").write_text(left)
    assert list(jobs()) == [listening.record.job]


def test_a_rank_that_does_not_answer_is_told_from_one_that_has_ended(listening: Presence) -> None:
    [told] = collect(listening.record.job, Question.REPORT, patience=0.1)
    assert told["busy"].startswith("did not answer within 0.1 s")
    assert told["pid"] == os.getpid()


def test_a_launcher_that_was_killed_is_not_asked(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.bind(str(folder / "launcher.a1b2c3d4"))
    assert ask_launcher("a1b2c3d4", Question.REPORT) is None
    assert launched_here("a1b2") == ""
    assert not (folder / "launcher.a1b2c3d4").exists()


def test_a_launcher_of_another_job_is_a_job_too(listening: Presence) -> None:
    launcher = LauncherAnswers("beef", lambda: None)
    with pytest.raises(SeveralJobs, match="several jobs are running: a1b2c3d4, beef; name"):
        find_launched(None)
    assert find_launched(listening.record.job)[0] == listening.record.job
    launcher.close()


def test_a_launcher_answers_what_its_ranks_have_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def wake() -> None:
        assert launcher.wanted == (Question.REPORT, None)
        launcher.answer([b'[{"rank": 0}]', b" [] ", b"no list", b'[{"rank": 1}]'])

    launcher = LauncherAnswers("a1b2c3d4", wake)
    assert launched_here("a1b2") == "a1b2c3d4"
    assert find_launched("a1b2") == ("a1b2c3d4", [])
    with pytest.raises(UnknownJob, match="a1b2c3d4 was started here, and no rank of it has called"):
        find("a1b2")
    assert ps([]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:3] == ["a1b2c3d4", "launcher", Path(sys.executable).name]
    assert ask_launcher("a1b2c3d4", Question.REPORT) == [{"rank": 0}, {"rank": 1}]
    assert ask_launcher("a1b2c3d4", Question.STACKS) is None
    launcher.close()
    assert ask_launcher("a1b2c3d4", Question.REPORT) is None


class Host:
    """A host whose ranks are not asked really."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def ask(self, job: str, question: Question, number: int) -> bool:
        self.asked.append(question)
        return True


def test_of_a_trace_one_host_is_asked_at_a_time(folder: Path) -> None:
    hosts: Any = [Host(), Host()]
    watch = JobWatch("a1b2c3d4", 0.0, lambda _: None)
    watch.answer_questions()
    told: list[object] = []

    def ask() -> None:
        told.extend(ask_launcher("a1b2c3d4", Question.TRACE_TAKE, host) for host in (1, 2))

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        watch.look(hosts)
        if not watch.seen:
            watch.take(hosts[1], watch._number, b'[{"rank": 3}]')
        time.sleep(0.001)
    watch.close()
    assert told == [[{"rank": 3}], None]
    assert [host.asked for host in hosts] == [[], [Question.TRACE_TAKE]]


@needs.mounting()
def test_a_full_disk_keeps_nothing_half_written(tmp_path: Path) -> None:
    from tests.single.hang.made_up import answer, opened
    from tests.single.inspect.test_postmortem import keep

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        small = keep("small", SIRTAKI_POSTMORTEM=str(tmp_path))
        json.loads((small / "postmortem.json").read_text())
        many = [answer(rank, 200, opened("grad")) for rank in range(200)]
        with pytest.raises(OSError, match="No space left"):
            keep("large", answers=many, SIRTAKI_POSTMORTEM=str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["small"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
        shutil.rmtree(tmp_path, ignore_errors=True)
