"""`horovodrun` and `sirtaki` as programs: places, output, exit codes."""

from __future__ import annotations

import json
import os
import platform
import pty
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import horovod
from sirtaki import __version__ as sirtaki_version
from sirtaki.launch.cores.binding import describe_share, own_processors, shares_here
from tests.single.launching import HOROVODRUN, LIMIT, SIRTAKI, Job, python, without_remarks

# It imports every framework.
DOCTOR_LIMIT = 150.0
SHOW = "import json, os; print(json.dumps({k: v for k, v in os.environ.items()}))"


@pytest.fixture
def job() -> Job:
    return Job()


def environments(output: str) -> dict[int, dict[str, str]]:
    """What `SHOW` printed, by rank."""
    lines = re.findall(r"^\[(\d+)\]<stdout>:(\{.*\})$", output, re.MULTILINE)
    return {int(rank): json.loads(text) for rank, text in lines}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_rank_learns_its_place(job: Job, size: int) -> None:
    done = job.run("-np", str(size), *python(SHOW))
    assert done.returncode == 0, done.stderr
    found = environments(done.stdout)
    assert sorted(found) == list(range(size))
    for rank, environment in found.items():
        place = {
            "RANK": rank,
            "SIZE": size,
            "LOCAL_RANK": rank,
            "LOCAL_SIZE": size,
            "CROSS_RANK": 0,
            "CROSS_SIZE": 1,
            "HOSTNAME": "localhost",
        }
        for name, value in place.items():
            assert environment[f"HOROVOD_{name}"] == str(value)
        assert environment["SIRTAKI_RENDEZVOUS"].startswith("unix:@")
        assert environment["PYTHONUNBUFFERED"] == "1"
    assert len({environment["SIRTAKI_RENDEZVOUS"] for environment in found.values()}) == 1
    job.wait_until_gone()


def test_workers_share_the_environment_of_the_launcher(job: Job) -> None:
    done = job.run("-np", "1", *python(SHOW), MY_TOKEN="secret é\n=x")
    assert environments(done.stdout)[0]["MY_TOKEN"] == "secret é\n=x"


def test_a_place_in_another_job_is_forgotten(job: Job) -> None:
    done = job.run(
        *("-np", "1", *python(SHOW)), SIRTAKI_RANK="7", HOROVOD_RANK="8", SIRTAKI_SIZE="9"
    )
    environment = environments(done.stdout)[0]
    assert environment["HOROVOD_RANK"] == "0"
    assert "SIRTAKI_RANK" not in environment
    assert "SIRTAKI_SIZE" not in environment


def test_a_flag_beats_both_spellings_of_an_inherited_variable(job: Job) -> None:
    done = job.run(
        *("-np", "1", "--cycle-time-ms", "5", *python(SHOW)),
        HOROVOD_CYCLE_TIME="1",
        SIRTAKI_CYCLE_TIME="2",
    )
    environment = environments(done.stdout)[0]
    assert environment["HOROVOD_CYCLE_TIME"] == "5.0"
    assert "SIRTAKI_CYCLE_TIME" not in environment


def test_the_environment_is_on_no_command_line(job: Job) -> None:
    code = (
        "import pathlib\n"
        "for p in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        "    try: text = p.read_bytes()\n"
        "    except OSError: continue\n"
        "    if b'tell' + b'tale' in text: print('found', p, text)"
    )
    done = job.run("-np", "1", *python(code), SECRET="telltale")
    assert (done.returncode, done.stdout) == (0, "")


def test_names_of_this_machine_count_as_one_host(job: Job) -> None:
    done = job.run("-np", "3", "-H", "localhost:2,127.0.0.1:2", *python(SHOW))
    assert {e["HOROVOD_LOCAL_SIZE"] for e in environments(done.stdout).values()} == {"3"}


def test_a_network_interface_that_no_host_has_is_an_error(job: Job) -> None:
    done = job.run("-np", "2", "--network-interface", "eth9", "true")
    assert done.returncode == 2
    assert "--network-interfaces eth9: no such interface" in done.stderr
    assert "lo: 127.0.0.1" in done.stderr
    assert job.run("-np", "1", "--network-interface", "eth9,lo", "true").returncode == 0


