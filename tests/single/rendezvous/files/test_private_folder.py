"""Folders of this user's alone, those in which jobs leave their records, and homes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sirtaki.inspect import ps
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.shared_folder import shared_directory
from sirtaki.questions.asking import UnknownJob, find
from sirtaki.rendezvous.files.private_folder import in_home, opened, private_folder_in, write_whole
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.world import elastic


def test_without_a_home_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)
    with pytest.raises(ValueError, match=r"no home for ~/x: HOME is not set.*or SHARED"):
        in_home("~/x", "SHARED")
    with pytest.raises(LaunchError, match="SIRTAKI_SHARED_DIR"):
        shared_directory({})
    assert shared_directory({"SIRTAKI_SHARED_DIR": "/x"}) == Path("/x")


def test_a_file_appears_whole_and_through_nobodys_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("my thesis")
    folder = private_folder_in(tmp_path, "own")
    (folder / "file").symlink_to(precious)
    with opened(folder) as inside:
        write_whole(inside, "file", b"new")
    assert (precious.read_text(), (folder / "file").read_text()) == ("my thesis", "new")
    assert private_folder_in(tmp_path, "own") == folder
    folder.chmod(0o750)
    assert private_folder_in(tmp_path, "own") != folder


def test_who_cannot_be_found_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv(presence.RUNTIME_DIR, str(tmp_path))
    why = f"{tmp_path} belongs to somebody else, or others may enter it"
    assert ps.main([]) == 2
    assert why in capsys.readouterr().err
    with pytest.raises(UnknownJob, match=why):
        find("cafe")
    with pytest.raises(PermissionError, match=f"{why}; set SIRTAKI_RUNTIME_DIR to a folder"):
        presence.own_folder()


def test_records_of_another_version_are_read_as_far_as_they_make_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv(presence.RUNTIME_DIR, str(tmp_path))
    good = {"job": "cafe", "rank": 0, "pid": os.getpid(), "command": ["a\x1b[2J\udcff"]}
    good |= {"hostnames": ["here"], "started": 0.0}
    odd = [{**good, name: 1.5j.imag} for name in ("rank", "job", "hostnames", "command")]
    texts = [json.dumps(each) for each in ({**good, "new": 1}, *odd, {**good, "rank": 1})]
    for number, text in enumerate([*texts, "[" * 100_000, "[]", "\xff"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "record.json").write_text(text)
    assert [one.folder.name for one in presence.present()] == ["0"]
    monkeypatch.setattr(presence.Presence, "alive", True)
    assert ps.main([]) == 0
    assert "'a?[2J?'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("elastic/ready/0", b"[" * 100_000),
        ("elastic/ready/0", b'{"id": [], "number": 0, "epoch": 0}'),
        ("elastic/ready/0", b'{"id": true, "number": 0, "epoch": 0}'),
        ("elastic/training/0", b'{"id": 0, "signals": ["x"]}'),
        ("elastic/leaving/0", b'{"id": 0, "signal": "x"}'),
        ("elastic/raised/0", b'{"id": 0, "text": {}, "step": 0}'),
        ("elastic/checkpoint/0", b"[]"),
        ("elastic/checkpoint/0", b"\xff"),
    ],
)
def test_what_a_process_says_has_the_types_that_it_should(key: str, value: bytes) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        elastic.parse_said(key, value)


@pytest.mark.parametrize("value", [b"[" * 100_000, b"[]", b'{"timestamp": 1, "result": "x"}'])
def test_an_update_that_makes_no_sense_is_a_valueerror(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"makes no sense|too deeply"):
        elastic.parse_update(value)


def test_what_processes_say_is_read_again() -> None:
    for said in (
        elastic.Ready(1, 2, -1, "v"),
        elastic.Raised(1, "x", 3),
        elastic.Leaving(1, 15),
        elastic.Checkpoint(1, "/x", 3),
    ):
        again = elastic.parse_said(elastic._key_of(said), elastic.pack(said))
        assert (type(again), again) == (type(said), said)
    assert elastic.parse_update(elastic.pack(elastic.update_now(3, 1))).result == 3
