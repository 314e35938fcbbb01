"""Trains nothing but a sum, in an elastic job, and comes to harm where FAULTS says so.

FAULTS: words such as kill:1@20, which means that process 1 kills itself at step 20; "mark" only
says that the step has come. Training ends
after STEPS steps in a world of UNTIL ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object

PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
PROCESS = int(os.environ["SIRTAKI_PROCESS"])
STEPS = int(os.environ.get("STEPS", "40"))
ORPHAN = Path(os.environ.get("ORPHAN", "/nonexistent"))
UNTIL = int(os.environ.get("UNTIL", "0"))


def come_to_harm(step: int) -> None:
    for word in os.environ.get("FAULTS", "").split():
        kind, _, where = word.partition(":")
        who, _, when = where.partition("@")
        if who not in (str(PROCESS), "all") or int(when) != step:
            continue
        print("step", step, flush=True)
        if kind == "orphan":
            ORPHAN.write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        if kind in ("kill", "orphan"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "raise":
            raise ArithmeticError(f"step {step} of somebody's program")
        elif kind == "exit":
            sys.exit(0)
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "note":
            elastic.note_checkpoint("/there", step)
        elif kind == "signal":
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        elif kind == "compute":
            # It keeps the GIL, as a compiler may.
            ctypes.PyDLL(None).sleep(3)
        elif kind == "debug":
            hold_as_a_debugger(3.0)


def hold_as_a_debugger(seconds: float) -> None:
    """Have a child hold all threads of this process, then let them go."""
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
        return
    ptrace = ctypes.CDLL(None).ptrace
    threads = [int(entry.name) for entry in Path(f"/proc/{os.getppid()}/task").iterdir()]
    for thread in threads:
        ptrace(PTRACE_ATTACH, thread, None, None)
        os.waitpid(thread, WALL)
    time.sleep(seconds)
    for thread in threads:
        ptrace(PTRACE_DETACH, thread, None, None)
    os._exit(0)


def write_checkpoint(path: Path) -> None:
    """What all ranks have agreed on; it takes all of them to know it."""
    same = hvd.allreduce(state.total, op=hvd.Average, name="checkpoint")
    if hvd.rank() == 0:
        path.write_text(f"{state.step} {int(same[0])}")
    elastic.note_checkpoint(str(path), state.step)
    print("left at", state.step, flush=True)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    steps = 0
    while state.step < STEPS or hvd.size() < UNTIL:
        come_to_harm(state.step)
        one = hvd.allreduce(np.ones(1000), op=hvd.Average, name="gradient")
        state.total += one
        state.step += 1
        if state.sizes[-1:] != [hvd.size()]:
            state.sizes = [*state.sizes, hvd.size()]
        state.commit()
        steps += 1
        if steps == 1:
            print("trains", flush=True)
        time.sleep(0.01)


if "DIES_IN_INIT" in os.environ.get("FAULTS", "") and PROCESS == 1:
    from sirtaki.core.world import lifecycle

    lifecycle.meeting_of_start = lambda _: os.kill(os.getpid(), signal.SIGKILL)
hvd.init()
print("first world", flush=True)
first = (hvd.rank(), os.getpid())
state = elastic.ObjectState(broadcast_object, hvd.rank, step=0, total=np.zeros(1000), sizes=[])
if "CHECKPOINT" in os.environ:
    checkpoint = Path(os.environ["CHECKPOINT"])
    state.register_leave_callbacks([lambda: write_checkpoint(checkpoint)])
    if checkpoint.exists():
        state.step, total = (int(word) for word in checkpoint.read_text().split())
        state.total += total
        print("resumed at", state.step, flush=True)
state.register_reset_callbacks([lambda: print("reset", hvd.rank(), hvd.size(), flush=True)])
train(state)
assert first[1] == os.getpid()
exact = bool((state.total == state.step).all())
print("end", PROCESS, "exact" if exact else state.total, *state.sizes, flush=True)
if ORPHAN.exists():
    print("the orphan is", "alive" if Path("/proc", ORPHAN.read_text()).exists() else "gone")
