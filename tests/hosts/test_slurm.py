"""Jobs on a real Slurm with three virtual hosts start, fail and end as they should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.slurm_bed import LIMIT, SlurmBed, reason_to_skip
from tests.single.launching import Job

pytestmark = [
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]

RUN = f"{sys.executable} -m sirtaki.launch.cli run"
SUBMIT = f"{sys.executable} -m sirtaki.launch.cli submit"
PLACE = (
    "import os; print(os.environ['SLURMD_NODENAME'], "
    "*(os.environ['HOROVOD_' + n] for n in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE')))"
)
# The rank that is named does as it is told; the others would stay for long.
ONE = """
import os, signal, sys, time
if os.environ['HOROVOD_RANK'] == '{rank}': {what}
time.sleep(600)
"""
READY = "import os, time; print('ready', os.environ['HOROVOD_RANK'], flush=True); time.sleep(600)"
SUM = """
import numpy, sirtaki as hvd
hvd.init()
total = hvd.allreduce(numpy.full(3, hvd.rank() + 1.0), op=hvd.Sum)
print("sum", int(total[0]), "size", hvd.size(), flush=True)
"""
# Without a word of where the ranks are and where they meet.
TORCH_SUM = """
import torch, torch.distributed as dist
dist.init_process_group("sirtaki")
total = torch.full((3,), dist.get_rank() + 1.0)
dist.all_reduce(total)
print("sum", int(total[0]), "size", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def shared_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBed]:
    with SlurmBed(tmp_path_factory.mktemp("slurm"), 3) as bed:
        yield bed


@pytest.fixture
def slurm(shared_slurm: SlurmBed) -> Iterator[SlurmBed]:
    yield shared_slurm
    for host in range(1, shared_slurm.count + 1):
        shared_slurm.mend(host)
    shared_slurm.wait_until_idle()


