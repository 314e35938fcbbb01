"""The folder in which the agents of a scheduler's job find the launcher is the user's alone."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from sirtaki.launch.hosts.shared_folder import (
    JOB,
    create_folder,
    read_job,
    remove_folder,
    remove_leftovers,
    write_private,
)
from sirtaki.rendezvous.stores.file_store import FileStore


def test_the_folder_of_a_job_is_private_and_goes_away(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "a" / "b", "slurm-7;x")
    write_private(folder / "secret", b"s")
    assert folder.name.startswith("slurm-7-x.")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]
    with pytest.raises(FileExistsError):
        write_private(folder / "secret", b"t")
    remove_folder(folder)
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_folders_that_are_made_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        folder = create_folder(tmp_path / ".sirtaki" / "jobs", "job")
        store = FileStore(f"file:{tmp_path}/home/.sirtaki/jobs/name").folder
    finally:
        os.umask(before)
    made = [folder.parent, folder.parent.parent, store, *list(store.parents)[:3]]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 6


def leftover(parent: Path, *files: str) -> Path:
    """A folder that nobody has touched for eight days."""
    folder = create_folder(parent, "old")
    for file in files:
        write_private(folder / file, b"x")
    long_ago = time.time() - 8 * 24 * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))
    return folder


def test_what_a_killed_launcher_left_is_removed_after_a_week(tmp_path: Path) -> None:
    folder = leftover(tmp_path, JOB, "secret")
    remove_leftovers(tmp_path, time.time())
    assert not folder.exists()


def test_nothing_else_is_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_no_launcher = leftover(tmp_path, "secret")
    young = leftover(tmp_path, JOB)
    os.utime(young / JOB)
    public = leftover(tmp_path, JOB)
    public.chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    linked = leftover(tmp_path / "elsewhere", JOB)
    (tmp_path / "link").symlink_to(linked)
    remove_leftovers(tmp_path, time.time())
    assert all(folder.exists() for folder in (of_no_launcher, young, public, linked))
    others = leftover(tmp_path, JOB)
    monkeypatch.setattr(os, "geteuid", lambda: 12345678)
    remove_leftovers(tmp_path, time.time())
    assert others.exists()


def test_another_users_folder_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create_folder(tmp_path, "job")
    write_private(folder / JOB, b"{}")
    assert read_job(folder) == {}
    monkeypatch.setattr(os, "geteuid", lambda: 12345678)
    with pytest.raises(PermissionError, match="another user's"):
        read_job(folder)
