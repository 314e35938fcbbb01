"""One elastic job on the virtual hosts, and what must be true of it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.chaos.samples import SAMPLES, Totals
from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import GRACE, RUN

ROOT = Path(__file__).resolve().parents[2]
TRAIN = str(ROOT / "tests/chaos/train.py")
PARTS = str(ROOT / "tests/chaos/parts.py")
SLOTS = (3, 3, 2)
# No time is asserted: after so long without an epoch, or an end, a job hangs.
HANGS_SECONDS = 60.0
_SAID = re.compile(r"^\[\d+\]<stdout>:(epoch|end) (\d+) (\d+) (\d+) (\d+) (\w+) (\w+) (\d+)$")
_FLAGS = ("--min-np", "1", "--blacklist-cooldown-range", "1", "2", *GRACE)


class Failure(AssertionError):
    """A job has not done what it must."""


def hosts_of_own_memory(count: int, folder: Path) -> Bed:
    """Return a bed each of whose hosts has a /dev/shm, so that what is left there is a job's."""
    bed = Bed(count, folder)
    for host in bed.hosts:
        mounted = host.run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        assert mounted.returncode == 0, mounted.stderr
    return bed


class Job:
    """A job that runs until `stop`. folder: its own, empty. flags: more of the launcher.

    size: where it is not all slots. program: `TRAIN` or `PARTS`. variables: more of the processes.
    """

    def __init__(
        self,
        bed: Bed,
        folder: Path,
        *flags: str,
        slots: tuple[int, ...] = SLOTS,
        size: int | None = None,
        program: str = TRAIN,
        variables: Mapping[str, str] = types.MappingProxyType({}),
    ) -> None:
        self._bed = bed
        self.folder = folder
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)
        hosts = ",".join(f"{h.address}:{n}" for h, n in zip(bed.hosts, slots, strict=True))
        variables = {
            **variables,
            "PYTHONPATH": str(ROOT),
            "CHAOS_FOLDER": str(folder),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        self._variables = variables
        passed_on = [word for name in variables for word in ("-x", name)]
        command = [*RUN, "-np", str(size or sum(slots)), "-H", hosts, "-p", str(SSH_PORT)]
        command += [*_FLAGS, *flags, *passed_on, sys.executable, program]
        environment = {**os.environ, **variables, "TMPDIR": str(self._temporary)}
        self._stack = contextlib.ExitStack()
        self._process = self._stack.enter_context(bed.hosts[0].running(*command, env=environment))
        self.lines: list[str] = []
        self.times: list[float] = []
        self._faults: list[str] = []
        self._heard = time.monotonic()
        self.epochs = 0
        self._digests: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
        self._ends: set[str] = set()
        # What each epoch must end with; `PARTS` is compared with a job of one process at the end.
        self._expected = Totals().digest if program == TRAIN else None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with (self.folder / "log").open("w") as log:
            for line in self._process.stdout:
                now = time.time()
                log.write(f"{now:.3f} {line}")
                log.flush()
                self.times.append(now)
                self.lines.append(line)
                if said := _SAID.match(line):
                    self._take(*said.groups())

    def _take(self, kind: str, *values: str) -> None:
        epoch, cursor, least, most, exact, own, world = values
        self._heard = time.monotonic()
        self.epochs = max(self.epochs, int(epoch))
        seen = (int(epoch), int(epoch) + (0 < int(cursor) < SAMPLES))
        if (int(least), int(most)) != seen:
            self._faults.append(
                f"samples used {least} to {most} times in epoch {epoch} at {cursor}"
            )
        if self._expected is not None and exact != self._expected(int(epoch), int(cursor)):
            self._faults.append(f"other parameters than without faults in epoch {epoch}")
        # Equal bits of all that were in this epoch together.
        same = self._digests[kind, epoch, cursor, world]
        same.add(own)
        if len(same) > 1:
            self._faults.append(f"ranks of world {world} differ in epoch {epoch}: {same}")
        if kind == "end":
            self._ends.add(f"epoch {epoch} sample {cursor} {own}")

    # ---- Called by who watches it ----

    def require_life(self) -> None:
        """Fail when something was wrong, when the job has ended, or when it hangs."""
        if self._faults:
            raise Failure("; ".join(self._faults[:3]))
        if self._process.poll() is not None:
            raise Failure(f"the job ended with code {self._process.returncode}")
        if time.monotonic() - self._heard > HANGS_SECONDS:
            raise Failure(f"no epoch ended for {HANGS_SECONDS:g} s")

    def await_epoch(self, epoch: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Return when an epoch has been reached."""
        while self.epochs < epoch:
            meanwhile()
            self.require_life()
            time.sleep(0.05)

    def stop(self) -> None:
        """Let training end, and check all that must be true then."""
        self.await_epoch(self.epochs + 1)
        (self.folder / "stop").touch()
        self._heard = time.monotonic()
        while self._process.poll() is None:
            if time.monotonic() - self._heard > HANGS_SECONDS:
                raise Failure(f"the job did not end within {HANGS_SECONDS:g} s")
            time.sleep(0.05)
        self._reader.join()
        if self._process.returncode != 0:
            raise Failure(f"the job ended with code {self._process.returncode}")
        if self._faults:
            raise Failure("; ".join(self._faults[:3]))
        if len(self._ends) != 1:
            raise Failure(f"ranks ended in different states: {sorted(self._ends)}")
        if self._expected is None:
            self._compare_with_one_process()

    def _compare_with_one_process(self) -> None:
        alone = subprocess.run(
            [sys.executable, PARTS],
            env={
                **os.environ,
                **self._variables,
                "CHAOS_FOLDER": str(self.folder / "alone"),  # nobody asks it to stop
                "CHAOS_EPOCHS": str(self.epochs),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        for line in alone.stdout.splitlines():
            kind, epoch, cursor, *_, own, world = line.split()
            if seen := self._digests[kind, epoch, cursor, world] - {own}:
                raise Failure(f"one process ends epoch {epoch} with {own}, the job with {seen}")

    def close(self) -> None:
        """End it, if it runs; then check that nothing is left of it."""
        self._stack.close()
        self._bed.wait_until_idle()
        for host in self._bed.hosts:
            if left := host.run("ls", "-A", "/dev/shm").stdout.split():
                raise Failure(f"left in /dev/shm of {host.name}: {left}")
        if files := sorted(path.name for path in self._temporary.rglob("*")):
            raise Failure(f"left in TMPDIR: {files}")
