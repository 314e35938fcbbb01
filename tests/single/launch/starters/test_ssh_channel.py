"""The channel to an agent, whatever ssh and its proxy command do."""

from __future__ import annotations

import os
import resource
import time

from sirtaki.launch.starters.ssh_channel import SshChannel
from tests import needs


def channel(script: str) -> SshChannel:
    return SshChannel(["sh", "-c", script], lambda *_: "", 30)


def test_a_proxy_command_that_outlives_ssh_holds_nobody_up() -> None:
    opened = channel("sleep 60 & exec sleep 60")
    with opened.open("n1"):
        time.sleep(0.3)
        began = time.monotonic()
        opened.close(patiently=False)
    assert time.monotonic() - began < 20


@needs.open_files(1200)
def test_what_ssh_says_is_heard_with_more_open_files_than_select_knows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1200, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        opened = channel("echo oops >&2; exit 3")
        with opened.open("n1"):
            assert opened.wait() == 3
            assert opened.errors is not None
            assert os.read(opened.errors, 100) == b"oops\n"
            opened.close(patiently=True)
    finally:
        for each in files:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
