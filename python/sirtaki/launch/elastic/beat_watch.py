"""Kills its parent process when that is stopped, or its engine silent, for too long.

It watches processes of elastic jobs that have no guardian. The module is run with two arguments:
the descriptor of the heartbeat, see `sirtaki.core.heartbeat`, and the seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from sirtaki.launch.processes.guarding import workers


def start(seconds: float) -> str:
    """Start the watch over this process; return the value for its SIRTAKI_HEARTBEAT_FILE."""
    heartbeat = os.memfd_create("sirtaki-heartbeat", os.MFD_CLOEXEC)
    os.ftruncate(heartbeat, workers.BEAT_BYTES + 1)
    command = [sys.executable, "-m", __name__, str(heartbeat), str(seconds)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(heartbeat,))
    return f"/proc/{os.getpid()}/fd/{heartbeat}"


def watch(pid: int, heartbeat: int, seconds: float) -> None:
    """Watch the parent until it ends or has to be killed."""
    worker, looked_at = workers.Worker(0, heartbeat), time.monotonic()
    while os.getppid() == pid:
        time.sleep(workers.LOOK_SECONDS)
        now = time.monotonic()
        # This process may have been stopped too, so time that it did not observe does not count.
        worker.look(pid, min(now - looked_at, 2 * workers.LOOK_SECONDS))
        looked_at = now
        if worker.silent >= seconds and not workers.is_traced(pid):
            text = f"the process {pid} was stopped, or its engine silent, for {seconds:g} s"
            with contextlib.suppress(OSError):
                print(f"sirtaki: {text}, and is killed", file=sys.stderr, flush=True)
            workers.send(os.kill, pid, signal.SIGKILL)


if __name__ == "__main__":
    workers.die_with_parent()
    watch(os.getppid(), int(sys.argv[1]), float(sys.argv[2]))
