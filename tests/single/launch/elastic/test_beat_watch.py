"""A process of an elastic job that has no guardian is killed when it is stopped for long."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.single.launching import LIMIT

pytestmark = pytest.mark.job


def test_a_process_that_is_stopped_for_long_is_killed_and_told_of() -> None:
    code = (
        "import os, signal; from sirtaki.launch.elastic import beat_watch; "
        "beat_watch.start(0.5); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert "was stopped, or its engine silent, for 0.5 s, and is killed" in ended.stderr
