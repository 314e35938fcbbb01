"""Hangs of an accelerator, and reports on terminals of any width."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests import needs
from tests.faults.test_hangs import PROGRAM, Hanging
from tests.single.launching import GRACE, HOROVODRUN, Job, python

WARN = ("--stall-check-warning-time-seconds", "1", *GRACE)
ROOT = Path(__file__).resolve().parents[2]

# What rank 1 puts on its accelerator never ends, and its peers wait for it on theirs.
NEVER_COMPLETES = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
import torch
import sirtaki.torch as hvd
from sirtaki.torch.device import layer
from tests.parallel.device.fake_device import FakeDevice

class NeverCompletes(FakeDevice):
    def launch(self, work):
        if os.environ["HOROVOD_RANK"] == "1":
            time.sleep(60)
        super().launch(work)

hvd.init()
layer.devices["cpu"] = NeverCompletes(f"fake {{hvd.rank()}}", eager=True)
hvd.allreduce(torch.ones(3), name="grad")
"""


@needs.installed("torch")
def test_an_accelerator_that_never_completes_is_named(job: Job) -> None:
    process = job.start(*WARN, "-np", "2", *python(NEVER_COMPLETES))
    try:
        ranks = Hanging(process)
        ranks.until("more: ")
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert "stalled: no operation has ended for" in ranks.text
    assert "and no rank is missing" in ranks.text
    assert (
        "allreduce 'grad' has waited for 1 s; called by ranks 0-1; handed to the accelerator, "
        "which has not completed it"
    ) in ranks.text
    assert "likely cause: the accelerators have allreduce 'grad' and do not complete it" in (
        ranks.text
    )


def test_a_terminal_of_forty_columns_gets_the_whole_report(job: Job) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
    command = [*HOROVODRUN, *WARN, "-np", "2", sys.executable, "-c", PROGRAM, "in_a_deadlock"]
    environment = {name: value for name, value in job.environment.items() if name != "TERM"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while b"more: sirtaki hang" not in shown:
            shown += os.read(ours, 1 << 16)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        os.close(ours)
    text = shown.decode().replace("\r\n", "\n")
    assert "rank 1 held up rank 0\n  allreduce 'metric' has waited for 1 s; called by" in text
    assert "likely cause: rank 1 waits for a lock or another thread of its own at <string>:" in text
