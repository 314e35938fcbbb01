"""What starting, ending and watching a job take, beside torchrun and Open MPI's mpirun.

python benchmarks/start.py        (the virtual hosts need root, iproute2 and an sshd)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hosts import bed_of, launch, reason_to_skip
from output import RESULTS, write_result
from targets import Check, at_most

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_RUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
_HOROVODRUN = (sys.executable, "-c", _RUN, "-np", "2")
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python")
_ALLREDUCE = "import numpy, sirtaki; sirtaki.init(); sirtaki.allreduce(numpy.ones(4))"
_GLOO = (
    "import torch, torch.distributed as dist; dist.init_process_group('gloo'); "
    "dist.all_reduce(torch.ones(4)); dist.destroy_process_group()"
)
_MPI = "import numpy; from mpi4py import MPI; MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, numpy.ones(4))"
_SLEEP = "import sys, time; print('up', flush=True); time.sleep(100)"
_LINES = "line = 'x' * 99\nfor _ in range({lines}): print(line)"
_OUTPUT_BYTES = 100_000_000
_IDLE_SECONDS = 10.0
_MPI_FLAGS = ("--allow-run-as-root", "--oversubscribe", "-np", "2")

Table = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of start.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    tables = {
        "2 ranks, from the command to its end after an allreduce": starts(args.rounds),
        "from SIGKILL of a process to the end of the command": ends(args.rounds),
        "processor time of an idle job, of a core": {"launcher and guardian": idle()},
        f"memory of the launcher, {_OUTPUT_BYTES // 1_000_000} MB of output a rank": {
            "MiB": output_memory()
        },
    }
    if reason_to_skip() is None:
        tables["4 virtual hosts by ssh"] = on_hosts()
    checks = check(tables)
    for title, table in tables.items():
        rows = [[name, shown(title, value)] for name, value in table.items()]
        print(title, *aligned(rows), sep="\n", end="\n\n")
    print("\n".join(each.line() for each in checks))
    result = {
        "benchmark": "start",
        "command": shlex.join(["python", "benchmarks/start.py", *arguments]),
        "machine": facts,
        "cases": tables,
        "targets": [asdict(each) for each in checks],
    }
    write_result(Path(args.output) / "start.json", result)
    return 0


def shown(title: str, value: float) -> str:
    if title.startswith("memory"):
        return f"{value:.0f}"
    return f"{100 * value:.2f} %" if title.startswith("processor") else show_seconds(value)


def in_turns(contenders: dict[str, Callable[[], float]], rounds: int) -> Table:
    """Return the median of what each contender returns, called by turns."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            taken[name].append(contender())
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def starts(rounds: int) -> Table:
    python = sys.executable
    commands = {
        "python -c 'import numpy'": (python, "-c", "import numpy"),
        "horovodrun": (*_HOROVODRUN, python, "-c", _ALLREDUCE),
        "python -c 'import torch'": (python, "-c", "import torch"),
        "torchrun, Gloo": (*_TORCHRUN, python, "-c", _GLOO),
    }
    if mpirun := _beside_python("mpirun"):
        commands["mpirun, mpi4py"] = (mpirun, *_MPI_FLAGS, python, "-c", _MPI)
    return in_turns({name: _timed(command) for name, command in commands.items()}, rounds)


def _beside_python(name: str) -> str | None:
    return shutil.which(name, path=str(Path(sys.executable).parent))


def _timed(command: Sequence[str]) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=_environment())
        return time.perf_counter() - start

    return run


def _environment() -> dict[str, str]:
    kept = {**os.environ, "OMP_NUM_THREADS": "1"}
    # Without it a package whose files have changed is compiled again at every start.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def ends(rounds: int) -> Table:
    python = sys.executable
    contenders = {
        "a rank of horovodrun": lambda: _killed((*_HOROVODRUN, python, "-c", _SLEEP), _rank),
        "the guardian": lambda: _killed((*_HOROVODRUN, python, "-c", _SLEEP), _guardian),
        "a rank of torchrun": lambda: _killed((*_TORCHRUN, python, "-c", _SLEEP), _rank),
    }
    if mpirun := _beside_python("mpirun"):
        command = (mpirun, *_MPI_FLAGS, python, "-c", _SLEEP)
        contenders["a rank of mpirun"] = lambda: _killed(command, _rank)
    return in_turns(contenders, rounds)


