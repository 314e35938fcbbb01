"""Jobs of several processes that tests of `torch.distributed` start."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "distributed"
LIMIT = 300

# Forks ranks that run a program, again and again: each line that it reads asks for a job.
_SERVER = """
import json, os, sys, torch.distributed, sirtaki.torch.distributed
for line in sys.stdin:
    asked, ranks = json.loads(line), []
    for rank, arguments in enumerate(asked["arguments"]):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            for number, name in enumerate((os.devnull, f"{rank}.stdout", f"{rank}.stderr")):
                path = os.path.join(asked["folder"], name)
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
            os.environ.update(asked["environment"], RANK=str(rank))
            sys.argv = ["-c", *arguments]
            exec(compile(asked["program"], "<program>", "exec"), {"__name__": "__main__"})
            sys.exit()
    print(json.dumps([os.waitpid(rank, 0)[1] for rank in ranks]), flush=True)
"""


@dataclass
class Ended:
    """A job that has ended. stdouts: what each rank has printed."""

    statuses: list[int]
    stdouts: list[str]
    stderr: str

    @property
    def stdout(self) -> str:
        """What all ranks have printed."""
        return "".join(self.stdouts)


class Forks:
    """A process that has imported PyTorch, once, and from which ranks are forked."""

    def __init__(self, **environment: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            cwd=EXAMPLES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, program: str, size: int = 2) -> Ended:
        """Run a program in as many ranks, and wait for all, whatever becomes of one."""
        return self.run_with(program, *[()] * size)

    def run_with(self, program: str, *arguments: Sequence[str]) -> Ended:
        """Run a program in a rank for each of these, its `sys.argv[1:]`."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with tempfile.TemporaryDirectory() as folder:
            asked = {
                "program": program,
                "arguments": arguments,
                "environment": {**place, "WORLD_SIZE": str(len(arguments))},
                "folder": folder,
            }
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            ended = select.select([self._server.stdout], [], [], LIMIT)[0]
            texts = [
                [Path(folder, f"{rank}.{name}").read_text() for rank in range(len(arguments))]
                for name in ("stdout", "stderr")
            ]
            assert ended, f"the ranks do not end: {texts}"
        return Ended(json.loads(self._server.stdout.readline()), texts[0], "".join(texts[1]))

    def close(self) -> None:
        """End the process and what it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of the examples, to its end."""
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def torchrun(processes: int, *script: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command that runs a script in several processes."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"),
        *options,
        *script,
    ]