def test_a_hostfile_is_obeyed(job: Job, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    done = job.run("-np", "2", "--hostfile", str(tmp_path / "hosts"), "true")
    assert done.returncode == 0
    done = job.run("-np", "3", "--hostfile", str(tmp_path / "hosts"), "true")
    assert done.returncode == 2
    assert "Requested more processes (3) than there are available slots (2): add" in done.stderr
    assert "-H localhost:3" in done.stderr


def test_output_has_rank_and_stream_in_front(job: Job) -> None:
    done = job.run("-np", "2", "bash", "-c", "echo out; echo err >&2; printf end")
    assert sorted(done.stdout.splitlines()) == [
        *("[0]<stdout>:end", "[0]<stdout>:out", "[1]<stdout>:end", "[1]<stdout>:out")
    ]
    assert sorted(done.stderr.splitlines()) == ["[0]<stderr>:err", "[1]<stderr>:err"]


def test_output_can_have_the_time_in_front(job: Job) -> None:
    done = job.run("-np", "1", "-prefix-timestamp", "echo", "x")
    assert re.fullmatch(r".{20,30}\[0\]<stdout>:x\n", done.stdout)


def test_lines_of_many_ranks_do_not_mix(job: Job) -> None:
    code = "import os\nfor i in range(2000): print(os.environ['HOROVOD_RANK'] * 300)"
    done = job.run("-np", "4", *python(code))
    lines = done.stdout.splitlines()
    assert len(lines) == 8000
    assert set(lines) == {f"[{rank}]<stdout>:{str(rank) * 300}" for rank in range(4)}


def test_all_output_of_a_worker_that_fails_is_shown(job: Job) -> None:
    code = "import sys\nfor i in range(20000): print(i)\nsys.stdout.flush(); sys.exit(1)"
    done = job.run("-np", "1", *python(code))
    assert done.stdout.splitlines()[-1] == "[0]<stdout>:19999"


def test_output_is_copied_raw_to_files_and_still_shown(job: Job, tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    done = job.run(
        *("-np", "2", "--output-filename", str(directory)),
        *("bash", "-c", r"printf '\xff\r'; echo err $HOROVOD_RANK >&2"),
    )
    assert done.returncode == 0
    for rank in (0, 1):
        assert (directory / f"rank.{rank}" / "stdout").read_bytes() == b"\xff\r"
        assert (directory / f"rank.{rank}" / "stderr").read_text() == f"err {rank}\n"
        assert f"[{rank}]<stderr>:err {rank}\n" in done.stderr


def test_tee_keeps_all_that_a_rank_prints_in_one_file(job: Job, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "rank.0.log").write_text("of the job before\n")
    code = "print('out', flush=True); import sys; print('err', file=sys.stderr)"
    done = job.run("-np", "2", "--tee", str(directory), *python(code))
    assert done.returncode == 0, done.stderr
    assert "[1]<stdout>:out\n" in done.stdout
    for rank in (0, 1):
        lines = (directory / f"rank.{rank}.log").read_text().splitlines()
        assert sorted(lines) == ["err", "out"]


def test_ranks_have_colours_on_a_terminal_alone(job: Job) -> None:
    def shown(**extra: str) -> bytes:
        reader, terminal = pty.openpty()
        command = [*HOROVODRUN, "-np", "1", "echo", "hello"]
        environment = {**job.environment, "TERM": "xterm", "NO_COLOR": "", **extra}
        subprocess.run(command, stdout=terminal, env=environment, timeout=LIMIT, check=True)
        os.close(terminal)
        with os.fdopen(reader, "rb") as file:
            return file.readline()

    assert shown() == b"\x1b[36m[0]<stdout>:\x1b[0mhello\r\n"
    assert shown(NO_COLOR="1") == b"[0]<stdout>:hello\r\n"
    assert shown(TERM="dumb") == b"[0]<stdout>:hello\r\n"
    assert job.run("-np", "1", "echo", "hello", TERM="xterm").stdout == "[0]<stdout>:hello\n"


def test_an_output_directory_that_cannot_be_made_is_refused(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = job.run("-np", "1", "--output-filename", str(tmp_path / "file" / "x"), "true")
    assert done.returncode == 2
    assert "cannot create the output directory" in done.stderr


def test_workers_read_nothing(job: Job) -> None:
    done = job.run("-np", "2", "cat")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_first_failing_worker_is_named(job: Job) -> None:
    code = (
        "import os, sys, time\nif os.environ['HOROVOD_RANK'] == '1': sys.exit(3)\ntime.sleep(600)"
    )
    done = job.run("-np", "3", *python(code))
    assert done.returncode == 1
    assert "Process 1 exit with status code 3." in done.stderr
    assert "Terminating remaining workers after failure of Process 1." in done.stderr
    assert "Process name: rank 1 on localhost\nExit code: 3\nCommand: " in done.stderr
    assert "Traceback" not in done.stderr
    job.wait_until_gone()


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (15, "SIGTERM")])
def test_death_by_signal_is_128_plus_its_number(job: Job, number: int, name: str) -> None:
    done = job.run("-np", "1", "bash", "-c", f"kill -{number} $$")
    assert done.returncode == 1
    assert f"Process 0 exit with status code {128 + number}." in done.stderr
    assert f"Exit code: {128 + number} (killed by {name}" in done.stderr


def test_a_worker_that_ends_early_and_well_does_not_end_the_others(job: Job) -> None:
    code = "import os, time\nif os.environ['HOROVOD_RANK'] == '1': time.sleep(0.5); print('late')"
    done = job.run("-np", "2", *python(code))
    assert (done.returncode, done.stdout) == (0, "[1]<stdout>:late\n")


def test_workers_get_default_signal_handling(job: Job) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert job.run("-np", "1", *python(code)).stdout == "[0]<stdout>:True\n"
    # `yes` would complain of a broken pipe if SIGPIPE were ignored.
    done = job.run("-np", "1", "bash", "-c", "yes | head -1")
    assert (done.stdout, done.stderr) == ("[0]<stdout>:y\n", "")


def run_limited(job: Job, limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run horovodrun with the limits that ulimit is told."""
    words = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *HOROVODRUN, *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=LIMIT, env=job.environment, check=False
    )


def test_many_ranks_need_no_more_open_files_than_are_usual_for_one(job: Job) -> None:
    done = run_limited(job, "-S -n 64", "-np", "40", "sh", "-c", "ulimit -n; echo e >&2")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{r}]<stdout>:64" for r in range(40))
    said = without_remarks(done.stderr).splitlines()
    assert sorted(said) == sorted(f"[{r}]<stderr>:e" for r in range(40))


def test_few_open_files_are_enough_for_few_ranks(job: Job) -> None:
    code = "import sirtaki; sirtaki.init(); print(sirtaki.size())"
    done = run_limited(job, "-n 64", "-np", "2", *python(code))
    assert (done.returncode, done.stderr) == (0, "")


def test_more_ranks_than_files_may_be_open_are_refused(job: Job) -> None:
    done = run_limited(job, "-n 64", "-np", "40", "true")
    assert done.returncode == 1
    assert "and 64 are allowed there: raise the limit (ulimit -n)" in done.stderr


def test_workers_inherit_no_descriptors_but_that_of_the_secret(job: Job) -> None:
    code = (
        "import os; listed = os.listdir('/proc/self/fd')\n"
        "secret = os.path.basename(os.environ['SIRTAKI_SECRET_FILE'])\n"
        # That of the listing itself is closed again.
        "there = (n for n in listed if os.path.exists(f'/proc/self/fd/{n}'))\n"
        "print(sorted(int(n) for n in there if n != secret))"
    )
    done = job.run("-np", "2", *python(code))
    assert {line.partition(":")[2] for line in done.stdout.splitlines()} == {"[0, 1, 2]"}


@pytest.mark.parametrize("size", ["1", "3"])
def test_a_command_that_does_not_exist_is_named_with_127(job: Job, size: str) -> None:
    done = job.run("-np", size, "no-such-program", "x")
    assert done.returncode == 127
    assert "command not found: 'no-such-program'" in done.stderr
    assert job.run("-np", size, "./no/such/file").returncode == 127


def test_the_command_is_looked_for_on_the_path_that_ranks_get(job: Job, tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    done = job.run("-np", "1", "-x", f"PATH={tmp_path}:/usr/bin:/bin", "only-here")
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:found\n")
    done = job.run("-np", "1", "-x", f"PATH={tmp_path}", "ls")
    assert done.returncode == 127
    assert "command not found: 'ls'" in done.stderr


def test_a_script_without_a_path_gets_advice(job: Job, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    done = subprocess.run(
        [*HOROVODRUN, "-np", "1", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 127
    assert "'python train.py'" in done.stderr
    assert "did you mean" not in done.stderr


def test_a_command_that_cannot_be_executed_is_named_with_126(job: Job, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    done = job.run("-np", "1", str(plain))
    assert (done.returncode, "permission denied" in done.stderr) == (126, True)
    plain.chmod(plain.stat().st_mode | stat.S_IXUSR)
    done = job.run("-np", "2", str(plain))
    assert done.returncode == 126
    assert "Exec format error" in done.stderr
    assert job.run("-np", "1", str(tmp_path)).returncode == 126


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "-np"),
        (["-np", "0", "true"], "0 must be >= 1"),
        (["-np", "-1", "true"], "-1 must be >= 1"),
        (["-np", "1", "NAME=value"], "the command to run is missing"),
        (["-np", "2"], "the command to run is missing"),
        (["-np", "2", "--no-such-flag", "true"], "no-such-flag"),
        (["-np", "2", "-H", "a:b", "true"], "name:slots"),
        (["-np", "2", "--jsrun", "true"], "--jsrun is not supported"),
        (["-np", "2", "-H=-oProxyCommand=x:2", "true"], "name:slots"),
        (["-np", "2", "-x", "NO_SUCH_VARIABLE", "true"], "is not set here"),
        (
            ["-np", "2", "-H", "192.0.2.1:2", "-i", "/no/such/key", "true"],
            "'/no/such/key', is not a file",
        ),
        (["-np", "2", "-p", "70000", "true"], "70000 must be <= 65535"),
        (["-np", "2", "--min-np", "3", "true"], "-np 2 is not between"),
    ],
)
def test_mistakes_of_the_user_are_said_without_a_traceback(
    job: Job, arguments: list[str], message: str
) -> None:
    done = job.run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_verbose_tells_hosts_ranks_variables_and_command(job: Job) -> None:
    done = job.run("-np", "2", "--verbose", "--cycle-time-ms", "5", "echo", "a b")
    assert "host localhost: ranks 0, 1" in done.stderr
    assert "HOROVOD_CYCLE_TIME=5" in done.stderr
    assert "command: echo 'a b'" in done.stderr


def test_help_shows_the_flags(job: Job) -> None:
    done, everything = job.run("--help", COLUMNS="80"), job.run("--help-all")
    assert (done.returncode, everything.returncode) == (0, 0)
    assert len(done.stdout.splitlines()) <= 40
    for flag in ("-np", "--hostfile", "--output-filename", "--help-all"):
        assert flag in done.stdout
        assert flag in everything.stdout
    for flag in ("--fusion-threshold-mb", "--timeline-filename"):
        assert flag not in done.stdout
        assert flag in everything.stdout
    for old in ("--cycle-time-ms", "--tee", "--torus-allreduce"):
        assert old not in everything.stdout


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_each_command_says_its_version_and_then_both(job: Job, flag: str) -> None:
    both = f"(the interface of Horovod {horovod.__version__}, by Sirtaki {sirtaki_version})\n"
    theirs, ours = (horovod.__version__, job.run(flag)), (sirtaki(flag), sirtaki("run", flag))
    for first, done in (theirs, *((sirtaki_version, each) for each in ours)):
        assert (done.returncode, done.stdout) == (0, f"{first}\n")
        assert done.stderr.endswith(both)


def test_assignments_before_the_command_go_to_the_environment_of_the_ranks(job: Job) -> None:
    show = python("import os; print(os.environ['FIRST'], os.environ['SECOND'])")
    given = ("FIRST=from -x", "FIRST=1 'a'", "SECOND=b=c")
    done = job.run("-np", "2", "--verbose", "-x", given[0], *given[1:], *show)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:1 'a' b=c" for rank in (0, 1)]
    assert "variable FIRST (-x)" in done.stderr
    assert "b=c" not in done.stderr


@pytest.mark.slow
def test_the_build_check_has_three_blocks(job: Job) -> None:
    done = job.run("--check-build")
    assert done.returncode == 0
    assert re.fullmatch(
        rf"Horovod v{re.escape(horovod.__version__)}:\n\n"
        r"Available Frameworks:\n +\[.\] TensorFlow\n +\[.\] PyTorch\n +\[.\] MXNet\n"
        r" +\[.\] JAX\n\n"
        r"Available Controllers:\n +\[.\] MPI\n +\[.\] Gloo\n\n"
        r"Available Tensor Operations:\n"
        r" +\[.\] NCCL\n +\[.\] DDL\n +\[.\] CCL\n +\[.\] MPI\n +\[.\] Gloo\n",
        done.stdout,
    )
    for name in ("MXNet", "MPI", "NCCL", "DDL", "CCL"):
        assert f"    [ ] {name}\n" in done.stdout


def sirtaki(*arguments: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SIRTAKI, *arguments], capture_output=True, text=True, timeout=limit, check=False
    )


def test_sirtaki_run_is_horovodrun() -> None:
    done = sirtaki("run", "-np", "2", "echo", "x")
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:x", "[1]<stdout>:x"]
    assert "sirtaki run: error" in sirtaki("run", "-np", "0", "true").stderr


def test_sirtaki_names_its_subcommands() -> None:
    assert sirtaki().returncode == 2
    done = sirtaki("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("run", "doctor", "bench", "caffe", "ps", "stacks"))
    done = sirtaki("docter")
    assert done.returncode == 2
    assert done.stderr == "sirtaki: error: unknown subcommand 'docter'; did you mean doctor?\n"


@pytest.mark.job
@pytest.mark.slow
@pytest.mark.timeout(2 * DOCTOR_LIMIT)
def test_the_doctor_tells_the_same_in_json_and_in_words() -> None:
    done = sirtaki("doctor", "--json", limit=DOCTOR_LIMIT)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["core"]["works"] else 1)
    names = [finding["name"] for finding in report["frameworks"]]
    assert names == ["jax", "keras", "numpy", "tensorflow", "torch"]
    assert {finding["name"] for finding in report["backends"]} == {
        "native",
        "single",
        "nccl",
        "mpi",
    }
    assert all(finding["detail"] for finding in report["frameworks"] + report["backends"])
    assert "those of gloo by gloo" in report["torch_distributed"]["detail"]
    assert report["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    processors = own_processors()
    assert report["cpu"]["physical_cores"] == len(processors.cores)
    assert report["cpu"]["quota"] == processors.quota
    shares = [describe_share(share, os.environ) for share in shares_here(2, None, os.environ)]
    assert report["cpu"]["two_ranks"] == shares
    assert all(finding["works"] for finding in report["system"][:2])
    judged = {finding["check"]: finding for finding in report["findings"]}
    assert len(judged) == len(report["findings"])
    assert all(
        set(each) == {"check", "level", "what", "fix", "host"} and each["host"] == platform.node()
        for each in judged.values()
    )
    assert {*names, "native", "memory files", "ulimit nofile", "/dev/shm"} <= judged.keys()
    assert judged["sirtaki._core"]["level"] == "ok"
    words = sirtaki("doctor", limit=DOCTOR_LIMIT)
    assert words.returncode == done.returncode
    for name in [
        *names,
        "native",
        "nccl",
        "torch.distributed",
        "Scheduler",
        "memory files",
        "NUMA nodes: ",
        *judged,
        *shares,
    ]:
        assert name in words.stdout


def test_a_subcommand_of_a_package_that_is_not_installed_names_it() -> None:
    code = """
import sys
from sirtaki.launch.cli import main

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == "sirtaki_caffe":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.exit(main(["caffe", "--version"]))
"""
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "sirtaki: error: this needs the package sirtaki-caffe: pip install sirtaki-caffe\n",
    )
