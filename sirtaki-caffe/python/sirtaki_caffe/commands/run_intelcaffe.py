"""The program `run_intelcaffe.sh`: a job of `caffe` over hosts, with the flags of Intel's script.

It changes nothing on the hosts: it kills no processes and removes no files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sirtaki_caffe.commands.log import ends_quietly

_WITHOUT_EFFECT = "accepted without effect"
_CPU_MODELS = {79: "bdw", 86: "bdw", 71: "bdw", 87: "knl", 133: "knm"}
_FAILED_CHECK = 255


class UsageError(Exception):
    """An invalid option."""


def _option(default: Any, about: str, *words: str) -> Any:
    return field(default=default, metadata={"about": about, "words": words})


@dataclass
class Job:
    """The values of the command line."""

    hostfile: str = _option("", "the hosts, one a line; each counts once")
    solver: str = _option("", "the solver's text file; mode train needs it")
    weights: str = _option("", "files of weights to start from")
    snapshot: str = _option("", "the state to resume from")
    num_omp_threads: int = _option(0, "threads of a process; 0: the cores divided by ppn")
    network: str = _option("opa", "opa, or tcp with --netmask", "opa", "tcp")
    netmask: str = _option("", "the network interface, for tcp")
    debug: str = _option("off", "say what is started where", "on", "off")
    mode: str = _option("train", "what caffe does", "train", "time", "inf_time", "none")
    benchmark: str = _option("none", "see `sirtaki bench`", "all", "qperf", "mpi", "none")
    iteration: int = _option(0, "how many batches the time modes run")
    model_file: str = _option("", "the net's text file, for the time modes")
    num_mlsl_servers: int = _option(-1, _WITHOUT_EFFECT)
    internal_thread_pin: str = _option("on", _WITHOUT_EFFECT, "on", "off")
    output: str = _option("", "folder of results; default: result-<date>")
    mpibench_bin: str = _option("IMB-MPI1", _WITHOUT_EFFECT)
    mpibench_param: str = _option("allreduce", _WITHOUT_EFFECT)
    caffe_bin: str = _option("", "the program; default: the one installed with this")
    cpu: str = _option("", "bdw, knl, skx or knm; default: found out")
    msg_priority: str = _option("off", _WITHOUT_EFFECT, "on", "off")
    msg_priority_threshold: int = _option(10000, _WITHOUT_EFFECT)
    mpi_iallreduce_algo: str = _option("", _WITHOUT_EFFECT)
    ppn: int = _option(1, "processes on each host")
    engine: str = _option("", "the engine whose meaning layers have")


@ends_quietly
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `run_intelcaffe.sh …`; return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if len(words) < 2 or "--help" in words:
        print(_usage())
        return 0
    try:
        job = _parse(words)
        hosts = _hosts(job.hostfile)
    except UsageError as error:
        print(f"run_intelcaffe.sh: error: {error}\n{_usage()}", file=sys.stderr)
        return 1
    missing = _missing_database(job)
    if missing:
        print(f"run_intelcaffe.sh: error: {missing}", file=sys.stderr)
        return _FAILED_CHECK
    if job.benchmark != "none":
        print(f"--benchmark {job.benchmark}: not run; `sirtaki bench` measures collectives")
    if job.mode == "none":
        return 0
    return _launch(job, hosts)


def _usage() -> str:
    lines = ["usage: run_intelcaffe.sh [--hostfile FILE] --solver FILE [options]", ""]
    for each in fields(Job):
        words = "/".join(each.metadata["words"])
        shown = f" [{each.default}]" if each.default != "" else ""
        lines.append(f"  --{each.name} {words or '…'}{shown}: {each.metadata['about']}")
    return "\n".join(lines)


def _parse(words: Sequence[str]) -> Job:
    """Parse the options: each is followed by its value."""
    job = Job()
    known = {f"--{each.name}": each for each in fields(Job)}
    rest = iter(words)
    for word in rest:
        if word not in known:
            raise UsageError(f"unknown option {word}")
        value = next(rest, None)
        if value is None:
            raise UsageError(f"{word} needs a value")
        option = known[word]
        choices = option.metadata["words"]
        if choices and value not in choices:
            raise UsageError(f"{word} {value}: must be one of {', '.join(choices)}")
        try:
            setattr(job, option.name, int(value) if isinstance(option.default, int) else value)
        except ValueError:
            raise UsageError(f"{word} {value}: is not a number") from None
    _check(job)
    return job


def _check(job: Job) -> None:
    if job.mode == "train" and not job.solver:
        raise UsageError("--mode train needs --solver")
    if job.mode in ("time", "inf_time") and not job.model_file:
        raise UsageError(f"--mode {job.mode} needs --model_file")
    for name in ("solver", "snapshot", "model_file"):
        file = getattr(job, name)
        if file and not Path(file).is_file():
            raise UsageError(f"--{name} {file}: there is no such file")
    if job.network == "tcp" and not job.netmask:
        raise UsageError("--network tcp needs --netmask, the network interface")
    if job.ppn < 1 or job.num_omp_threads < 0:
        raise UsageError("--ppn must be at least 1, and --num_omp_threads not below 0")


def _hosts(hostfile: str) -> list[str]:
    """Return the hosts, each once and in the order of their numbers; none without a file."""
    if not hostfile:
        return []
    try:
        lines = Path(hostfile).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--hostfile {hostfile}: cannot be read: {error}") from None
    names = {line.split()[0] for line in lines if line.strip() and line.strip()[0] != "#"}
    if not names:
        raise UsageError(f"--hostfile {hostfile}: names no host")
    return sorted(names, key=_by_version)


def _by_version(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts node9 before node10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _missing_database(job: Job) -> str:
    """Return what is wrong with the databases of the solver's net, or ""."""
    if job.mode != "train":
        return ""
    net = re.search(
        r'^\s*net\s*:\s*["\'](.*?)["\']', Path(job.solver).read_text(errors="replace"), re.MULTILINE
    )
    if net is None:
        return ""
    path = Path(net.group(1))
    if not path.is_file():
        return f"{job.solver} names the net {path}, which is not there; start from another folder?"
    text = re.sub(r"#.*", "", path.read_text(errors="replace"))
    if not re.search(r"\bbackend\s*:\s*LMDB", text):
        return ""
    for source in re.findall(r'\bsource\s*:\s*["\'](.*?)["\']', text):
        if not Path(source).is_dir():
            return (
                f"{path} names the database {source}, which is no folder; make it, with "
                "`caffe convert_imageset` for instance, or change `source`"
            )
    return ""


