"""The command line's syntax, and the log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki_caffe.commands.flags import FlagError, Flags, parse, usage
from sirtaki_caffe.commands.log import ERROR, Log

PREFIX = re.compile(r"^([IWEF])(\d{4}) (\d\d:\d\d:\d\d\.\d{6}) ( *\d+) (\S+):(\d+)\] (.*)$")


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--solver=a.prototxt", "--iterations=7", "--forward_only"],
        ["--solver", "a.prototxt", "-iterations", "7", "train", "-forward_only=true"],
        ["-solver=a.prototxt", "train", "-iterations=0x7", "--forward_only=yes"],
        ["train", "-nosampling", "-solver", "a.prototxt", "--iterations", "7", "--forward_only=1"],
    ],
)
def test_flags_stand_in_any_of_the_ways_of_gflags(words: list[str]) -> None:
    flags, rest = parse(words, {})
    assert rest == ["train"]
    expected = Flags(solver="a.prototxt", iterations=7, forward_only=True)
    assert repr(flags) == repr(expected)  # nan is not equal to itself


def test_a_flag_of_two_values_has_the_later_one() -> None:
    flags, _ = parse(["-level", "1", "--level=-2"], {})
    assert flags.level == -2


def test_behind_two_dashes_nothing_is_a_flag() -> None:
    assert parse(["--level=1", "--", "--level=2"], {})[1] == ["--level=2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nosuch"], "unknown command line flag 'nosuch'"),
        (["--nosuch=1"], "unknown command line flag 'nosuch'"),
        (["--nosolver"], "unknown command line flag 'nosolver'"),
        (["--solver"], "flag '--solver' is missing its argument"),
        (["--iterations=many"], "illegal value 'many' specified for int32 flag 'iterations'"),
        (["--iterations=3000000000"], "illegal value '3000000000' specified for int32"),
        (["--forward_only=maybe"], "illegal value 'maybe' specified for bool flag 'forward_only'"),
        (["--flagfile=/no/such"], "cannot read flag file '/no/such'"),
    ],
)
def test_a_wrong_flag_is_named(words: list[str], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        parse(words, {})


def test_flags_come_from_files_too(tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text("# for all runs\n--solver=a.prototxt\n\n-noforward_only\n--level=3\n")
    flags, rest = parse([f"--flagfile={file}", "train", "--level=4"], {})
    assert (flags.solver, flags.level, rest) == ("a.prototxt", 4, ["train"])


def test_a_flag_file_that_names_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text(f"--flagfile={file}\n")
    with pytest.raises(FlagError, match="names itself"):
        parse(["--flagfile", str(file)], {})


def test_variables_of_glog_are_defaults() -> None:
    environ = {"GLOG_minloglevel": "2", "GLOG_log_dir": "/logs", "GLOG_logtostderr": "1"}
    flags, _ = parse(["--log_dir=/mine"], environ)
    assert (flags.minloglevel, flags.log_dir, flags.logtostderr) == (2, "/mine", True)


def test_log_files_go_where_flags_and_variables_say() -> None:
    assert Flags().log_folder({}) == "/tmp"
    assert Flags().log_folder({"TMPDIR": "/scratch"}) == "/scratch"
    assert Flags(log_dir="/logs").log_folder({"TMPDIR": "/scratch"}) == "/logs"
    assert Flags(log_dir="/logs", logtostderr=True).log_folder({}) == ""


def test_the_usage_has_a_line_for_every_flag() -> None:
    text = usage()
    assert "    -sighup_effect (what SIGHUP does: stop, snapshot or none) type: string" in text
    assert len(text.splitlines()) == len(vars(Flags()))


def test_a_line_has_the_prefix_of_glog(capsys: pytest.CaptureFixture[str]) -> None:
    Log().info("solver.cpp", "Solving LeNet")
    match = PREFIX.match(capsys.readouterr().err.rstrip("\n"))
    assert match is not None
    severity, _, _, thread, source, _, text = match.groups()
    assert (severity, source, text) == ("I", "solver.cpp", "Solving LeNet")
    assert len(thread) >= 5


def test_lines_go_to_files_by_severity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(folder=str(tmp_path))
    log.info("caffe.cpp", "begins")
    log.error("caffe.cpp", "is wrong")
    log.close()
    assert capsys.readouterr().err.count("\n") == 2
    names = [path.name for path in tmp_path.iterdir() if not path.is_symlink()]
    shape = r"caffe\.\S+\.\S+\.log\.(INFO|WARNING|ERROR)\.\d{8}-\d{6}\.\d+"
    found = [re.fullmatch(shape, name) for name in names]
    assert all(found)
    assert len(found) == 3
    info = (tmp_path / "caffe.INFO").read_text()
    assert info.startswith("Log file created at: ")
    assert [line[-8:] for line in info.splitlines()[3:]] == ["] begins", "is wrong"]
    assert "begins" not in (tmp_path / "caffe.ERROR").read_text()


def test_what_is_below_the_least_severity_is_not_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(least=ERROR)
    log.info("caffe.cpp", "nothing")
    log.error("caffe.cpp", "something")
    assert "nothing" not in capsys.readouterr().err


def test_a_silent_process_still_says_why_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(silent=True)
    log.error("caffe.cpp", "nothing")
    log.fatal("caffe.cpp", "the end")
    shown = capsys.readouterr().err
    assert "nothing" not in shown
    assert shown.startswith("F")


def test_each_line_has_the_processes_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    Log(prefix="[3] ").info("solver.cpp", "parameters: \ntype: x")
    shown = capsys.readouterr().err
    assert [line[:5] for line in shown.splitlines()] == ["[3] I", "[3] t"]


def test_nothing_is_written_over_what_stands_at_a_log_files_place(tmp_path: Path) -> None:
    (tmp_path / "caffe.INFO").write_text("mine")
    log = Log(folder=str(tmp_path))
    log.info("caffe.cpp", "begins")
    log.close()
    assert (tmp_path / "caffe.INFO").read_text() == "mine"


@pytest.mark.parametrize("module", ["main", "run_intelcaffe"])
def test_a_pipe_that_nobody_reads_is_no_traceback(module: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = f"import sys; from sirtaki_caffe.commands.{module} import main; sys.exit(main())"
    words = [sys.executable, "-c", run, "--help"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
