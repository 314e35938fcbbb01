"""Messages between ranks of different hosts."""

from __future__ import annotations

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import python, run

# Every rank with every other, both ways at once, small and large; then in a line.
CROSSING = """
import numpy as np, sirtaki as hvd
hvd.init()
def message(rank, count):
    return (np.arange(count) * 31 + rank).astype(np.uint8)
for count in (0, 4, 70_000, 20_000_000):
    received = [np.empty(count, np.uint8) for _ in range(hvd.size())]
    handles = [hvd.irecv(array, rank, tag=count) for rank, array in enumerate(received)]
    for rank in range(hvd.size()):
        hvd.send(message(hvd.rank(), count), rank, tag=count)
    assert [hvd.synchronize(handle) for handle in handles] == list(range(hvd.size()))
    for rank, array in enumerate(received):
        np.testing.assert_array_equal(array, message(rank, count))
token = np.zeros(1)
if hvd.rank() > 0:
    assert hvd.recv(token) == hvd.rank() - 1
if hvd.rank() + 1 < hvd.size():
    hvd.send(token + 1, hvd.rank() + 1)
assert token[0] == hvd.rank()
hvd.barrier()
print("done", hvd.rank())
"""


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tls", [False, True])
def test_messages_cross_between_hosts(bed: Bed, slots: int, tls: bool) -> None:
    flags = ("--tls",) if tls else ()
    done = run(bed, *flags, *python(CROSSING), slots=slots)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("done") == slots * len(bed.hosts)


def test_a_lost_host_fails_a_receive_and_is_named(bed: Bed) -> None:
    code = """
import os, signal, numpy as np, sirtaki as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's: first hear of the loss
hvd.init()
value = np.ones(1)
last = hvd.size() - 1
if hvd.rank() == last:
    hvd.send(value, 0)
    os._exit(7)
try:
    if hvd.rank() == 0:
        hvd.recv(value, last)
    hvd.recv(value, last)
except hvd.PeerLostError as error:
    print("lost", f"rank {last}" in str(error), flush=True)
"""
    done = run(bed, "--termination-grace-seconds", "60", *python(code))
    assert done.stdout.count("lost True") == len(bed.hosts) - 1, done.stdout + done.stderr
