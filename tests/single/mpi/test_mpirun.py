"""`horovodrun --mpi`: the command lines, and what is refused before anything is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import flags_of
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import Settings, make_settings
from sirtaki.launch.processes.guarding import mpi_rank
from sirtaki.launch.starters import mpi
from sirtaki.launch.starters.mpi import MpiKind
from tests.single.launching import Job

pytestmark = pytest.mark.job

HOSTS = ("-H", "node-a:2,node-b:2")
ACCEPT_NEW = "-o StrictHostKeyChecking=accept-new"


def settings(*flags: str, np: int = 4) -> Settings:
    args = make_parser("horovodrun").parse_args(
        ["-np", str(np), "--mpi", *flags, "python", "train.py"]
    )
    return make_settings(flags_of(vars(args)), {})


def line(kind: MpiKind, *flags: str, np: int = 4, passed: tuple[str, ...] = ()) -> str:
    return " ".join(mpi.compose(kind, "mpirun", settings(*flags, np=np), passed).argv)


# ---- The command lines ----


def test_open_mpi_gets_hosts_binding_transport_and_the_names_of_variables() -> None:
    assert line(MpiKind.OPEN_MPI, *HOSTS, passed=("HOROVOD_X", "PATH")) == (
        "mpirun --allow-run-as-root --tag-output -np 4 -H node-a:2,node-b:2 "
        "--bind-to none --map-by slot -mca pml ob1 -mca btl ^openib "
        "--prtemca plm_ssh_args -o StrictHostKeyChecking=accept-new "
        "-x HOROVOD_X -x PATH python train.py"
    )


def test_one_host_is_localhost() -> None:
    assert "-H localhost:4 " in line(MpiKind.OPEN_MPI)


def test_in_an_allocation_mpirun_knows_the_hosts_unless_they_are_given() -> None:
    argv = mpi.compose(MpiKind.OPEN_MPI, "mpirun", settings(), (), allocated=True).argv
    assert "-H" not in argv
    argv = mpi.compose(MpiKind.MPICH, "mpirun", settings(), (), allocated=True).argv
    assert argv == ["mpirun", "-l", "-np", "4", "python", "train.py"]
    argv = mpi.compose(MpiKind.OPEN_MPI, "mpirun", settings(*HOSTS), (), allocated=True).argv
    assert argv[argv.index("-H") + 1] == "node-a:2,node-b:2"


def test_open_mpi_gets_what_ssh_and_the_network_need(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    asked = settings(*HOSTS, "-p", "12345", "-i", str(key), "--network-interfaces", "eth0,eth1")
    for kind, name in ((MpiKind.OPEN_MPI, "plm_ssh_args"), (MpiKind.OPEN_MPI_4, "plm_rsh_args")):
        argv = mpi.compose(kind, "mpirun", asked, ()).argv
        assert argv[argv.index(name) + 1] == f"{ACCEPT_NEW} -p 12345 -i {key}"
        assert argv[argv.index("btl_tcp_if_include") + 1] == "eth0,eth1"


@pytest.mark.slow
def test_open_mpi_starts_many_hosts_without_a_tree() -> None:
    def hosts(count: int) -> str:
        return ",".join(f"n{i}:1" for i in range(count))

    assert "tree_spawn" not in line(MpiKind.OPEN_MPI, "-H", hosts(63), np=63)
    assert "-mca plm_rsh_no_tree_spawn true -mca plm_rsh_num_concurrent 64 " in line(
        MpiKind.OPEN_MPI_4, "-H", hosts(64), np=64
    )
    assert "--prtemca plm_ssh_no_tree_spawn true --prtemca plm_ssh_num_concurrent 64 " in line(
        MpiKind.OPEN_MPI, "-H", hosts(64), np=64
    )


def test_arguments_for_mpirun_come_last_and_those_for_binding_replace_ours() -> None:
    text = line(
        MpiKind.OPEN_MPI,
        "--mpi-args=-x 'A=b c' --report-bindings",
        "--binding-args=--bind-to core",
    )
    assert text.endswith("-mca btl ^openib -x A=b c --report-bindings python train.py")
    assert "--bind-to core" in text
    assert "--map-by" not in text


def test_a_parameter_of_the_users_replaces_ours() -> None:
    text = line(MpiKind.OPEN_MPI, "--mpi-args=--mca pml ucx")
    assert "pml ob1" not in text
    assert "-mca btl ^openib --mca pml ucx python" in text


def test_open_mpi_writes_files_and_times() -> None:
    text = line(MpiKind.OPEN_MPI, "--output-filename", "out", "--prefix-output-with-timestamp")
    assert "--tag-output --timestamp-output -np" in text
    assert "--output-filename out " in text


def test_spectrum_binds_to_sockets() -> None:
    assert line(MpiKind.SPECTRUM, *HOSTS, "--tcp") == (
        "mpirun --allow-run-as-root --tag-output -np 4 -H node-a:2,node-b:2 "
        "-bind-to socket -map-by socket -tcp "
        f"-mca plm_rsh_args {ACCEPT_NEW} python train.py"
    )


@pytest.mark.parametrize("kind", [MpiKind.MPICH, MpiKind.INTEL])
def test_hydra_gets_hosts_processes_per_host_interface_and_names_of_variables(
    kind: MpiKind,
) -> None:
    text = line(kind, *HOSTS, "--network-interface", "eth0", passed=("HOROVOD_X", "PATH"))
    assert text == (
        "mpirun -l -np 4 -ppn 2 -hosts node-a,node-b -iface eth0 "
        "-genvlist HOROVOD_X,PATH python train.py"
    )


def test_hosts_with_uneven_places_are_written_out_for_mpich_and_refused_for_intel() -> None:
    uneven = ("-H", "node-a:1,node-b:3")
    assert "-hosts node-a:1,node-b:3 " in line(MpiKind.MPICH, *uneven)
    with pytest.raises(LaunchError, match="1 on node-a, 3 on node-b"):
        line(MpiKind.INTEL, *uneven)
    # The last host may have places left.
    assert "-ppn 3 -hosts node-a,node-b " in line(MpiKind.INTEL, "-H", "node-a:3,node-b:3")


def test_hydra_is_told_the_port_of_ssh() -> None:
    mpich = mpi.compose(MpiKind.MPICH, "mpirun", settings(*HOSTS, "-p", "12345"), ())
    assert mpich.variables == {"HYDRA_LAUNCHER_EXTRA_ARGS": f"{ACCEPT_NEW} -p 12345"}
    intel = mpi.compose(MpiKind.INTEL, "mpirun", settings(*HOSTS, "-p", "12345"), ())
    extra = ["-bootstrap", "ssh", "-bootstrap-exec-args", f"{ACCEPT_NEW} -p 12345"]
    assert intel.argv[-6:-2] == extra
    assert intel.variables == {}


def test_hydra_writes_files() -> None:
    assert "-outfile-pattern out/rank.%r.stdout -errfile-pattern out/rank.%r.stderr" in line(
        MpiKind.MPICH, "--output-filename", "out"
    )


# ---- What is refused ----


@pytest.mark.parametrize(
    ("kind", "flags", "words"),
    [
        (MpiKind.MPICH, ["--network-interfaces", "a,b"], "one network interface, not a, b"),
        (MpiKind.INTEL, ["--prefix-output-with-timestamp"], "no such output"),
        (MpiKind.OPEN_MPI, ["-H", "[fe80::1]:4"], "fe80::1"),
        (MpiKind.OPEN_MPI, ["--mpi-args=-np 3"], "--mpi-args contains -np"),
        (MpiKind.MPICH, ["--mpi-args=-hosts a,b"], "--mpi-args contains -hosts"),
    ],
)
def test_what_this_mpirun_cannot_do_is_said(kind: MpiKind, flags: list[str], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        line(kind, *flags)


def test_a_key_with_spaces_cannot_be_given_to_mpirun(tmp_path: Path) -> None:
    key = tmp_path / "my key"
    key.touch()
    with pytest.raises(LaunchError, match="spaces"):
        line(MpiKind.OPEN_MPI, *HOSTS, "-i", str(key))


def test_arguments_that_are_no_words_are_refused() -> None:
    with pytest.raises(LaunchError, match=r"--mpi-args.*quotation"):
        settings("--mpi-args=-x 'A")


def test_arguments_for_mpirun_contradict_the_native_launcher() -> None:
    args = make_parser("horovodrun").parse_args(["-np", "1", "--gloo", "--mpi-args=-v", "true"])
    with pytest.raises(LaunchError, match="--mpi-args: --gloo does not use mpirun"):
        make_settings(flags_of(vars(args)), {})


# ---- Which mpirun it is ----


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to …", MpiKind.OPEN_MPI),
        ("mpirun (Open MPI) 4.1.6\n\nReport bugs to …", MpiKind.OPEN_MPI_4),
        ("mpirun (OpenRTE) 2.1.1", MpiKind.OPEN_MPI_4),
        ("mpirun (IBM Spectrum MPI) 10.04.00.00", MpiKind.SPECTRUM),
        ("HYDRA build details:\n    Version:     4.0", MpiKind.MPICH),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005", MpiKind.INTEL),
    ],
)
def test_an_mpirun_is_known_by_its_version(version: str, kind: MpiKind) -> None:
    assert mpi.recognise(version) is kind


def test_an_unknown_mpirun_is_refused() -> None:
    with pytest.raises(LaunchError, match="'my own mpirun'"):
        mpi.recognise("my own mpirun\n1.0")


# ---- Running it ----


@pytest.fixture
def mpirun(tmp_path: Path) -> Path:
    """An mpirun that calls itself MPICH's and shows what it was given."""
    path = tmp_path / "mpirun"
    path.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo HYDRA; exit 0; }\n'
        'echo "$@"; echo "$HYDRA_LAUNCHER_EXTRA_ARGS,$HOROVOD_CONTROLLER,$HOROVOD_RANK,$A" >&2\n'
        "exit 7\n"
    )
    path.chmod(0o755)
    return path