def _launch(job: Job, hosts: list[str]) -> int:
    """Start the job; show its output, and keep it in the results folder."""
    results = Path(job.output or f"result-{time.strftime('%Y%m%d%H%M%S')}")
    results.mkdir(parents=True, exist_ok=True)
    kind = f"{job.cpu or _cpu()}-{max(len(hosts), 1)}"
    variables = _variables(job, hosts)
    command = _caffe(job)
    if job.ppn > 1 or len(hosts) > 1 or not _includes_this_host(hosts):
        nodes = results / f"nodeconfig-{kind}.txt"
        names = hosts or ["localhost"]
        nodes.write_text("".join(f"{name} slots={job.ppn}\n" for name in names))
        command = [*_runner(job, len(names) * job.ppn, nodes, variables), *command]
    print(f"Run: {shlex.join(command)}", flush=True)
    return _run(command, variables, results / f"outputCluster-{kind}.txt")


def _caffe(job: Job) -> list[str]:
    """Return the command of every process."""
    beside = Path(sys.executable).with_name("caffe")
    program = str(beside) if beside.exists() else shutil.which("caffe") or "caffe"
    if job.caffe_bin and shutil.which(job.caffe_bin) is None:
        print(f"--caffe_bin {job.caffe_bin}: there is no such program; {program} runs instead")
    command = [(job.caffe_bin and shutil.which(job.caffe_bin)) or program]
    if job.mode == "train":
        command += ["train", "--solver", job.solver]
        command += ["--weights", job.weights] if job.weights else []
        command += [f"--snapshot={job.snapshot}"] if job.snapshot else []
    else:
        command += ["time", "--model", job.model_file]
        command += [f"--iterations={job.iteration}"] if job.iteration else []
        command += ["--forward_only", "--phase", "TEST"] if job.mode == "inf_time" else []
    return [*command, *([f"--engine={job.engine}"] if job.engine else [])]


def _runner(job: Job, count: int, nodes: Path, variables: dict[str, str]) -> list[str]:
    command = [sys.executable, "-m", "sirtaki.launch.cli", "run", "-np", str(count)]
    command += ["--hostfile", str(nodes)]
    command += ["--network-interface", job.netmask] if job.network == "tcp" else []
    command += ["--verbose"] if job.debug == "on" else []
    for name in variables:
        command += ["-x", name]
    return command


def _includes_this_host(hosts: list[str]) -> bool:
    here = {"localhost", "127.0.0.1", socket.gethostname().split(".")[0]}
    return not hosts or any(host in here or host.split(".")[0] in here for host in hosts)


def _variables(job: Job, hosts: list[str]) -> dict[str, str]:
    """Return the environment variables of the processes."""
    variables = {"GLOG_minloglevel": "0"}
    threads = job.num_omp_threads
    if _includes_this_host(hosts):
        most = max(1, len(os.sched_getaffinity(0)) // job.ppn)
        if threads > most:
            print(f"--num_omp_threads {threads}: this host has {most} cores for a process")
        threads = min(threads or most, most)
    # Elsewhere each process determines the number of cores itself.
    return variables | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def _cpu() -> str:
    """Return Intel's short name of this processor."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model\s*:\s*(\d+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return _CPU_MODELS.get(int(found.group(1)), "skx")
    return "skx"


def _run(command: list[str], variables: dict[str, str], output: Path) -> int:
    """Run to the end; forward signals once."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    assert process.stdout is not None
    with output.open("wb") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            with contextlib.suppress(OSError):
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
    code = process.wait()
    return code if code >= 0 else 128 - code
