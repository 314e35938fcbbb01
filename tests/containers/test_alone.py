"""One container: users, folders and limits as clusters set them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.containers.servers import in_container

SUM = (
    "import torch, horovod.torch as hvd; hvd.init(); "
    "print('sum', int(hvd.allreduce(torch.ones(3), op=hvd.Sum, name='x')[0]), flush=True)"
)
RUN = ("horovodrun", "-np", "2", "python", "-c", SUM)
# Rank 1 takes memory until the kernel kills it.
TAKES = """
import horovod.torch as hvd
hvd.init()
taken = []
while hvd.rank() == 1:
    taken.append(bytearray(b"x" * (16 << 20)))
hvd.barrier()
"""


@pytest.mark.parametrize(
    ("flags", "command"),
    [
        ((), RUN),
        (("--user=1000:1000",), RUN),
        ((), ("env", "-u", "HOME", *RUN)),
        (("--read-only",), RUN),
        (("--read-only", "--user=1000:1000"), RUN),
        (("--cap-drop=all", "--security-opt=no-new-privileges"), RUN),
    ],
    ids=["root", "user", "no HOME", "read-only", "read-only, user", "no capabilities"],
)
def test_two_ranks_sum_up(flags: Sequence[str], command: Sequence[str], tmp_path: Path) -> None:
    done = in_container(*command, folder=tmp_path, flags=flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 2") == 2, done.stdout + done.stderr


def test_a_container_without_a_command_says_what_it_lacks_to_serve_ssh(tmp_path: Path) -> None:
    done = in_container(folder=tmp_path, flags=("--user=1000:1000",))
    assert done.returncode == 1
    assert "sshd needs root" in done.stderr


def test_a_rank_that_the_memory_limit_kills_is_named(tmp_path: Path) -> None:
    command = ("horovodrun", "-np", "2", "python", "-c", TAKES)
    done = in_container(*command, folder=tmp_path, flags=("--memory=1200m",))
    assert done.returncode != 0
    assert "rank 1" in done.stderr, done.stderr
    assert "memory ran out in" in done.stderr, done.stderr
