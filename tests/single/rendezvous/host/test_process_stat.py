"""What the kernel knows of a process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.rendezvous.host.presence import Stat, stat_of

COMMAND = Path("/proc/self/comm")


@pytest.fixture
def named_like_fields() -> Iterator[None]:
    own = COMMAND.read_text()
    COMMAND.write_text("a) Z 1 (b")
    yield
    COMMAND.write_text(own)


@pytest.mark.usefixtures("named_like_fields")
def test_the_name_of_a_process_may_look_like_fields() -> None:
    found = stat_of(os.getpid())
    assert (found.state, found.parent) == ("R", os.getppid())
    assert found.cpu_seconds <= time.process_time() + 0.02
    assert found.started.isdigit()


def test_a_process_that_does_not_exist_has_no_state() -> None:
    assert stat_of((1 << 22) + 1) == Stat()
