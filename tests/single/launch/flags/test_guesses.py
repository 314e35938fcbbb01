"""What was meant by a misspelt flag, command or program."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirtaki import new
from sirtaki.doctor import doctor
from sirtaki.inspect import hang, ps
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.guesses import program_like
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.processes.local import require_command
from sirtaki.observe import bench
from sirtaki.observe.trace import command as trace


@pytest.mark.parametrize(
    ("main", "arguments", "guess"),
    [
        (new.main, ["torch"], "pytorch"),
        (new.main, ["kears"], "keras"),
        (hang.main, ["--stack_s"], "--stacks"),
        (ps.main, ["--hlep"], "--help"),
        (trace.main, ["strat", "x"], "start"),
        (bench.main, ["scalng"], "scaling"),
        (doctor.main, ["--jsno"], "--json"),
        (trace.main, ["start", "x", "--secnods", "3"], "--seconds"),
    ],
)
def test_a_command_guesses_what_was_meant(
    main: object, arguments: list[str], guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)  # type: ignore[operator]
    assert f"; did you mean {guess}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        ("--num-prok 2", "--num-proc?"),
        ("--host a:2", "-H?"),
        ("--host-file h", "--hostfile?"),
        ("--nproc_per_node 2", "-np (all processes) or --nproc-per-node (with --nnodes)?"),
        ("--timeline t", "--timeline-filename?"),
        ("--stall x", "--stall-check-warning-time-seconds, "),
    ],
)
def test_the_launcher_guesses_what_a_flag_means(arguments: str, guess: str) -> None:
    with pytest.raises(LaunchError) as raised:
        make_parser("horovodrun").parse_args([*arguments.split(), "true"])
    assert f"; did you mean {guess}" in str(raised.value)


def test_nothing_is_guessed_where_nothing_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ps.main(["--xyzzy"])
    assert "did you mean" not in capsys.readouterr().err


def test_a_misspelt_program_is_guessed_from_those_on_the_path(tmp_path: Path) -> None:
    for name in ("python", "pytho", "train-model"):
        (tmp_path / name).touch()
    path = f"{tmp_path}:/no/such/folder"
    assert program_like("pyhton", path) == "; did you mean python?"
    assert program_like("train_modle", path) == "; did you mean train-model?"
    assert program_like("xyzzy", path) == ""
    with pytest.raises(LaunchError, match=r"command not found: 'pyhton' .*; did you mean python"):
        require_command(["pyhton", "train.py"], path)
