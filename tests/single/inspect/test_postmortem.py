"""What is kept of a job that has failed: bounded, for its user alone, and told again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sirtaki.inspect import postmortem
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.job_watch import JobWatch
from sirtaki.launch.output.first_error import FirstError
from sirtaki.launch.processes.outcome import Failure, Outcome
from sirtaki.questions.messages import Question
from tests.single.hang.made_up import answer, opened

ANSWERS = [answer(0, 2, opened("grad")), answer(1, 2)]
OUTCOME = Outcome(Failure(1, 137, "SIGKILL"), first_error=FirstError(1, "ValueError: bad"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIRTAKI_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run" / "postmortem"


def keep(job: str, answers: Any = ANSWERS, outcome: Outcome = OUTCOME, **environ: str) -> Any:
    slots = [Slot(rank, 2, "node-a", rank, 2, 0, 1) for rank in range(2)]
    settings: Any = SimpleNamespace(command=["python", "my train.py"], slots=slots)
    return postmortem.keep(outcome, settings, job, answers, environ)


def test_it_tells_the_story(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    OUTCOME.out_of_memory[1] = "the control group /j"
    keep("a1b2")
    assert postmortem.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job a1b2, ")
    assert lines[0].endswith(": python 'my train.py'")
    assert lines[1:5] == [
        "rank 1 on node-a failed first: killed by SIGKILL: memory ran out in the control group /j",
        "the first error is that of rank 1: ValueError: bad",
        "what the ranks did then:",
        "stalled: no operation has ended for 12 s; rank 1 held up rank 0",
    ]


def test_it_is_the_users_alone(root: Path) -> None:
    assert keep("a1b2").stat().st_mode & 0o777 == 0o700


def test_the_latest_eight_are_kept(root: Path) -> None:
    folders = [keep(f"job{number}") for number in range(10)]
    assert sum(folder.exists() for folder in folders) == 8
    assert folders[-1].exists()


def test_where_the_user_has_chosen_a_folder_all_are_kept(tmp_path: Path) -> None:
    for number in range(10):
        keep(f"job{number}", SIRTAKI_POSTMORTEM=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 10


def test_its_size_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = answer(0, 2, place={"stack": [["train.py", 1, "step", "x" * 5000, True]]})
    monkeypatch.setattr(postmortem, "_MOST_BYTES", 4000)
    kept = json.loads((keep("a", [long]) / "postmortem.json").read_text())
    assert kept["ranks"][0]["place"] is None
    monkeypatch.setattr(postmortem, "_MOST_BYTES", 400)
    kept = json.loads((keep("b", [long]) / "postmortem.json").read_text())
    assert (kept["ranks"], kept["launcher"]["rank"]) == ([], 1)


def test_nothing_is_kept_of_a_job_that_ended_well_or_where_it_cannot_be(root: Path) -> None:
    assert keep("a", outcome=Outcome()) is None
    assert keep("a", SIRTAKI_POSTMORTEM="0") is None
    with pytest.raises(NotADirectoryError):
        keep("a", SIRTAKI_POSTMORTEM="/dev/null/x")


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_somebody_else_has_put_at_its_place_is_left_alone(tmp_path: Path, kind: str) -> None:
    precious, taken = tmp_path / "precious", tmp_path / "shared" / "a"
    precious.write_text("my thesis")
    (tmp_path / "shared").mkdir()
    if kind == "link":
        taken.symlink_to(tmp_path)
    else:
        taken.mkdir()
        taken.chmod(0o777)  # which stands for another user's
    for name in ("new", "postmortem.json"):
        (taken / name).symlink_to(precious)
    kept = keep("a", SIRTAKI_POSTMORTEM=str(tmp_path / "shared"))
    assert precious.read_text() == "my thesis"
    assert kept.parent == tmp_path / "shared"
    assert kept.name.startswith("a.")
    assert json.loads((kept / "postmortem.json").read_text())["launcher"]["job"] == "a"


def test_a_runtime_folder_that_others_may_enter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("SIRTAKI_RUNTIME_DIR", str(tmp_path))
    assert postmortem.main([]) == 2
    assert f"{tmp_path} belongs to somebody else, or others may enter" in capsys.readouterr().err


def test_a_job_that_another_forgets_meanwhile_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("a")
    folder = keep("b")
    (folder / "postmortem.json").unlink()
    (folder / "postmortem.json").symlink_to("gone")
    assert [each.name for each in postmortem._kept(root)] == ["a"]


def test_nothing_in_a_file_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"job": "\x1b]0;owned\x07", "time": 1, "command": ["\x1b[2J", "\udcff"], "error": "\x9b"}
    text = json.dumps({"launcher": {**said, "rank": None, "first_error": None}, "ranks": []})
    (tmp_path / "postmortem.json").write_text(text)
    assert postmortem.main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert all(each.isprintable() for each in told.replace("\n", ""))
    assert "?]0;owned?" in told


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"launcher": {}, "ranks": []}'])
def test_what_is_damaged_is_said_to_be(
    root: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = keep("a")
    (folder / "postmortem.json").write_text(text)
    assert postmortem.main([str(folder)]) == 2
    assert f"sirtaki postmortem: error: {folder}/postmortem.json: " in capsys.readouterr().err


def test_without_a_failed_job_it_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert postmortem.main([]) == 2
    assert "none of your jobs has failed on this machine" in capsys.readouterr().err


def test_its_parser_takes_one_folder() -> None:
    assert postmortem.make_parser().parse_args(["x"]) == argparse.Namespace(folder="x")


class Host:
    """A host that writes down the numbers of its questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[Question, int]] = []

    def ask(self, job: str, question: Question, number: int) -> bool:
        self.asked.append((question, number))
        return True


def test_a_late_answer_is_not_taken_for_that_to_the_last_question() -> None:
    host: Any = Host()
    watch = JobWatch("a1b2", 0.01, lambda _: None)
    while not host.asked:
        watch.look([host])
    watch.last_look([host])
    (poll, first), (records, last) = host.asked
    watch.take(host, first, json.dumps([{"to": poll.value}]).encode())
    assert not watch.seen
    watch.take(host, last, json.dumps([{"to": records.value}]).encode())
    assert watch.seen
    assert watch.answers == [{"to": "records"}]
    watch.close()
