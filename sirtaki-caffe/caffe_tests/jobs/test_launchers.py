"""Jobs of `caffe` as batch scripts start them: mpirun, run_intelcaffe.sh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from caffe_tests import places
from sirtaki_caffe.commands import run_intelcaffe
from tests import needs

PROGRAMS = Path(sys.executable).parent
Shown = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with LeNet and its data, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOG_logtostderr", "1")
    places.make_data(tmp_path)
    places.write_net(tmp_path, "lenet", places.LENET, 6, "max_iter: 2\ntest_interval: 99")
    return tmp_path


def processes_in(output: str) -> list[str]:
    return re.findall(r"Number of processes: (\d+)$", output, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(
    not (PROGRAMS / "mpirun").exists(), reason=needs.missing("mpirun beside this Python")
)
@pytest.mark.usefixtures("place")
def test_mpirun_starts_the_processes() -> None:
    library = Path(os.path.realpath(PROGRAMS / "mpirun")).parents[1] / "lib"
    done = subprocess.run(
        [
            *(PROGRAMS / "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"),
            *(*places.CAFFE, "train", "--solver", "lenet_solver.prototxt"),
        ],
        capture_output=True,
        text=True,
        timeout=places.LIMIT,
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert processes_in(done.stderr) == ["2"]
    assert Path("lenet_iter_2.caffemodel").exists()


# ---- run_intelcaffe.sh ----


def job(*words: str) -> int:
    return run_intelcaffe.main([*words])


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_script_trains_with_as_many_processes_as_hosts_and_ppn_say(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    Path("hosts").write_text("localhost\nlocalhost\n")
    words = ("--hostfile", "hosts", "--solver", "lenet_solver.prototxt", "--network", "opa")
    assert job(*words, "--ppn", "2", "--num_omp_threads", "60", "--output", "out") == 0
    shown = capfdbinary.readouterr().out.decode()
    assert processes_in(shown) == ["2"]
    assert Path("lenet_iter_2.caffemodel").exists()
    (kept,) = Path("out").glob("outputCluster-*-1.txt")
    assert processes_in(kept.read_text()) == ["2"]
    (nodes,) = Path("out").glob("nodeconfig-*-1.txt")
    assert nodes.read_text() == "localhost slots=2\n"


class Launched:
    """The command and variables of a job that is not started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.command: list[str] = []
        self.variables: dict[str, str] = {}

        def keep(command: list[str], variables: dict[str, str], output: Path) -> int:
            self.command, self.variables = command, variables
            return 0

        monkeypatch.setattr(run_intelcaffe, "_run", keep)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    return Launched(monkeypatch)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("words", "tail"),
    [
        (["--weights", "a.caffemodel"], ["--weights", "a.caffemodel"]),
        (["--engine", "MKLDNN"], ["--engine=MKLDNN"]),
        (["--snapshot", "lenet_solver.prototxt"], ["--snapshot=lenet_solver.prototxt"]),
    ],
)
def test_the_script_hands_flags_on_to_caffe(
    words: list[str], tail: list[str], launched: Launched
) -> None:
    assert job("--solver", "lenet_solver.prototxt", *words) == 0
    assert launched.command[-3 - len(tail) :] == [
        "train",
        "--solver",
        "lenet_solver.prototxt",
        *tail,
    ]
    assert Path(launched.command[0]).name == "caffe"
    assert launched.variables == {"OMP_NUM_THREADS": "16", "GLOG_minloglevel": "0"}


@pytest.mark.usefixtures("place")
def test_the_script_uses_our_caffe_where_the_one_named_is_missing(
    launched: Launched, capsys: Shown
) -> None:
    assert job("--solver", "lenet_solver.prototxt", "--caffe_bin", "/nowhere/bin/caffe") == 0
    assert "--caffe_bin /nowhere/bin/caffe: there is no such program" in capsys.readouterr().out
    assert launched.command[0] != "/nowhere/bin/caffe"


@pytest.mark.usefixtures("place")
def test_the_script_takes_each_host_once_in_the_order_of_numbers(launched: Launched) -> None:
    Path("hosts").write_text("node10\nnode9\n\nnode10\n# not me\nnode9\n")
    words = ("--hostfile", "hosts", "--solver", "lenet_solver.prototxt", "--ppn", "4")
    tcp = ("--network", "tcp", "--netmask", "eth0", "--output", "out")
    assert job(*words, *tcp, "--num_omp_threads", "3") == 0
    (nodes,) = Path("out").glob("nodeconfig-*-2.txt")
    assert nodes.read_text() == "node9 slots=4\nnode10 slots=4\n"
    text = " ".join(launched.command)
    assert (
        f"run -np 8 --hostfile {nodes} --network-interface eth0 -x GLOG_minloglevel -x OMP" in text
    )
    assert launched.variables["OMP_NUM_THREADS"] == "3"


@pytest.mark.usefixtures("place")
def test_the_script_starts_a_single_process_where_the_host_file_says(launched: Launched) -> None:
    Path("hosts").write_text("node9\n")
    assert job("--hostfile", "hosts", "--solver", "lenet_solver.prototxt", "--output", "out") == 0
    assert "run -np 1 --hostfile" in " ".join(launched.command)
    assert "OMP_NUM_THREADS" not in launched.variables  # not ours to know


@pytest.mark.usefixtures("place")
def test_the_script_measures(launched: Launched) -> None:
    words = ("--mode", "inf_time", "--model_file", "lenet.prototxt", "--iteration", "7")
    assert job(*words) == 0
    assert launched.command[1:] == [
        *("time", "--model", "lenet.prototxt", "--iterations=7"),
        *("--forward_only", "--phase", "TEST"),
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, "usage: run_intelcaffe.sh"),
        (["--help"], 0, "usage: run_intelcaffe.sh"),
        (["--ppn", "1", "--help"], 0, "usage: run_intelcaffe.sh"),
        (["--nosuch", "1"], 1, "unknown option --nosuch"),
        (["--ppn", "1"], 1, "--mode train needs --solver"),
        (["--ppn", "1", "--mode"], 1, "--mode needs a value"),
        (["--ppn", "many"], 1, "--ppn many: is not a number"),
        (["--solver", "missing"], 1, "--solver missing: there is no such file"),
        (["--network", "myrinet"], 1, "must be one of opa, tcp"),
        (["--solver", "lenet_solver.prototxt", "--network", "tcp"], 1, "needs --netmask"),
        (["--solver", "lenet_solver.prototxt", "--hostfile", "none"], 1, "--hostfile none"),
        (["--mode", "time"], 1, "needs --model_file"),
        (["--mode", "none"], 0, ""),
    ],
)
@pytest.mark.usefixtures("place")
def test_the_script_checks_its_command_line(
    words: list[str], code: int, said: str, capsys: Shown
) -> None:
    assert job(*words) == code
    assert said in "".join(capsys.readouterr())


@pytest.mark.usefixtures("place")
def test_the_script_looks_for_the_database_before_anything_is_started(capsys: Shown) -> None:
    Path("test_lmdb").rename("elsewhere")
    assert job("--solver", "lenet_solver.prototxt") == 255
    assert "names the database test_lmdb, which is no folder" in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_the_script_looks_for_no_database_in_a_comment(launched: Launched) -> None:
    net = Path("lenet.prototxt")
    net.write_text(net.read_text().replace("source:", '# source: "elsewhere"\nsource:'))
    assert job("--solver", "lenet_solver.prototxt") == 0
    assert launched.command