def test_its_output_and_exit_code_are_those_of_mpirun(mpirun: Path) -> None:
    path = f"{mpirun.parent}:{os.environ['PATH']}"
    flags = ("--mpi", "-np", "2", "-p", "77", "-x", "A=secret")
    environ = {"HOROVOD_RANK": "3", "OF_THE_USER": "1", "B_TOKEN": "2"}
    done = Job().run(*flags, "true", PATH=path, **environ)
    assert done.returncode == 7
    *words, listed, python, _, _, between, command = done.stdout.split()
    assert words == ["-l", "-np", "2", "-ppn", "2", "-hosts", "localhost", "-genvlist"]
    assert (python, between, command) == (sys.executable, mpi_rank.__file__, "true")
    # MPICH gives its jobs no names.
    assert {"A", "HOROVOD_CONTROLLER", "OF_THE_USER", "SIRTAKI_JOB"} <= set(listed.split(","))
    assert "B_TOKEN" not in listed
    assert "secret" not in done.stdout
    # The place in another job is not handed on.
    assert done.stderr == "-p 77,mpi,,secret\n"


def test_a_dry_run_only_prints_the_command(mpirun: Path) -> None:
    path = f"{mpirun.parent}:{os.environ['PATH']}"
    done = Job().run("--mpi", "-np", "2", "--dry-run", "echo", "a b", PATH=path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"start: {mpirun} -l -np 2 ")
    assert done.stdout.endswith(" echo 'a b'\n")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_launcher_becomes_the_hydra_that_intels_script_starts(
    tmp_path: Path, shell: str
) -> None:
    script = f"""#!/usr/bin/env {shell}
    [ "$1" = --version ] && {{ echo 'Intel(R) MPI Library'; exit 0; }}
    if true; then mpiexec.hydra "$@" <&0; rc=$?; fi
    exit $rc
    """
    for name, text in (("mpirun", script), ("mpiexec.hydra", '#!/bin/sh\necho $$ "$1"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    job = Job()
    job.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    launcher = job.start("--mpi", "-np", "2", "true")
    assert launcher.communicate(timeout=60)[0] == f"{launcher.pid} -l\n"


def test_a_missing_mpirun_is_an_error(tmp_path: Path) -> None:
    done = Job().run("--mpi", "-np", "2", "true", PATH=str(tmp_path))
    assert done.returncode == 127
    assert "there is no mpirun on the PATH" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_directory_that_cannot_be_made_is_refused(mpirun: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = f"{mpirun.parent}:{os.environ['PATH']}"
    flags = ("--mpi", "-np", "2", "--output-filename", str(tmp_path / "file" / "x"))
    done = Job().run(*flags, "true", PATH=path)
    assert done.returncode == 2
    assert "cannot create the output directory" in done.stderr
    assert "Traceback" not in done.stderr
