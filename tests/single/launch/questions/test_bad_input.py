"""Questions about jobs of other users, and records that a dying process has left half written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.hang.asking import jobs
from sirtaki.hang.collect import REPORT, collect
from sirtaki.launch.questions import asked, hang
from sirtaki.records import replace
from sirtaki.rendezvous.host.presence import Presence, Record, own_folder, own_namespace, prepare
from tests import needs

pytestmark = pytest.mark.timeout(60)

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIRTAKI_RUNTIME_DIR", str(tmp_path / "run"))
    return own_folder()


@pytest.fixture
def listening(folder: Path) -> Iterator[Presence]:
    """A rank that takes questions and answers none."""
    record = Record("a1b2c3d4", 0, os.getpid(), ["train.py"], ["here"], 0.0)
    presence = prepare(replace(record, namespace=own_namespace()))
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
    assert "no job of yours here is called so" in said


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
    [told] = collect(listening.record.job, REPORT, patience=0.1)
    assert told["busy"].startswith("did not answer within 0.1 s")
    assert told["pid"] == os.getpid()


def test_a_launcher_that_was_killed_is_not_asked(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.bind(str(folder / "launcher.a1b2c3d4"))
    assert asked.ask_launcher("a1b2c3d4") == []
    assert asked.launched_here("a1b2") == ""
    assert not (folder / "launcher.a1b2c3d4").exists()


def test_a_launcher_answers_what_its_ranks_have_told(folder: Path) -> None:
    def wake() -> None:
        assert launcher.wanted == "work"
        launcher.answer([b'[{"rank": 0}]', b" [] ", b"no list", b'[{"rank": 1}]'])

    launcher = asked.Asked("a1b2c3d4", wake)
    assert asked.launched_here("a1b2") == "a1b2c3d4"
    assert asked.ask_launcher("a1b2c3d4") == [{"rank": 0}, {"rank": 1}]
    launcher.close()
    assert asked.ask_launcher("a1b2c3d4") == []


@pytest.mark.parametrize(
    ("question", "host"),
    [("trace take 12", 12), ("trace take", None), ("work 1", None), ("trace take -1", None)],
)
def test_of_a_trace_one_host_is_asked_at_a_time(question: str, host: int | None) -> None:
    assert asked.host_of(question) == host


@needs.root
@needs.program("mount")
def test_a_full_disk_keeps_nothing_half_written(tmp_path: Path) -> None:
    from tests.single.hang.made_up import answer, opened
    from tests.single.launch.questions.test_postmortem import keep

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        small = keep("small", SIRTAKI_POSTMORTEM=str(tmp_path))
        json.loads((small / "postmortem.json").read_text())
        many = [answer(rank, 200, opened("grad")) for rank in range(200)]
        assert keep("large", answers=many, SIRTAKI_POSTMORTEM=str(tmp_path)) is None
        assert [path.name for path in tmp_path.iterdir()] == ["small"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
        shutil.rmtree(tmp_path, ignore_errors=True)