def _killed(command: Sequence[str], victim: Callable[[int], int]) -> float:
    """Start a job, kill a process of it once all ranks are up, and wait for its end."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    ) as job:
        _await_ranks(job)
        pid = victim(job.pid)
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        job.wait()
        return time.perf_counter() - start


def _await_ranks(job: subprocess.Popen[str]) -> None:
    assert job.stdout is not None
    said = ""
    while said.count("up") < 2:  # lines of two processes may mix
        line = job.stdout.readline()
        if not line:
            raise SystemExit(f"{shlex.join(map(str, job.args))} has ended")
        said += line


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def _rank(pid: int) -> int:
    """A process of the job that has no children."""
    while children := _children(pid):
        pid = children[-1]
    return pid


def _guardian(pid: int) -> int:
    return _children(pid)[0]


def idle() -> float:
    """Return the share of a core that the launcher and its guardian take while ranks sleep."""
    command = (*_HOROVODRUN, sys.executable, "-c", _SLEEP)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        _await_ranks(job)
        pids = [job.pid, _guardian(job.pid)]
        before = sum(map(_processor_seconds, pids))
        time.sleep(_IDLE_SECONDS)
        used = sum(map(_processor_seconds, pids)) - before
        job.terminate()
    return used / _IDLE_SECONDS


def _processor_seconds(pid: int) -> float:
    """What the kernel's scheduler has counted, to nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def output_memory() -> float:
    """Return the most MiB that the launcher has held while ranks print as fast as they can."""
    code = _LINES.format(lines=_OUTPUT_BYTES // 100)
    command = (*_HOROVODRUN, sys.executable, "-c", code)
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
        while job.poll() is None:
            # Not what wait4 tells: there a process begins with its parent's.
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{job.pid}/status").read_text()
                most = max(most, int(status.split("VmHWM:")[1].split()[0]))
            time.sleep(0.01)
    if job.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} failed")
    return most / 1024


def on_hosts() -> Table:
    join = "import sirtaki; sirtaki.init(); sirtaki.barrier(); sirtaki.shutdown()"
    cases = {
        "16 ranks that join a world": (4, (sys.executable, "-c", join)),
        "64 ranks of `true`": (16, ("true",)),
    }
    with bed_of(4, None) as (bed, _):
        return in_turns(
            {
                name: lambda per_host=per_host, command=command: _elapsed(
                    lambda: launch(bed, per_host, *command)
                )
                for name, (per_host, command) in cases.items()
            },
            3,
        )


def _elapsed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def check(tables: dict[str, Any]) -> list[Check]:
    """Return the targets that these tables can tell about."""
    start, end, processor, memory, *hosts = tables.values()
    ratio = start["horovodrun"] / start["python -c 'import numpy'"]
    checks = [
        at_most("horovodrun with 2 ranks, in times of `import numpy`,", 3.0, ratio),
        at_most("seconds from SIGKILL of a rank", 0.35, end["a rank of horovodrun"]),
        at_most("seconds from SIGKILL of the guardian", 0.35, end["the guardian"]),
        at_most("percent of a core for an idle job", 0.2, 100 * processor["launcher and guardian"]),
        at_most("MiB of the launcher", 64, memory["MiB"]),
    ]
    if hosts:
        checks += [
            at_most("seconds to start and end 16 ranks", 5, hosts[0]["16 ranks that join a world"]),
            at_most("seconds for 64 trivial ranks", 10, hosts[0]["64 ranks of `true`"]),
        ]
    return checks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
