"""The line on a terminal that says how far training is."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from caffe_tests import places


@pytest.mark.slow
def test_on_a_terminal_a_line_below_the_log_says_how_far_training_is(tmp_path: Path) -> None:
    places.make_data(tmp_path)
    more = "max_iter: 400\ndisplay: 200\ntest_interval: 9999\ntest_initialization: false"
    places.write_net(tmp_path, "lenet", places.LENET, 6, more)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*places.CAFFE, "train", "--solver=lenet_solver.prototxt", f"--log_dir={tmp_path}"],
        cwd=tmp_path,
        stderr=theirs,
        env=places.environment(),
    ) as process:
        os.close(theirs)
        seen = b""
        deadline = time.monotonic() + places.LIMIT
        while time.monotonic() < deadline:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        process.wait()
    os.close(ours)
    text = seen.decode()
    assert "/400 (" in text
    assert "\r\x1b[KI" in text  # a line of the log takes its place
    assert "/400 (" not in (tmp_path / "caffe.INFO").read_text()
