"""`RayExecutor` in a program outside of the cluster, by Ray Client."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.distributed.jobs import free_port

needs.package("ray")
pytestmark = pytest.mark.nightly
_START_SECONDS = 90.0
# The head of the cluster refuses clients without its token.
_ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
_DRIVER = """\
import sys
import ray
from horovod.ray import RayExecutor

def summed(base):
    import numpy as np
    import horovod.torch as hvd
    import torch
    hvd.init()
    if base < 0 and hvd.rank() == 1:
        raise ValueError("planted")
    return hvd.rank(), float(hvd.allreduce(torch.full((1,), float(base + hvd.rank())), op=hvd.Sum))

ray.init(sys.argv[1])
executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
executor.start()
try:
    print(executor.run(summed, [int(sys.argv[2])]))
finally:
    executor.shutdown()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A head of Ray that other programs reach; returns its address for them."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
    command += ["--port", str(free_port()), "--ray-client-server-port", str(port)]
    command += ["--num-cpus", "4", "--include-dashboard=false", "--disable-usage-stats"]
    output = tmp_path_factory.mktemp("head") / "output"
    with (
        output.open("w") as file,
        subprocess.Popen(
            command, stdout=file, stderr=file, start_new_session=True, env=_ENVIRONMENT
        ) as head,
    ):
        try:
            _await_listener(port, head, output)
            yield f"ray://127.0.0.1:{port}"
        finally:
            head.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)


def _await_listener(port: int, head: subprocess.Popen[bytes], output: Path) -> None:
    limit = time.monotonic() + _START_SECONDS
    while True:
        assert head.poll() is None, output.read_text()
        assert time.monotonic() < limit, output.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)


def drive(server: str, base: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _DRIVER, server, str(base)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=150, env=_ENVIRONMENT, check=False
    )


def test_a_program_outside_gets_what_the_ranks_return(server: str) -> None:
    done = drive(server, 10)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[(0, 21.0), (1, 21.0)]"


def test_a_program_outside_gets_the_error_of_a_rank(server: str) -> None:
    done = drive(server, -1)
    assert done.returncode == 1
    assert "ValueError: planted" in done.stderr
