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
# of one.
_SPAWN = """
import os, subprocess, sys, socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
size = (sys.argv[2:] or ["2"])[0]
env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=size)
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=dict(env, RANK=str(r)))
         for r in range(int(size))]
[rank.wait() for rank in ranks]
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
