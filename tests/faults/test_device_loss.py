"""Ranks that are lost or end the world while operations of accelerators are under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs
from tests.faults.test_rank_loss import reports
from tests.single.launching import Job

needs.package("torch")
pytestmark = pytest.mark.timeout(180)

START = """
import threading, torch
import sirtaki.torch as hvd
from sirtaki.core.world import state
from sirtaki.torch.device import routes
from tests.parallel.device.fake_device import FakeDevice
torch.set_num_threads(1)
hvd.init()
device = routes.devices["cpu"] = FakeDevice(f"fake {hvd.rank()}", eager=True)
hvd.allreduce(torch.ones(1), name="first")  # the group is made
"""


def test_a_rank_killed_while_the_group_works_is_an_error_on_the_others(
    job: Job, tmp_path: Path
) -> None:
    code = """
if hvd.rank() == 1:
    threading.Thread(target=die, args=(0.3,)).start()
try:
    while True:
        hvd.allreduce(torch.ones(1 << 20), name="grad")
except hvd.HorovodInternalError as error:
    report(error)
hvd.shutdown()
"""
    found = reports(job, tmp_path, 2, START + code)
    assert list(found) == [0]
    assert "rank 1" in found[0] or "could not be launched" in found[0]


def test_an_abort_ends_what_the_group_waits_for(job: Job, tmp_path: Path) -> None:
    """Rank 0's launch waits for a rank that has agreed to take part but never does."""
    code = """
if hvd.rank() == 1:
    device.launch = lambda work: time.sleep(60)
    hvd.allreduce_async(torch.ones(1 << 20), name="grad")
    time.sleep(2)
    state.current_world().engine.abort("rank 1 has had enough")
    die(1)
try:
    hvd.allreduce(torch.ones(1 << 20), name="grad")
except hvd.HorovodInternalError as error:
    report(error)
hvd.shutdown()
"""
    found = reports(job, tmp_path, 2, START + code)
    assert list(found) == [0]
    assert "rank 1" in found[0]
