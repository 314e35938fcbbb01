"""A step that a rank has kept is computed again alone, with the same bits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sirtaki.core.config import Config
from sirtaki.rendezvous.files.kept_step import StepFacts, keep
from sirtaki.torch.reproducible.replay import Outputs
from tests import needs
from tests.single.launching import SIRTAKI, Job

SCRIPT = (sys.executable, str(Path(__file__).with_name("kept_script.py")))
NOBODY = 65534
Done = subprocess.CompletedProcess[str]

pytestmark = pytest.mark.job


def ran(*command: str, **environment: str) -> Done:
    """Run a command to its end."""
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def replay(folder: Path, *command: str, **environment: str) -> Done:
    return ran(*SIRTAKI, "replay", str(folder), "--", *(command or SCRIPT), **environment)


def bits(text: str) -> list[str]:
    return re.findall(r"bits .*", text)


def kept_in(root: Path) -> Path:
    (folder,) = root.iterdir()
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A step that a program has kept for a gradient, and what it has printed."""
    root = tmp_path_factory.mktemp("kept")
    done = ran(*SCRIPT, HARM="gradient", SIRTAKI_KEEP_STEP=str(root))
    return kept_in(root), done


@pytest.fixture
def copied(alone: tuple[Path, Done], tmp_path: Path) -> Path:
    """A kept step to spoil."""
    return shutil.copytree(alone[0], tmp_path / "step")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def test_a_rank_keeps_its_parts_and_one_process_computes_the_same_nan(
    job: Job, tmp_path: Path
) -> None:
    keeps = {"SIRTAKI_KEEP_STEP": "1", "SIRTAKI_RUNTIME_DIR": str(tmp_path / "run")}
    done = job.run("-np", "2", *SCRIPT, HARM="gradient", **keeps)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "run/steps").iterdir()  # the NaN of the next steps is no news
    assert (
        "sirtaki: rank 1: the gradient of 0.weight in part 7 is not finite; kept the step; compute "
        f"it alone: sirtaki replay {folder} -- {' '.join(SCRIPT)}" in done.stderr
    )
    assert [folder.stat().st_mode & 0o777] == [0o700]
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    again = replay(folder, HARM="gradient")
    assert again.returncode == 0, again.stderr
    mine = [line for line in done.stdout.splitlines() if line.startswith("[1]<stdout>:bits")]
    assert bits(again.stdout) == bits("\n".join(mine))
    assert len(mine) == 6
    assert "done" not in again.stdout
    assert re.search(
        r"^part 7, samples \d+ \d+ \d+ \d+: the first output that is not finite is of 3 \(Log\); "
        r"its input is finite$",
        again.stdout,
        re.MULTILINE,
    )


def test_nothing_is_kept_by_default(tmp_path: Path) -> None:
    assert Config.from_env({"SIRTAKI_KEEP_STEP": "0"}).keep_step == ""
    done = ran(*SCRIPT, HARM="part", SIRTAKI_RUNTIME_DIR=str(tmp_path))
    assert "ArithmeticError: no such sample" in done.stderr
    assert done.stderr.startswith("Traceback")
    assert not (tmp_path / "steps").exists()


