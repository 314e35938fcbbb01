"""Messages from one rank to another: their order, who may have them, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.world.state import current_world


def around(shift: int) -> int:
    return (hvd.rank() + shift) % hvd.size()


@pytest.fixture(autouse=True)
def all_done() -> Any:
    yield
    hvd.barrier()


def test_messages_of_one_pair_and_tag_keep_their_order() -> None:
    handles = [hvd.isend(np.full(1, i), around(1)) for i in range(200)]
    received = np.empty(1, np.int64)
    for i in range(200):
        hvd.recv(received, around(-1))
        assert received[0] == i
    for handle in handles:
        hvd.synchronize(handle)


def test_collectives_and_messages_do_not_wait_for_each_other() -> None:
    received = np.empty(10, np.int64)
    handle = hvd.irecv(received, around(-1))
    for _ in range(3):
        np.testing.assert_array_equal(hvd.allreduce(np.ones(5), op=hvd.Sum), [hvd.size()] * 5)
    hvd.send(np.full(10, hvd.rank()), around(1))
    hvd.synchronize(handle)
    np.testing.assert_array_equal(received, np.full(10, around(-1)))


def test_a_process_set_has_messages_of_its_own() -> None:
    if hvd.size() < 3:
        pytest.skip("needs a set that is not all")
    pair = hvd.add_process_set([0, 2])
    if hvd.rank() in (0, 2):
        peer = 2 - hvd.rank()
        hvd.send(np.full(1, 10), peer)
        hvd.send(np.full(1, 20), peer, process_set=pair)
        received = np.empty(1, np.int64)
        hvd.recv(received, process_set=pair)
        assert received[0] == 20
        hvd.recv(received)
        assert received[0] == 10
    else:
        with pytest.raises(ValueError, match="not a member"):
            hvd.recv(np.empty(1), process_set=pair)
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="dest 1 is not in the process set"):
            hvd.send(np.ones(1), 1, process_set=pair)
    hvd.remove_process_set(pair)


def test_a_receive_too_short_fails_alone() -> None:
    for count in (100, 1_000_000):
        handle = hvd.isend(np.zeros(count, np.uint8), around(1), tag=6)
        text = f"receive from rank {around(-1)} with tag 6.* has {count} bytes, more than the 99 "
        with pytest.raises(hvd.MismatchError, match=text):
            hvd.recv(np.empty(99, np.uint8), around(-1), tag=6)
        hvd.synchronize(handle)


def test_a_message_shorter_than_its_array_is_an_error() -> None:
    hvd.send(np.zeros(3, np.uint8), around(1))
    with pytest.raises(hvd.MismatchError, match="has 3 bytes, fewer than the 4"):
        hvd.recv(np.empty(4, np.uint8), around(-1))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hvd.send(np.ones(1), hvd.size()), ValueError, "no such rank"),
        (lambda: hvd.send(np.ones(1), -1), ValueError, "no such rank"),
        (lambda: hvd.recv(np.ones(1), -2), ValueError, "no such rank"),
        (lambda: hvd.send(np.ones(1), 0, tag=-1), ValueError, "a tag is not negative"),
        (lambda: hvd.irecv(np.ones(1), 0, tag=-1), ValueError, "a tag is not negative"),
        (lambda: hvd.send(np.ones(1), "0"), TypeError, "dest must be an int"),  # type: ignore[arg-type]
        (lambda: hvd.recv(np.ones(1), "0"), TypeError, "source must be an int"),  # type: ignore[arg-type]
        (lambda: hvd.send([1], 0), TypeError, "list"),  # type: ignore[arg-type]
        (lambda: hvd.recv(np.ones((3, 4)).T), ValueError, "contiguous"),
        (
            lambda: hvd.send(np.ones(1), 0, process_set=hvd.ProcessSet([0])),
            ValueError,
            "registered",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_round_trip_is_timed() -> None:
    if hvd.size() != 2:
        pytest.skip("needs two ranks")
    data = np.arange(1000)
    engine = current_world().engine
    seconds = engine.time_round_trip(1 - hvd.rank(), data.ctypes.data, data.nbytes, 5)
    assert len(seconds) == 5
    assert min(seconds) > 0
    np.testing.assert_array_equal(data, np.arange(1000))
