"""`sirtaki demo`: what it says of its scenes. The scenes themselves run in `make demo`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sirtaki.demo import command
from sirtaki.demo.program import Program, SceneError


def fails(folder: Path) -> str:
    raise SceneError(f"no figure of {folder.name}")


def test_each_scene_ends_with_its_figure_and_one_that_fails_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = [("good", lambda folder: f"{folder.name}: 1.9"), ("bad", fails)]
    assert command._play(program, tmp_path) == [f"{tmp_path.name}: 1.9", None]
    said = capsys.readouterr()
    assert f"==== 1 of 2: good\n=> {tmp_path.name}: 1.9\n" in said.out
    assert said.err == f"sirtaki demo: error: no figure of {tmp_path.name}\n"


def test_a_failed_scene_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = [("good", lambda folder: "1.9"), ("bad", fails)]
    monkeypatch.setattr(command, "_program", lambda framework: scenes)
    assert command.main([]) == 1
    assert "1. 1.9\n2. FAILED\n" in capsys.readouterr().out
    scenes.pop()
    assert command.main([]) == 0


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_the_scripts_of_each_framework_are_whole(framework: str, tmp_path: Path) -> None:
    command._write_scripts(tmp_path, framework)
    found = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert set(found) == {"shapes", "network", "train", "survive", "hang", "compare"}
    for name, text in found.items():
        compile(text, name, "exec")


@pytest.mark.job
def test_a_command_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    with Program("no-such-command", tmp_path, shown=False) as program:
        with pytest.raises(SceneError) as failed:
            program.wait_for("a figure")
        assert "unknown subcommand 'no-such-command'" in str(failed.value)
        with pytest.raises(SceneError, match="ended with exit code 2"):
            program.finish()


@pytest.mark.job
def test_a_command_ends_by_itself_in_a_shells_background_too(tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text("import time; print('ready', flush=True); time.sleep(100)")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it there
    try:
        with Program("run -np 1 python sleep.py", tmp_path, shown=False) as program:
            program.wait_for("ready")
    finally:
        signal.signal(signal.SIGINT, before)
    assert program._process.returncode == 128 + signal.SIGTERM
