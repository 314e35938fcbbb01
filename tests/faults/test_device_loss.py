"""Ranks that are lost or end the world while operations of accelerators are under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs
from tests.faults.test_rank_loss import reports
from tests.single.launching import Job

pytestmark = needs.installed("torch")

START = """
import threading, torch
import sirtaki.torch as hvd
from sirtaki.core.world import state
from sirtaki.torch.device import layer
from tests.parallel.device.fake_device import FakeDevice
torch.set_num_threads(1)

def start():
    hvd.init()
    device = layer.devices["cpu"] = FakeDevice(f"fake {hvd.rank()}", eager=True)
    hvd.allreduce(torch.ones(1), name="first")  # the group is made
    return device

device = start()
"""


@pytest.mark.slow
def test_the_loss_of_a_rank_or_an_abort_ends_what_the_group_waits_for(
    job: Job, tmp_path: Path
) -> None:
    """At first rank 0's launch waits for a rank that has agreed to take part but never does."""
    code = """
def lost(name):
    try:
        while True:
            hvd.allreduce(torch.ones(1 << 20), name=name)
    except hvd.HorovodInternalError as error:
        return f"{name}: {error}"

if hvd.rank() == 1:
    launch, device.launch = device.launch, lambda work: time.sleep(8)
    hvd.allreduce_async(torch.ones(1 << 20), name="aborted")
    time.sleep(2)
    state.current_world().engine.abort("rank 1 has had enough")
    time.sleep(1)
    aborted = ""
else:
    aborted = lost("aborted")
hvd.shutdown()
device = start()
if hvd.rank() == 1:
    threading.Thread(target=die, args=(0.3,)).start()
killed = lost("killed")
report(RuntimeError(aborted + "; " + killed))
hvd.shutdown()
"""
    found = reports(job, tmp_path, 2, START + code)
    assert list(found) == [0]
    aborted, _, killed = found[0].partition("; ")
    assert "aborted: " in aborted
    assert "rank 1" in aborted
    assert "rank 1" in killed
