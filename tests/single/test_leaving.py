"""What becomes of messages when a rank leaves the world."""

from __future__ import annotations

import numpy as np

import sirtaki as hvd
from sirtaki.launch.api import run


def failure_of(handle: int) -> str:
    try:
        hvd.synchronize(handle)
    except hvd.HorovodInternalError as error:
        return str(error)
    return ""


def leave_with_messages_under_way() -> tuple[str, list[int]]:
    hvd.init()
    values = np.full(3, hvd.rank())
    if hvd.rank() == 1:
        hvd.send(values, 0)
        large = hvd.isend(np.zeros(10_000_000), 0, tag=1)
        hvd.shutdown()
        return failure_of(large), values.tolist()
    failure = failure_of(hvd.irecv(np.empty(1), 1, tag=2))  # never sent: it ends with the world
    hvd.recv(values, 1)
    return failure, values.tolist()


def test_small_messages_of_a_rank_that_has_left_can_be_received_and_what_waits_fails() -> None:
    (waited, received), (sent, _) = run(leave_with_messages_under_way, num_proc=2)
    assert received == [1, 1, 1]
    assert "receive from rank 1 with tag 2: " in waited
    assert "send to rank 0 with tag 1: " in sent


def leave_after_a_barrier() -> list[int]:
    hvd.init()
    peer = 1 - hvd.rank()
    values = np.full(2_000_000, hvd.rank())
    received = np.empty_like(values)
    handle = hvd.irecv(received, peer)
    hvd.send(values, peer)
    hvd.synchronize(handle)
    hvd.barrier()
    hvd.shutdown()
    return [int(received.min()), int(received.max())]


def test_nothing_fails_where_all_have_met_before_they_leave() -> None:
    assert run(leave_after_a_barrier, num_proc=2) == [[1, 1], [0, 0]]
