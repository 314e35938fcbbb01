"""Tasks that a scheduler starts know their rank, and what becomes of them is heard."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sirtaki.core.world.shared_heap import LIBRARY
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.scheduled import task as scheduled_task
from sirtaki.launch.scheduled.folder import (
    JOB,
    Log,
    Record,
    create_folder,
    read_job,
    remove_folder,
    remove_leftovers,
    write_private,
)
from sirtaki.launch.scheduled.task import rank_and_size
from sirtaki.rendezvous.stores.file_store import FileStore

pytestmark = pytest.mark.job

STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}
JSM = {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({**STEP, "SLURM_NTASKS": "8"}, (3, 4)),
        (JSM, (1, 2)),
        ({**STEP, **JSM}, (1, 2)),
    ],
)
def test_the_rank_comes_from_the_step(environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert rank_and_size(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script
        {**STEP, "SLURM_PROCID": "x"},
        {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
    ],
)
def test_without_a_step_there_is_no_rank(environ: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match="its rank is unknown"):
        rank_and_size(environ)


def test_the_folder_of_a_job_is_private_and_goes_away(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "a" / "b", "slurm-7;x")
    write_private(folder / "secret", b"s")
    assert folder.name.startswith("slurm-7-x.")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
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
    alive = leftover(tmp_path, JOB)
    Log(alive).touch()
    public = leftover(tmp_path, JOB)
    public.chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    linked = leftover(tmp_path / "elsewhere", JOB)
    (tmp_path / "link").symlink_to(linked)
    remove_leftovers(tmp_path, time.time())
    assert all(folder.exists() for folder in (of_no_launcher, alive, public, linked))
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


def test_records_of_many_arrive_whole_and_once(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    reader = Log(folder)
    assert reader.read()[0] == []
    expected = [Record("exited", rank, "host" * 100, rank) for rank in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Log(folder).append, expected))
    assert sorted(reader.read()[0], key=lambda record: record.rank) == expected
    assert reader.read()[0] == []


def test_half_a_record_waits_for_the_rest(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    reader = Log(folder)
    with (folder / "log").open("a") as file:
        file.write('{"event": "exited", ')
        file.flush()
        assert reader.read()[0] == []
        file.write('"rank": 3}\n')
    assert reader.read()[0] == [Record("exited", 3)]


@pytest.fixture
def held_lock(tmp_path: Path) -> Iterator[Path]:
    """The folder of a job to whose log a process that has hung holds the lock."""
    folder = create_folder(tmp_path, "job")
    code = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'ab')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\nprint('held', flush=True)\ntime.sleep(600)"
    )
    words = [sys.executable, "-c", code, str(folder / "log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield folder
        holder.kill()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_lock_that_is_never_given_back_stops_neither_writers_nor_readers(held_lock: Path) -> None:
    Log(held_lock).append(Record("exited", 3))
    assert Log(held_lock).read()[0] == [Record("exited", 3)]


def write_job(folder: Path, command: list[str], **more: object) -> None:
    job = {
        "command": command,
        "directory": str(folder),
        "environment": {"GIVEN": "a"},
        "environments": [{"OWN": "0"}, {"OWN": "1"}],
        "defaults": [{}, {}],
        "grace": 5.0,
        "listen": False,
        "output": None,
        "timestamps": False,
        "verbose": False,
        **more,
    }
    (folder / JOB).write_text(json.dumps(job))


def run_task(
    folder: Path, command: list[str], rank: str = "0", **more: object
) -> subprocess.CompletedProcess[str]:
    write_job(folder, command, **more)
    words = [sys.executable, str(scheduled_task.__file__), str(folder), rank]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("command", "code", "record"),
    [
        (["sh", "-c", "echo $GIVEN $OWN; echo e >&2"], 0, ("exited", 0)),
        (["sh", "-c", "echo $GIVEN $OWN; echo e >&2; exit 7"], 7, ("exited", 7)),
        (["sh", "-c", "echo $GIVEN $OWN; echo e >&2; kill -9 $$"], 137, ("exited", -9)),
    ],
)
def test_a_task_records_how_its_rank_ended(
    tmp_path: Path, command: list[str], code: int, record: tuple[str, int]
) -> None:
    folder = create_folder(tmp_path, "job")
    done = run_task(folder, command, "1")
    assert (done.returncode, done.stdout) == (code, "[1]<stdout>:a 1\n")
    assert done.stderr == "[1]<stderr>:e\n"
    records, _ = Log(folder).read()
    assert [(each.event, each.rank, each.asked) for each in records] == [
        ("started", 1, False),
        ("exited", 1, False),
    ]
    assert (records[1].event, records[1].code) == record


RAISING = "import sys, sirtaki\ntry: sirtaki.rank()\nfinally: print(file=sys.stderr)\n"


def test_what_a_rank_raised_is_shown_without_our_frames_and_recorded(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    done = run_task(folder, [sys.executable, "-c", RAISING])
    assert "inside Sirtaki; --verbose shows them]" in done.stderr
    assert "state.py" not in done.stderr
    ended, raised = Log(folder).read()[0][-2:]
    assert (ended.event, raised.event, raised.rank) == ("exited", "raised", 0)
    lines, rest = json.loads(raised.text)
    assert lines[-1].startswith("ValueError: Horovod has not been initialized")
    assert rest == []


def test_a_rank_that_a_scheduler_starts_preloads_the_heap(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    done = run_task(
        folder,
        ["sh", "-c", "echo $LD_PRELOAD"],
        environment={"SIRTAKI_SHARED_HEAP": "1", "LD_PRELOAD": ""},
    )
    assert done.stdout == f"[0]<stdout>:{LIBRARY}\n"


def failures(folder: Path) -> list[tuple[int, str]]:
    return [(each.code, each.text) for each in Log(folder).read()[0] if each.event == "failed"]


@pytest.mark.parametrize("program", ["./missing", "no-such-program"])
def test_a_program_that_is_not_there_is_named_with_127(tmp_path: Path, program: str) -> None:
    folder = create_folder(tmp_path, "job")
    assert run_task(folder, [program]).returncode == 127
    ((code, text),) = failures(folder)
    assert code == 127
    assert f"command not found: {program!r}" in text


def test_a_program_that_cannot_be_executed_is_126(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    (folder / "plain").write_text("not a program")
    (folder / "plain").chmod(0o700)
    assert run_task(folder, ["./plain"]).returncode == 126
    assert failures(folder) == [(126, "cannot execute the command: Exec format error")]


def test_a_working_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    assert run_task(folder, ["true"], directory=str(tmp_path / "elsewhere")).returncode == 2
    ((_, text),) = failures(folder)
    assert f"the working folder {str(tmp_path / 'elsewhere')!r} cannot be entered" in text


def test_a_task_whose_output_file_is_on_a_full_disk_records_that(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stdout").symlink_to("/dev/full")
    done = run_task(folder, ["sh", "-c", "echo x; exec sleep 600"], output=str(tmp_path))
    assert failures(folder) == [
        (1, f"cannot write {str(tmp_path / 'rank.0' / 'stdout')!r}: No space left on device")
    ]
    assert "every host of the job must see" not in done.stderr


def test_a_task_whose_output_is_on_a_full_disk_records_that(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    write_job(folder, ["sh", "-c", "echo x; exec sleep 600"])
    words = [sys.executable, str(scheduled_task.__file__), str(folder), "0"]
    with Path("/dev/full").open("w") as full:
        subprocess.run(words, stdout=full, check=False, timeout=60)
    assert failures(folder) == [(1, "cannot write the output: No space left on device")]


def test_an_output_directory_that_cannot_be_made_is_recorded(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    (tmp_path / "file").write_text("")
    run_task(folder, ["true"], output=str(tmp_path / "file" / "x"))
    ((_, text),) = failures(folder)
    assert "cannot create the output directory" in text


def test_what_a_rank_leaves_running_goes_with_it(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    done = run_task(folder, ["sh", "-c", "setsid sleep 600 & echo $!"])
    child = int(done.stdout.partition(":")[2])
    assert done.returncode == 0
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


@pytest.mark.parametrize(("rank", "said"), [("2", "rank 2 of 2"), ("-1", "rank -1 of 2")])
def test_a_rank_that_the_job_does_not_have_is_refused(tmp_path: Path, rank: str, said: str) -> None:
    folder = create_folder(tmp_path, "job")
    done = run_task(folder, ["true"], rank)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_host_that_does_not_share_the_folder_says_so(tmp_path: Path) -> None:
    words = [sys.executable, str(scheduled_task.__file__), str(tmp_path / "elsewhere"), "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "set SIRTAKI_SHARED_DIR" in done.stderr


def test_a_task_whose_output_nobody_reads_obeys_signals(tmp_path: Path) -> None:
    folder = create_folder(tmp_path, "job")
    write_job(folder, [sys.executable, "-c", "while True: print('x' * 99)"], grace=0.3)
    words = [sys.executable, str(scheduled_task.__file__), str(folder), "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        task.stdout.read(1)
        time.sleep(1)
        task.terminate()
        try:
            assert task.wait(60) == 128 + signal.SIGTERM
        finally:
            task.kill()
