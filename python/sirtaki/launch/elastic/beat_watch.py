"""Kills the process that has started it, when that one is stopped or its engine silent for long.

For processes of elastic jobs that have no guardian. It is a module that is run with two arguments:
the descriptor of the heartbeat, see `sirtaki.core.heartbeat`, and the seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from sirtaki.launch.processes.guarding import workers


def start(seconds: float) -> str:
    """Have this process watched; return what its SIRTAKI_HEARTBEAT_FILE is to be."""
    heartbeat = os.memfd_create("sirtaki-heartbeat", os.MFD_CLOEXEC)
    os.ftruncate(heartbeat, workers.BEAT_BYTES + 1)
    command = [sys.executable, "-m", __name__, str(heartbeat), str(seconds)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(heartbeat,))
    return f"/proc/{os.getpid()}/fd/{heartbeat}"


def watch(pid: int, heartbeat: int, seconds: float) -> None:
    """Look at the parent until it ends or is to be killed."""
    worker, looked_at = workers.Worker(0, heartbeat), time.monotonic()
    while os.getppid() == pid:
        time.sleep(workers.LOOK_SECONDS)
        now = time.monotonic()
        # We may have been stopped with it, so what we have not seen does not count.
        worker.look(pid, min(now - looked_at, 2 * workers.LOOK_SECONDS))
        looked_at = now
        if worker.silent >= seconds and not workers.is_traced(pid):
            text = f"the process {pid} was stopped, or its engine silent, for {seconds:g} s"
            print(f"sirtaki: {text}, and is killed", file=sys.stderr, flush=True)
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    workers.die_with_parent()
    watch(os.getppid(), int(sys.argv[1]), float(sys.argv[2]))
