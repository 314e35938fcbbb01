"""How a rank lets other programs of its user ask it."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirtaki as hvd
from sirtaki.core.config import Config
from sirtaki.core.world.state import current_world
from sirtaki.questions.answering import Answering
from sirtaki.questions.messages import Asked, Question, read_question
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.host.presence import Presence, Record

SIGNAL = Config().stacks_signal


def own() -> list[Presence]:
    return [one for one in presence.present() if one.record.pid == os.getpid()]


def record() -> Record:
    return Record("test", 0, os.getpid(), ["program"], ["here"], 0.0)


def exchange(one: Presence, question: bytes) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(10)
        link.connect(one.socket)
        link.sendall(question)
        return json.loads(link.makefile().read())


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that records may be in."""
    chosen = tmp_path / "records"
    monkeypatch.setenv("SIRTAKI_RUNTIME_DIR", str(chosen))
    return chosen


@pytest.mark.usefixtures("folder")
class TestAnswering:
    def test_it_lasts_from_init_to_shutdown(self) -> None:
        hvd.init()
        found = [one.record.rank for one in own()]
        hvd.shutdown()
        assert (found, own()) == ([0], [])

    def test_a_world_that_was_entered_answers_beside_the_default_one(self) -> None:
        hvd.init()
        with hvd.placements(1) as [placement], hvd.World(placement):
            found = len(own())
        hvd.shutdown()
        assert (found, own()) == (2, [])

    def test_its_thread_ends_with_it(self) -> None:
        before = set(threading.enumerate())
        answering = Answering(record(), {})
        [thread] = set(threading.enumerate()) - before
        answering.close()
        thread.join(10)
        assert not thread.is_alive()

    def test_stacks_name_threads_and_lines(self) -> None:
        hvd.init()
        reply = exchange(own()[0], Asked(Question.STACKS).write())
        hvd.shutdown()
        stacks = {one["thread"]: one["stack"] for one in reply["answer"]}
        assert any("test_stacks_name_threads_and_lines" in line for line in stacks["MainThread"])

    def test_memory_is_in_bytes(self) -> None:
        hvd.init()
        reply = exchange(own()[0], Asked(Question.MEMORY).write())
        hvd.shutdown()
        assert 1 << 20 < reply["answer"]["resident"] <= reply["answer"]["peak"]

    @pytest.mark.parametrize(
        "question",
        [
            '{"question": "future", "host": null}',
            '{"question": "stacks", "host": -1}',
            '{"question": ["stacks"]}',
            '["stacks"]',
            "7",
        ],
    )
    def test_an_unknown_question_is_answered_with_an_error(self, question: str) -> None:
        answering = Answering(record(), {})
        reply = exchange(own()[0], question.encode())
        answering.close()
        assert reply == {"error": f"unknown question {question}: another version of sirtaki?"}

    def test_what_only_others_answer_is_refused(self) -> None:
        answering = Answering(record(), {})
        reply = exchange(own()[0], Asked(Question.FIGURES).write())
        answering.close()
        assert reply == {"error": "no rank answers 'figures'"}

    def test_an_answer_that_fails_is_an_error(self) -> None:
        answering = Answering(record(), {Question.STATE: lambda: 1 // 0})
        reply = exchange(own()[0], Asked(Question.STATE).write())
        answering.close()
        assert reply == {"error": "ZeroDivisionError: integer division or modulo by zero"}

    def test_who_says_nothing_holds_up_nobody_for_ever(self) -> None:
        answering = Answering(record(), {Question.STATE: lambda: 1})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.connect(own()[0].socket)
            assert exchange(own()[0], Asked(Question.STATE).write()) == {"answer": 1}
        answering.close()

    def test_a_forked_child_leaves_its_parents_record_alone(self) -> None:
        answering = Answering(record(), {})
        child = os.fork()
        if child == 0:
            answering.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert own()[0].alive
        answering.close()

    def test_a_child_does_not_seem_to_be_its_dead_parent(self) -> None:
        code = """
import os
import sirtaki as hvd
hvd.init()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"x")
    os.close(1), os.close(2)
    import time
    time.sleep(20)
    os._exit(0)
os.read(reader, 1)
os._exit(0)
"""
        in_a_process(code)
        [one] = presence.present()
        assert not one.alive


@given(st.sampled_from(Question), st.none() | st.integers(0, 10_000))
def test_a_question_is_read_as_it_was_written(question: Question, host: int | None) -> None:
    assert read_question(Asked(question, host).write()) == (question, host)


class TestRecords:
    def test_those_of_dead_processes_are_swept_away(self, folder: Path) -> None:
        one = presence.prepare(record())
        one.announce()
        presence.sweep()
        assert not one.folder.exists()
        assert folder.exists()

    def test_those_of_another_machine_that_shares_the_folder_stay(self, folder: Path) -> None:
        one = presence.prepare(record()._replace(boot="another"))
        one.announce()
        presence.sweep()
        assert one.folder.exists()
        assert own() == []

    def test_those_of_processes_that_answer_stay(self, folder: Path) -> None:
        answering = Answering(record(), {})
        presence.sweep()
        assert len(own()) == 1
        answering.close()

    def test_nobody_else_may_enter_their_folder(self, folder: Path) -> None:
        presence.prepare(record())
        assert folder.stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_others_may_enter_is_not_used(self, folder: Path) -> None:
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        with pytest.raises(PermissionError, match="belongs to somebody else, or others may enter"):
            presence.prepare(record())

    def test_a_folder_that_is_a_link_is_not_used(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PermissionError):
            presence.prepare(record())

    def test_a_world_starts_where_no_record_can_be_written(self, folder: Path) -> None:
        folder.write_text("a file")
        hvd.init()
        hvd.shutdown()

    def test_what_is_no_record_is_passed_over(self, folder: Path) -> None:
        one = presence.prepare(record())
        (one.folder / "record.json").write_text('{"job": 1}')
        assert list(presence.present()) == []


class TestSignal:
    CODE = (
        "import signal, sirtaki; {before}; sirtaki.init(); print(repr(signal.getsignal({number})))"
    )

    def test_a_handler_of_the_program_stays(self) -> None:
        before = f"signal.signal({SIGNAL}, signal.SIG_IGN)"
        assert "SIG_IGN" in in_a_process(self.CODE.format(before=before, number=SIGNAL))

    @pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
    def test_signals_of_programs_are_left_alone(self, number: int) -> None:
        assert "SIG_DFL" in in_a_process(self.CODE.format(before="1", number=int(number)))

    def test_it_can_be_chosen(self) -> None:
        assert Config.from_env({"SIRTAKI_STACKS_SIGNAL": "40"}).stacks_signal == 40

    @pytest.mark.parametrize("text", ["10", "65", "-1", "x"])
    def test_one_that_programs_use_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="SIRTAKI_STACKS_SIGNAL="):
            Config.from_env({"SIRTAKI_STACKS_SIGNAL": text})


def test_a_world_that_has_ended_waits_for_no_garbage_collection() -> None:
    hvd.init()
    world = weakref.ref(current_world())
    gc.disable()
    try:
        hvd.shutdown()
        assert world() is None
    finally:
        gc.enable()
