"""Job scripts run exactly what was asked, and nothing in a value becomes shell."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirtaki.schedulers.job_script import SubmitRequest
from sirtaki.schedulers.table import named
from sirtaki.submit.command import main

ARGV = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1
)
SCHEDULERS = ["slurm", "pbs", "grid-engine"]
HOSTILE = ["x; touch owned", "$(touch owned)", "`touch owned`", "a\n#SBATCH --x", "a b", "-x", "'"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `sirtaki` that prints its arguments, a zero byte after each."""
    folder = tmp_path_factory.mktemp("it's a $HOME; folder")
    program = folder / "sirtaki"
    program.write_text('#!/bin/bash\nprintf \'%s\\0\' "$OMP_NUM_THREADS" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def run_script(script: str, folder: Path) -> list[str]:
    where = dict.fromkeys(("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"), str(folder))
    where["PE_HOSTFILE"] = str(folder / "hosts")
    done = subprocess.run(
        ["bash"],
        input=script.encode(),
        capture_output=True,
        check=True,
        env={**os.environ, **where},
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=40, deadline=None)
@given(command=ARGV)
def test_the_command_arrives_as_it_was_given(
    scheduler: str, programs: Path, command: list[str]
) -> None:
    script = named(scheduler).script(SubmitRequest(command, own={"pe": "mpi"}), programs)
    assert run_script(script, programs) == ["1", "run", "--", *command]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_hostile_commands_run_nothing(scheduler: str, programs: Path) -> None:
    script = named(scheduler).script(SubmitRequest(HOSTILE, own={"pe": "mpi"}), programs)
    assert run_script(script, programs)[3:] == HOSTILE
    assert [path.name for path in programs.iterdir()] == ["sirtaki"]


@pytest.mark.parametrize("flag", ["--name", "--account", "--queue", "--output", "--module"])
@pytest.mark.parametrize("value", [*HOSTILE, "", "ä", 'a"b', "a\\b"])
def test_values_that_are_no_plain_word_are_refused(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--scheduler", "slurm", "--print", f"{flag}={value}", "--", "true"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert repr(value) in printed.err


@pytest.mark.parametrize("time", ["1", "1:60:00", "00:00", "1-00:00:00", "1:00:00\n"])
def test_times_of_another_form_are_refused(time: str) -> None:
    with pytest.raises(ValueError, match="HH:MM:SS"):
        SubmitRequest(["true"], time=time)


FLAGS = """
--nodes 2 --ranks-per-node 4 --threads 8 --gpus 4 --time 12:00:00 --account lab
--partition gpu --module gcc/12.2 --module cuda/12 --name cifar --output out.%j.txt
"""


def printed_script(scheduler: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    arguments = [
        "--scheduler",
        scheduler,
        "--print",
        *more,
        *FLAGS.split(),
        "--",
        "python",
        "train.py",
        "--lr",
        "1",
    ]
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_a_slurm_script_asks_for_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_script("slurm", capsys) == [
        "#!/bin/bash -l",
        "#SBATCH --job-name=cifar",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --time=12:00:00",
        "#SBATCH --account=lab",
        "#SBATCH --partition=gpu",
        "#SBATCH --output=out.%j.txt",
        "",
        "set -euo pipefail",
        'cd "$SLURM_SUBMIT_DIR"',
        "set +u  # the module function of many sites uses variables that are not set",
        "module load gcc/12.2",
        "module load cuda/12",
        "set -u",
        "export OMP_NUM_THREADS=8",
        f'export PATH={Path(sys.executable).parent}:"$PATH"',
        "exec sirtaki run -- python train.py --lr 1",
    ]


def test_a_pbs_script_asks_for_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_script("pbs", capsys)[:10] == [
        "#!/bin/bash -l",
        "#PBS -N cifar",
        "#PBS -l select=2:ncpus=32:mpiprocs=4:ompthreads=8:ngpus=4",
        "#PBS -l place=scatter",
        "#PBS -j oe",
        "#PBS -l walltime=12:00:00",
        "#PBS -A lab",
        "#PBS -q gpu",
        "#PBS -o out.%j.txt",
        "",
    ]


def test_a_grid_engine_script_asks_for_what_was_given(
    capsys: pytest.CaptureFixture[str], programs: Path
) -> None:
    script = printed_script("grid-engine", capsys, "--pe", "mpi")
    assert script[:11] == [
        "#!/bin/bash -l",
        "#$ -S /bin/bash",
        "#$ -N cifar",
        "#$ -pe mpi 64",
        "#$ -cwd",
        "#$ -j y",
        "#$ -l gpu=4",
        "#$ -l h_rt=12:00:00",
        "#$ -P lab",
        "#$ -q gpu",
        "#$ -o out.%j.txt",
    ]
    request = SubmitRequest(["true"], nodes=2, ranks_per_node=2, threads=3, own={"pe": "mpi"})
    (programs / "hosts").write_text("a 6 q@a UNDEFINED\nb 6 q@b UNDEFINED\n")
    ran = run_script(named("grid-engine").script(request, programs), programs)
    (programs / "hosts").unlink()
    assert ran == ["3", "run", "-H", "a:2,b:2", "--", "true"]


def test_a_scheduler_that_is_not_here_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--scheduler", "pbs", "--", "true"]) == 127
    assert "qsub is not on the PATH here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scheduler", "slurm"], "the command to run is missing"),
        (["--", "true"], "--scheduler"),
        (["--scheduler", "sge", "--", "true"], "invalid choice"),
        (["--scheduler", "slurm", "--nodes", "0", "--", "true"], "must be >= 1"),
        (["--scheduler", "grid-engine", "--", "true"], "give --pe NAME"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("scheduler", "program"), [("slurm", "sbatch"), ("pbs", "qsub")])
def test_the_script_is_handed_to_the_scheduler(
    scheduler: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / program
    stand_in.write_text(
        f'#!/bin/bash\necho "$@" > {tmp_path}/args\ncat > {tmp_path}/script\nexit 5\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["--scheduler", scheduler, "--", "python", "train.py"]) == 5
    assert (tmp_path / "script").read_text().endswith("exec sirtaki run -- python train.py\n")