class Run:
    """Jobs of one test: their environment, folder, and what they leave running."""

    def __init__(self, slurm: SlurmBed, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self.marked = Job()
        self.shared = folder / "shared"
        self.environment = {**self.marked.environment, "SIRTAKI_SHARED_DIR": str(self.shared)}

    def script(self, *lines: str) -> str:
        path = self.folder / "job.sh"
        path.write_text("\n".join(["#!/bin/bash", f"cd {self.folder}", *lines, ""]))
        path.chmod(0o755)
        return str(path)

    def salloc(self, options: str, *lines: str) -> subprocess.CompletedProcess[str]:
        words = ("salloc", "-Q", *options.split(), self.script(*lines))
        return self.slurm.run(*words, env=self.environment)

    def sbatch(self, options: str, *lines: str) -> str:
        """Submit; the output goes to "out" in the folder. Returns the job's id."""
        words = ("--parsable", f"--output={self.folder}/out", *options.split())
        done = self.slurm.run("sbatch", *words, self.script(*lines), env=self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for(self, pattern: str) -> str:
        """Wait until the job's output has the pattern; returns the output."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if (self.folder / "out").exists():
                text = (self.folder / "out").read_text(errors="replace")
                if re.search(pattern, text):
                    return text
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in the output: {(self.folder / 'out').read_text()}")

    def expect_nothing_left(self) -> None:
        self.marked.wait_until_gone()
        assert not self.shared.exists() or list(self.shared.iterdir()) == []


@pytest.fixture
def run(slurm: SlurmBed, tmp_path: Path) -> Run:
    return Run(slurm, tmp_path)


def lines_of(text: str) -> list[str]:
    return sorted(re.findall(r"^\[\d+\]<stdout>:(.*)$", text, re.MULTILINE))


def test_a_launcher_under_salloc_starts_a_rank_for_every_task(run: Run) -> None:
    done = run.salloc("-N3 --ntasks-per-node=2", f'{RUN} {sys.executable} -c "{PLACE}"')
    assert done.returncode == 0, done.stderr
    expected = [f"node{rank // 2 + 1} {rank} 6 {rank % 2} 2" for rank in range(6)]
    assert lines_of(done.stdout) == expected
    run.expect_nothing_left()


def test_a_launcher_under_sbatch_starts_a_rank_for_every_task(run: Run) -> None:
    run.sbatch("-n3 -c2", f'{RUN} {sys.executable} -c "{PLACE}"', "echo the end: $?")
    text = run.wait_for("the end: 0")
    assert lines_of(text) == ["node1 0 3 0 2", "node1 1 3 1 2", "node2 2 3 0 1"]
    run.expect_nothing_left()


def test_a_job_that_got_only_its_names_still_finds_its_interpreter(run: Run) -> None:
    lines = (f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}", f"{RUN} {sys.executable} -V")
    run.sbatch("-N2 --export=NONE", *lines, "echo the end: $?")
    assert len(lines_of(run.wait_for("the end: 0"))) == 2


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("-np 3", ["node1 0 3 0 2", "node1 1 3 1 2", "node2 2 3 0 1"]),
        ("-H node3:1,node1:1", ["node1 1 2 0 1", "node3 0 2 0 1"]),
        ("-np 1 -H localhost:1", ["", "slctl 0 1 0 1"]),
    ],
)
def test_flags_narrow_the_allocation(run: Run, flags: str, expected: list[str]) -> None:
    code = PLACE.replace("['SLURMD_NODENAME']", ".get('SLURMD_NODENAME', 'slctl')")
    done = run.salloc("-N3 --ntasks-per-node=2", f'{RUN} {flags} {sys.executable} -c "{code}"')
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout) == [line for line in expected if line]


def test_ranks_that_are_not_there_are_refused(run: Run) -> None:
    lines = [f"{RUN} {flags} true; echo $?" for flags in ("-np 7", "-H node1:1,node9:1")]
    done = run.salloc("-N3 --ntasks-per-node=2", *lines)
    assert done.stdout == "2\n2\n"
    assert "more processes (7) than there are available slots (6)" in done.stderr
    assert "node9 is not one of the hosts of this job: node1:2, node2:2, node3:2" in done.stderr


def test_a_job_of_one_task_starts_as_many_ranks_as_asked_on_its_host(run: Run) -> None:
    run.sbatch("-N1 --ntasks=1", f"{RUN} -np 3 {sys.executable} -c '{SUM}'; echo ended $?")
    text = run.wait_for(r"ended \d")
    assert text.count("sum 6 size 3") == 3, text
    assert "has 1 task(s) on this one host, fewer than -np 3" in text


def test_a_dry_run_says_what_would_be_started(run: Run) -> None:
    done = run.salloc("-N2 --ntasks-per-node=2", f"{RUN} --dry-run python train.py")
    assert done.returncode == 0, done.stderr
    assert "host node1 (by srun): ranks 0, 1\nhost node2 (by srun): ranks 2, 3\n" in done.stdout
    assert re.search(r"^start: srun .*--kill-on-bad-exit=1 ", done.stdout, re.MULTILINE)
    assert not run.shared.exists()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sys.exit(3)", "Exit code: 3\n"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "Exit code: 137 (killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Exit code: 139 (killed by SIGSEGV)"),
    ],
)
def test_a_rank_that_dies_ends_the_job_and_is_named(run: Run, what: str, said: str) -> None:
    (run.folder / "train.py").write_text(ONE.format(rank=2, what=what))
    done = run.salloc("-N2 --ntasks-per-node=2", f"{RUN} {sys.executable} train.py")
    assert done.returncode == 1
    assert "Process name: rank 2 on node2\n" + said in done.stderr
    run.expect_nothing_left()


def test_the_last_rank_that_fails_is_named_too(run: Run) -> None:
    code = "import os, sys; sys.exit(int(os.environ['HOROVOD_RANK']) * 5)"
    done = run.salloc("-N2", f'{RUN} {sys.executable} -c "{code}"')
    assert done.returncode == 1
    assert "Process name: rank 1 on node2\nExit code: 5\n" in done.stderr


def test_a_host_whose_guardian_is_killed_is_named(run: Run) -> None:
    """Nobody reports the end of such a rank."""
    what = "os.kill(os.getppid(), signal.SIGKILL)"
    (run.folder / "train.py").write_text(ONE.format(rank=1, what=what))
    done = run.salloc("-N2 --ntasks-per-node=2", f"{RUN} {sys.executable} train.py")
    assert done.returncode == 1
    lost = "host node1 (ranks 0, 1) was lost: the process that watches the workers was killed"
    assert lost in done.stderr
    run.expect_nothing_left()


def test_a_launcher_whose_ranks_are_elsewhere_keeps_no_guardian(run: Run) -> None:
    (run.folder / "train.py").write_text("open('started', 'w'); import time; time.sleep(600)")
    done = run.salloc(
        "-N1",
        f"{RUN} {sys.executable} train.py & launcher=$!",
        "until [ -e started ]; do sleep 0.1; done",
        "ps --ppid $launcher --format args=; kill $launcher; wait",
    )
    assert "srun" in done.stdout
    assert "guardian.py" not in done.stdout
    run.expect_nothing_left()


def test_a_program_that_is_missing_is_named(run: Run) -> None:
    done = run.salloc("-N2", f"{RUN} ./missing", "exit $?")
    assert done.returncode == 127
    assert "command not found: " in done.stderr
    run.expect_nothing_left()


def test_scancel_ends_everything(run: Run) -> None:
    (run.folder / "train.py").write_text(READY)
    job = run.sbatch("-N3 --ntasks-per-node=2", f"{RUN} {sys.executable} train.py")
    run.wait_for("(?s)(ready.*){6}")
    run.slurm.do("scancel", job)
    run.marked.wait_until_gone()


def test_signals_to_the_launcher_reach_the_ranks_who_may_save_something(run: Run) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('answers', flush=True))\n"
        "rank = __import__('os').environ['HOROVOD_RANK']\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    while True: time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n"
        "    if rank == '0': raise\n"
        "    time.sleep(1)\n"
        "    print('saved', flush=True)\n"
    )
    (run.folder / "train.py").write_text(code)
    # With job control, as a shell otherwise starts what is in the background without SIGINT.
    command = f"{RUN} {sys.executable} train.py & echo $! > pid"
    run.sbatch("-N2", "set -m", command, "wait $!", "echo end: $?")
    run.wait_for("(?s)(ready.*){2}")
    pid = (run.folder / "pid").read_text().strip()
    run.slurm.do("kill", "-USR1", pid)
    run.wait_for("(?s)(answers.*){2}")
    run.slurm.do("kill", "-INT", pid)
    run.wait_for("saved")
    run.wait_for("end: 130")
    run.marked.wait_until_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_launcher_ends_everything(run: Run, number: signal.Signals) -> None:
    (run.folder / "train.py").write_text(READY)
    run.sbatch("-N2", f"{RUN} {sys.executable} train.py & echo $! > pid", "wait $!", "echo end: $?")
    run.wait_for("(?s)(ready.*){2}")
    pid = (run.folder / "pid").read_text().strip()
    run.slurm.do("kill", f"-{number.name.removeprefix('SIG')}", pid)
    run.wait_for(f"end: {128 + number}")
    run.marked.wait_until_gone()


@pytest.mark.parametrize("name", ["USR1", "TERM", "INT"])
def test_what_slurm_signals_reaches_each_rank_once(run: Run, name: str) -> None:
    code = (
        "import signal, time\n"
        "got = []\n"
        f"signal.signal(signal.SIG{name}, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print('got', len(got), flush=True)\n"
    )
    (run.folder / "train.py").write_text(code)
    command = f"{RUN} {sys.executable} train.py"
    job = run.sbatch("-N2 --ntasks-per-node=2", command, "echo end: $?")
    run.wait_for("(?s)(ready.*){4}")
    run.slurm.do("scancel", f"--signal={name}", job)
    text = run.wait_for(r"end: \d")
    assert text.count("<stdout>:got 1\n") == 4, text
    assert ("was cancelled" in text) == (name != "USR1")
    assert f"end: {int(name != 'USR1')}\n" in text
    run.expect_nothing_left()


def test_ranks_may_save_something_when_they_are_to_end(run: Run) -> None:
    code = (
        "import pathlib, signal, sys, time, os\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    pathlib.Path('saved' + os.environ['HOROVOD_RANK']).touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n" + READY
    )
    (run.folder / "train.py").write_text(code)
    job = run.sbatch("-N2", f"{RUN} {sys.executable} train.py")
    run.wait_for("(?s)(ready.*){2}")
    run.slurm.do("scancel", job)
    run.marked.wait_until_gone()
    assert sorted(path.name for path in run.folder.glob("saved*")) == ["saved0", "saved1"]


def test_a_host_that_is_cut_off_ends_the_job(run: Run) -> None:
    """Its rank notices by itself, as a lost peer does, and so does one that it has lost."""
    code = (
        "import os, socket, sys, time\n"
        "print('ready', flush=True)\n"
        "rank = os.environ['HOROVOD_RANK']\n"
        "while True:\n"
        "    time.sleep(0.5)\n"
        "    try: socket.create_connection(('10.77.0.1', 17000), timeout=1).close()\n"
        "    except OSError: sys.exit('the network is gone')\n"
        "    if rank == '0' and os.path.exists('lost'): sys.exit(7)\n"
    )
    (run.folder / "train.py").write_text(code)
    run.sbatch("-N3", f"{RUN} {sys.executable} train.py", "echo the end: $?")
    run.wait_for("(?s)(ready.*){3}")
    run.slurm.cut(3)
    (run.folder / "lost").touch()
    text = run.wait_for("the end: 1")
    assert re.search(r"Process name: rank [02] on node[13]", text)
    run.marked.wait_until_gone()


def test_the_secret_is_seen_by_nobody(run: Run) -> None:
    code = (
        "import os, pathlib, subprocess\n"
        "path = pathlib.Path(os.environ['SIRTAKI_SECRET_FILE'])\n"
        "secret = path.read_bytes()\n"
        "modes = [oct(p.stat().st_mode & 0o777) for p in (path, path.parent)]\n"
        "seen = []\n"
        "for name in ('cmdline', 'environ'):\n"
        "    for file in pathlib.Path('/proc').glob('[0-9]*/' + name):\n"
        "        try: data = file.read_bytes()\n"
        "        except OSError: continue\n"
        "        if secret in data or secret.hex().encode() in data: seen.append(file)\n"
        "print(len(secret), *modes, seen)\n"
    )
    (run.folder / "train.py").write_text(code)
    done = run.salloc("-N2", f"{RUN} {sys.executable} train.py")
    assert lines_of(done.stdout) == ["32 0o600 0o500 []"] * 2, done.stderr


def test_a_submitted_job_runs(run: Run) -> None:
    flags = "--scheduler slurm --nodes 2 --ranks-per-node 2 --threads 2 --output out"
    words = ("env", f"--chdir={run.folder}", *SUBMIT.split(), *flags.split())
    code = PLACE.replace("print(", "print(os.environ['OMP_NUM_THREADS'], ")
    done = run.slurm.run(*words, "--", sys.executable, "-c", code, env=run.environment)
    assert re.fullmatch(r"Submitted batch job \d+\n", done.stdout), done.stderr
    text = run.wait_for("(?s)(node[12] .*){4}")
    assert lines_of(text) == [f"2 node{rank // 2 + 1} {rank} 4 {rank % 2} 2" for rank in range(4)]


def test_a_function_is_called_on_the_hosts_of_the_job(run: Run) -> None:
    (run.folder / "places.py").write_text(
        "import socket, sirtaki\n"
        "def place(): return socket.gethostname()\n"
        "print('hosts:', *sirtaki.run(place, num_proc=4), *sirtaki.run(place))\n"
    )
    done = run.salloc("-N2 --ntasks-per-node=2", f"{sys.executable} places.py")
    assert done.returncode == 0, done.stderr
    assert "hosts: node1 node1 node2 node2 node1\n" in done.stdout
    run.expect_nothing_left()


def test_output_goes_to_files_as_well(run: Run) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    done = run.salloc("-N2", f'{RUN} --output-filename logs {sys.executable} -c "{code}"')
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert (run.folder / f"logs/rank.{rank}/stdout").read_text() == "out\n"
        assert (run.folder / f"logs/rank.{rank}/stderr").read_text() == "err\n"


@pytest.mark.parametrize("flags", ["", "--tls"])
def test_ranks_of_one_host_meet(run: Run, flags: str) -> None:
    (run.folder / "train.py").write_text(SUM)
    done = run.salloc("-N1 --ntasks-per-node=3", f"{RUN} {flags} {sys.executable} train.py")
    assert lines_of(done.stdout) == ["sum 6 size 3"] * 3, done.stderr
    run.expect_nothing_left()


def test_ranks_of_several_hosts_meet(run: Run) -> None:
    (run.folder / "train.py").write_text(SUM)
    done = run.salloc("-N3 --ntasks-per-node=2", f"{RUN} {sys.executable} train.py")
    assert lines_of(done.stdout) == ["sum 21 size 6"] * 6, done.stderr
    run.expect_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "program"),
    [
        ("-N2 -n3 -m cyclic", SUM),
        ("-N3 -n3", TORCH_SUM),
        pytest.param("-N1 -n3", SUM, marks=pytest.mark.nightly),
        pytest.param("-N3 -n3", SUM, marks=pytest.mark.nightly),
        pytest.param("-N1 -n3", TORCH_SUM, marks=pytest.mark.nightly),
    ],
)
def test_ranks_that_srun_alone_has_started_meet(run: Run, options: str, program: str) -> None:
    (run.folder / "train.py").write_text(program)
    command = f"srun --kill-on-bad-exit=1 {options} {sys.executable} {run.folder}/train.py"
    done = run.salloc("-N3 --exclusive", command)
    assert done.stdout.splitlines() == ["sum 6 size 3"] * 3, done.stderr
    run.marked.wait_until_gone()


def test_a_script_without_srun_is_a_world_of_one(run: Run) -> None:
    """The variables of a batch script look like those of rank 0 of many."""
    (run.folder / "train.py").write_text(SUM)
    run.sbatch("-N3 --ntasks-per-node=2", f"{sys.executable} train.py", "echo the end: $?")
    assert "sum 1 size 1" in run.wait_for("the end: 0")


@pytest.mark.slow
def test_training_ends_when_a_host_is_cut_off(run: Run) -> None:
    code = SUM + "import time\nwhile True: hvd.allreduce(numpy.ones(3)); time.sleep(0.05)\n"
    (run.folder / "train.py").write_text(code)
    run.sbatch("-N3", f"{RUN} {sys.executable} train.py", "echo the end: $?")
    run.wait_for("(?s)(sum 6.*){3}")
    run.slurm.cut(3)
    text = run.wait_for("the end: 1")
    # Its peers notice, and so does the launcher, about as soon.
    assert "host node3 (ranks 2) was lost" in text
    assert re.search(r"<stderr>:.*PeerLostError.*node3", text), text
    run.marked.wait_until_gone()