@pytest.mark.parametrize(
    ("harm", "why", "told"),
    [
        ("part", "ArithmeticError: no such sample", "until ArithmeticError"),
        pytest.param("loader", "OSError: cannot be read", "", marks=pytest.mark.slow),
        pytest.param(
            "step",
            "ArithmeticError: no step",
            "all values are finite in 12 parts",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "report",
            "the reported loss in part 7 is not finite",
            "but not the reported loss",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_step_that_fails_before_parameters_change_is_kept(
    tmp_path: Path, harm: str, why: str, told: str
) -> None:
    done = ran(*SCRIPT, HARM=harm, SIRTAKI_KEEP_STEP=str(tmp_path))
    assert f"sirtaki: rank 0: {why}; kept the step" in done.stderr
    again = replay(kept_in(tmp_path), HARM=harm)
    assert again.stdout.startswith(f"rank 0 kept this step: {why}\n")
    assert told in again.stdout
    assert bits(again.stdout) == bits(done.stdout) != []
    raises = harm in ("part", "loader")
    assert again.returncode == int(raises)
    assert (why in again.stderr) == raises


@pytest.mark.slow
def test_a_step_that_has_changed_parameters_is_not_kept(tmp_path: Path) -> None:
    done = ran(*SCRIPT, HARM="half", SIRTAKI_KEEP_STEP=str(tmp_path))
    assert (
        "sirtaki: rank 0: ArithmeticError: half done; nothing is kept of the step: parameters or "
        "the optimizer's state have changed since it began" in done.stderr
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_step_that_cannot_be_written_does_not_hide_the_error() -> None:
    done = ran(*SCRIPT, HARM="part", SIRTAKI_KEEP_STEP="/dev/null/x")
    assert "nothing is kept of the step: " in done.stderr
    assert done.stderr.rstrip().endswith("ArithmeticError: no such sample")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"WIDTH": "8"}, r"0.weight is \(16, 8\) torch.float32 in the step and \(8, 8\) torch"),
        pytest.param(
            {"SHUFFLE": "0"}, "shuffle is 1 in the step and 0 here", marks=pytest.mark.slow
        ),
        pytest.param(
            {"THREADS": "2"},
            "the number of threads is 1 in the step and 2 here",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_changed_program_is_refused(
    alone: tuple[Path, Done], changes: dict[str, str], told: str
) -> None:
    done = replay(alone[0], **changes)
    assert done.returncode != 0
    assert bits(done.stdout) == []
    assert re.search(told, done.stderr)


@pytest.mark.slow
def test_a_job_of_two_is_refused(alone: tuple[Path, Done]) -> None:
    done = replay(alone[0], *SIRTAKI, "run", "-np", "2", *SCRIPT)
    assert done.returncode == 1
    assert "a kept step is computed by one process, and this job has 2: " in done.stderr


@pytest.mark.slow
def test_another_version_of_pytorch_is_a_warning(alone: tuple[Path, Done], copied: Path) -> None:
    facts = json.loads((copied / "step.json").read_text())
    facts["versions"]["PyTorch"] = "1.0"
    (copied / "step.json").write_text(json.dumps(facts))
    done = replay(copied, HARM="gradient")
    assert done.returncode == 0
    assert "warning: PyTorch: 1.0 in the kept step, 2" in done.stderr
    assert bits(done.stdout) == bits(alone[1].stdout)


def test_a_script_without_parts_is_refused(alone: tuple[Path, Done]) -> None:
    done = replay(alone[0], "true")
    assert done.returncode == 2
    assert done.stderr == (
        "sirtaki replay: error: true ended (exit code 0) without a call of state.parts() of a "
        "reproducible state, so it has computed nothing of this step\n"
    )


@pytest.mark.parametrize("file", ["step.json", "values.pt"])
@pytest.mark.parametrize("spoil", ["remove", "truncate"])
def test_a_step_that_is_not_whole_is_refused(copied: Path, file: str, spoil: str) -> None:
    if spoil == "remove":
        (copied / file).unlink()
    else:
        os.truncate(copied / file, 100)
    done = replay(copied, "false")
    assert done.returncode == 2
    assert done.stderr.startswith(f"sirtaki replay: error: {copied} holds no whole step: ")


def test_a_flipped_bit_is_found(copied: Path) -> None:
    file = copied / "values.pt"
    with zipfile.ZipFile(file) as found:
        tensor = next(each for each in found.infolist() if each.filename.endswith("/data/0"))
    content = bytearray(file.read_bytes())
    content[tensor.header_offset + 256] ^= 1  # headers are shorter, and it has 512 bytes
    file.write_bytes(content)
    done = replay(copied, "false")
    assert done.returncode == 2
    assert re.search(
        f"{copied} holds no whole step: .*/data/0 in values.pt is damaged", done.stderr
    )


@pytest.mark.slow
def test_a_file_without_tensors_is_refused(copied: Path) -> None:
    with zipfile.ZipFile(copied / "values.pt", "w") as file:
        file.writestr("nothing", "")
    done = replay(copied)
    assert done.returncode == 1
    assert f"ValueError: the tensors of {copied} cannot be loaded: " in done.stderr


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_scripted_modules_are_not_looked_into(tmp_path: Path) -> None:
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    model = torch.nn.Sequential(scripted, torch.nn.ReLU())
    outputs = Outputs([model])
    model(torch.tensor([torch.nan, 1.0]))
    assert outputs.take() == (
        "the first output that is not finite is of 1 (ReLU); its input is not either"
    )
    assert outputs.take() == ""


def test_a_missing_folder_and_a_missing_command_are_refused(tmp_path: Path) -> None:
    done = replay(tmp_path / "none", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file or directory" in done.stderr
    done = ran(*SIRTAKI, "replay", str(tmp_path))
    assert done.returncode == 2
    assert "the command to run is missing" in done.stderr


@needs.root
def test_a_folder_of_another_user_is_refused(copied: Path) -> None:
    os.chown(copied, NOBODY, NOBODY)
    done = replay(copied, "true")
    assert done.returncode == 2
    assert f"the folder {copied} belongs to user {NOBODY}, not to us" in done.stderr


def test_a_folder_that_others_may_enter_is_refused(copied: Path) -> None:
    copied.chmod(0o755)
    done = replay(copied, "true")
    assert done.returncode == 2
    assert "has mode 0755" in done.stderr


def test_the_latest_eight_steps_stay(tmp_path: Path) -> None:
    facts = StepFacts(0, "", [], [], 1, {}, {})
    folders = [keep(tmp_path, facts, lambda _: None, forgets=True) for _ in range(10)]
    assert sum(folder.exists() for folder in folders) == 8
    assert folders[-1].exists()
