"""The folder of a job's checkpoints, of which each is whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirtaki.checkpoint import CheckpointError
from sirtaki.checkpoint import folder as folders

SAVE_FOR_EVER = """
import sys
from pathlib import Path
from sirtaki.checkpoint import folder as folders
for step in range(10**6):
    made = folders.unfinished(Path(sys.argv[1]), step)
    folders.write_arrays(made, 0, [(0, bytes(1 << 20))])
    folders.finish(made, step, {}, [1 << 20], 2)
"""


def save(parent: Path, step: int, keep: int = 3, data: bytes = b"data") -> None:
    made = folders.unfinished(parent, step)
    folders.write_arrays(made, 0, [(0, data)])
    folders.finish(made, step, {"given": step}, [len(data)], keep)


def names(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_the_newest_is_found_by_its_step(tmp_path: Path) -> None:
    for step in (5, 20, 10):
        save(tmp_path, step)
    found = folders.newest(tmp_path)
    assert found is not None
    assert found.step == 20
    assert folders.read_content(Path(found.path))["given"] == 20


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    for step in range(5):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step-000000000003", "step-000000000004"]


def test_a_step_that_is_saved_again_replaces_what_was_there(tmp_path: Path) -> None:
    for data in (b"old", b"new", b"newer"):
        save(tmp_path, 7, data=data)
    found = folders.newest(tmp_path)
    assert found is not None
    assert (Path(found.path) / "arrays-0.bin").read_bytes() == b"newer"
    assert len(names(tmp_path)) == 1


def test_an_unfinished_one_is_not_found(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folders.write_arrays(folders.unfinished(tmp_path, 2), 0, [(0, b"data")])
    found = folders.newest(tmp_path)
    assert found is not None
    assert found.step == 1


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert folders.newest(tmp_path) is None
    assert folders.newest(tmp_path / "missing") is None
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        folders.resolved(tmp_path)


def damage_size(folder: Path) -> None:
    (folder / "arrays-0.bin").write_bytes(b"dat")


def damage_content(folder: Path) -> None:
    path = folder / "checkpoint.json"
    path.write_text(path.read_text().replace("given", "taken"))


def damage_json(folder: Path) -> None:
    (folder / "checkpoint.json").write_text("{")


def remove_arrays(folder: Path) -> None:
    (folder / "arrays-0.bin").unlink()


@pytest.mark.parametrize("damage", [damage_size, damage_content, damage_json, remove_arrays])
def test_a_damaged_one_is_named_and_an_older_one_is_found(tmp_path: Path, damage: object) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert callable(damage)
    damage(tmp_path / "step-000000000002")
    with pytest.warns(UserWarning, match=r"step-000000000002.* is damaged.*an older"):
        found = folders.newest(tmp_path)
    assert found is not None
    assert found.step == 1


def test_damage_within_a_file_is_found_when_it_is_read(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folder = tmp_path / "step-000000000001"
    (folder / "arrays-0.bin").write_bytes(b"dat!")
    files = folders.Files(folder, folders.read_content(folder)["files"])
    with pytest.raises(CheckpointError, match=r"arrays-0\.bin is damaged: its digest differs"):
        files.read(0, 0, 4)


def test_a_foreign_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no checkpoint of Sirtaki"):
        folders.read_content(tmp_path)


def test_one_of_another_format_says_what_reads_it(tmp_path: Path) -> None:
    import hashlib

    save(tmp_path, 1)
    path = tmp_path / "step-000000000001/checkpoint.json"
    text = json.dumps({**json.loads(json.loads(path.read_text())["content"]), "format": 99})
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({"content": text, "digest": digest}))
    with pytest.raises(CheckpointError, match="has format 99"):
        folders.read_content(path.parent)


@pytest.mark.parametrize("step", [-1, 10**12])
def test_a_step_that_no_name_holds_is_refused(tmp_path: Path, step: int) -> None:
    with pytest.raises(CheckpointError, match=f"step={step} must be"):
        folders.unfinished(tmp_path, step)


@pytest.mark.job
def test_a_process_that_is_killed_while_it_writes_leaves_whole_ones(tmp_path: Path) -> None:
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)])
        while folders.newest(tmp_path) is None:
            time.sleep(0.01)
        time.sleep(0.05)
        process.kill()
        process.wait()
        for path in tmp_path.glob("step-*"):
            assert folders.read_content(path)
