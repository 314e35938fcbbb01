"""Objects between hosts: nothing is believed that the sender did not send now, for this call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.world.unpickling import Call, ObjectSeals

KEY = b"k" * 32
CALL = Call("broadcast_object", "name", 0)
DATA = memoryview(b"an object")


def ranks() -> tuple[ObjectSeals, ObjectSeals]:
    return ObjectSeals(KEY, ["node-a", "node-b"]), ObjectSeals(KEY, ["node-a", "node-b"])


def test_an_object_that_arrives_as_it_was_sent_is_taken() -> None:
    here, there = ranks()
    for _ in range(3):
        sealed = there.parse(CALL, 0, here.header(CALL, 0, DATA))
        assert sealed.size == len(DATA)
        there.require(CALL, 0, sealed, DATA)


def test_headers_have_one_size() -> None:
    here, _ = ranks()
    assert len(here.header(CALL, 0, DATA)) == here.header_bytes
    alone = ObjectSeals(None, ["node-a"])
    assert len(alone.header(CALL, 0, DATA)) == alone.header_bytes == 8


@given(st.data())
def test_any_altered_byte_of_a_header_is_found(data: st.DataObject) -> None:
    here, there = ranks()
    header = bytearray(here.header(CALL, 0, DATA))
    header[data.draw(st.integers(0, len(header) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(HorovodInternalError, match=r"rank 0 \(node-a\) sent .*was altered"):
        there.parse(CALL, 0, bytes(header))


@given(st.binary(max_size=20).filter(lambda data: data != bytes(DATA)))
def test_other_bytes_than_those_that_were_sent_are_refused(data: bytes) -> None:
    here, there = ranks()
    sealed = there.parse(CALL, 0, here.header(CALL, 0, DATA))
    with pytest.raises(HorovodInternalError, match="altered"):
        there.require(CALL, 0, sealed, memoryview(data))


@pytest.mark.parametrize(
    ("call", "sender"),
    [
        (Call("allgather_object", "name", 0), 0),
        (Call("broadcast_object", "other", 0), 0),
        (Call("broadcast_object", "name", 1), 0),
        (CALL, 1),
    ],
    ids=["operation", "name", "process set", "sender"],
)
def test_an_object_meant_for_another_call_is_refused(call: Call, sender: int) -> None:
    here, there = ranks()
    with pytest.raises(HorovodInternalError):
        there.parse(call, sender, here.header(CALL, 0, DATA))


def test_an_object_of_another_world_is_refused() -> None:
    here, _ = ranks()
    with pytest.raises(HorovodInternalError):
        ObjectSeals(b"o" * 32, ["a", "b"]).parse(CALL, 0, here.header(CALL, 0, DATA))


def test_an_object_that_is_played_again_is_refused() -> None:
    here, there = ranks()
    header = here.header(CALL, 0, DATA)
    there.parse(CALL, 0, header)
    with pytest.raises(HorovodInternalError):
        there.parse(CALL, 0, header)


@pytest.mark.parametrize("others", [1024, 3000])
def test_an_old_object_that_was_kept_back_is_refused(others: int) -> None:
    here, there = ranks()
    kept = here.header(CALL, 0, DATA)
    for _ in range(others):
        there.parse(CALL, 0, here.header(CALL, 0, DATA))
    with pytest.raises(HorovodInternalError):
        there.parse(CALL, 0, kept)


@pytest.mark.parametrize("others", [1, 1023])
def test_objects_of_threads_may_overtake_each_other(others: int) -> None:
    here, there = ranks()
    first = here.header(CALL, 0, DATA)
    for _ in range(others):
        there.parse(CALL, 0, here.header(CALL, 0, DATA))
    assert there.parse(CALL, 0, first).size == len(DATA)


def test_after_an_altered_object_no_more_are_taken() -> None:
    here, there = ranks()
    kept = here.header(CALL, 0, DATA)
    with pytest.raises(HorovodInternalError) as first:
        there.parse(CALL, 0, bytes(there.header_bytes))
    with pytest.raises(HorovodInternalError, match="exchanges no more objects") as second:
        there.parse(CALL, 0, kept)
    assert str(first.value) == str(second.value)
