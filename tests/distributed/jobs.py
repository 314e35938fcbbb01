"""Jobs of several processes that tests of `torch.distributed` start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "distributed"
LIMIT = 120

# Runs its first argument in as many ranks as the second says, and waits for all, whatever becomes
# of one. PyTorch is imported once, before the ranks are forked: no thread of it runs by then.
_SPAWN = """
import os, socket, sys, torch.distributed
with socket.socket() as s:
    s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
program, size = sys.argv[1], (sys.argv[2:] or ["2"])[0]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=size)
sys.argv = ["-c"]
ranks = []
for rank in range(int(size)):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.environ["RANK"] = str(rank)
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        sys.exit()
for rank in ranks:
    os.waitpid(rank, 0)
"""
SPAWN = (sys.executable, "-c", _SPAWN)


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
