"""The ranks that run PyTorch's own suite: started once, used for many tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.distributed.jobs import free_port

WORKER = Path(__file__).with_name("suite_worker.py")


@dataclass
class Outcome:
    """What became of a test: of all ranks, the worst."""

    outcome: str
    text: str


class Pool:
    """As many ranks as `size`; those that a failed test leaves in disorder are replaced."""

    def __init__(self, backend: str, size: int, log: Path) -> None:
        self._backend = backend
        self._size = size
        self._log = log
        self._ranks: list[subprocess.Popen[str]] = []

    def run(self, test: str, folder: Path, limit: float) -> Outcome:
        """Run a test with all ranks; `folder` is its own."""
        (folder / "barrier").mkdir(parents=True)
        (folder / "test_dir").mkdir()
        (folder / "init_dir").mkdir()
        if not self._ranks:
            self._start()
            self._await_imports()
        asked = {"test": test, "folder": str(folder), "port": free_port()}
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(json.dumps(asked) + "\n")
            rank.stdin.flush()
        deadline = time.monotonic() + limit
        answers = [self._answer(rank, deadline) for rank in self._ranks]
        order = ("failed", "skipped", "passed")
        worst = min(answers, key=lambda answer: order.index(answer.outcome))
        if worst.outcome == "failed":
            self.close()
        return worst

    def _start(self) -> None:
        with self._log.open("a") as log:
            for rank in range(self._size):
                env = {
                    **os.environ,
                    "BACKEND": self._backend,
                    "WORLD_SIZE": str(self._size),
                    "RANK": str(rank),
                    "MASTER_ADDR": "127.0.0.1",
                    "OMP_NUM_THREADS": "1",
                    "TEMP_DIR": str(self._log.parent),
                    "PYTHONWARNINGS": "ignore",
                }
                self._ranks.append(
                    subprocess.Popen(
                        [sys.executable, str(WORKER)],
                        env=env,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )

    def _await_imports(self) -> None:
        """What a rank imports takes a busy machine longer than a test may last."""
        for rank in self._ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "ready\n", f"a rank did not start; see {self._log}"

    @staticmethod
    def _answer(rank: subprocess.Popen[str], deadline: float) -> Outcome:
        assert rank.stdout is not None
        left = max(0.0, deadline - time.monotonic())
        if not select.select([rank.stdout], [], [], left)[0]:
            return Outcome("failed", "a rank did not end in time")
        line = rank.stdout.readline()
        if not line:
            return Outcome("failed", f"a rank ended with status {rank.wait()}")
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """End the ranks."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.communicate()
        self._ranks.clear()
