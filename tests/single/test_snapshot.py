"""What a rank tells of its operations, in a world of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import _core
from sirtaki.core.world.state import current_world


@pytest.fixture
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.usefixtures("world")
def test_what_has_ended_is_shown_with_all_that_is_known() -> None:
    hvd.allreduce(np.ones((3, 5), np.float64), name="sum")
    (state,) = hvd.snapshot()
    assert state.rank == 0
    assert state.open == []
    (one,) = state.operations
    assert (one.number, one.kind, one.name, one.process_set) == (1, "allreduce", "sum", 0)
    assert (one.bytes, one.dtype, one.stage, one.waits) == (120, "float64", "done", None)
    assert one.submitted is not None
    assert one.agreed is not None
    assert one.begun is not None
    assert one.ended is not None
    assert one.submitted >= one.agreed >= one.begun >= one.ended >= 0
    shown = "1 allreduce 'sum' (120 bytes): done, submitted # s ago, agreed # s ago"
    doing = "in no operation; the last one, allreduce 'sum', ended # s ago"
    words = re.sub(r"\d+\.\d s", "# s", str(state))
    assert words.startswith(f"rank 0: {doing}\n  {shown}")
    assert state.doing is not None
    assert re.sub(r"\d+\.\d s", "# s", str(state.doing)) == doing
    assert (state.doing.stage, state.doing.operation, state.doing.tensor) == (
        "done",
        "allreduce",
        "sum",
    )
    assert (state.doing.completed, state.doing.blocked, state.doing.waits) == (1, 0, None)


@pytest.mark.usefixtures("world")
def test_only_the_latest_are_shown() -> None:
    for i in range(5000):
        hvd.allreduce(np.ones(1), name=str(i))
    (state,) = hvd.snapshot(last=2)
    assert [one.name for one in state.operations] == ["4998", "4999"]
    assert len(hvd.snapshot(last=10_000)[0].operations) == 4096
    assert hvd.snapshot(last=0)[0].operations == []


@pytest.mark.usefixtures("world")
def test_an_operation_that_failed_is_shown_as_such() -> None:
    again = _core.Request(_core.KINDS["add_process_set"], name="again", splits=[0])
    handle = current_world().engine.submit(again, None)
    with pytest.raises(ValueError, match="exists already"):
        handle.check()
    (one,) = hvd.snapshot()[0].operations
    assert (one.name, one.stage, one.begun) == ("again", "failed", None)


@pytest.mark.usefixtures("world")
def test_a_name_is_cut_between_characters() -> None:
    hvd.allreduce(np.ones(1), name="x" * 39 + "é" * 10)
    (one,) = hvd.snapshot()[0].operations
    assert one.name == "x" * 39 + "?"


@pytest.mark.usefixtures("world")
def test_a_forked_child_has_no_state() -> None:
    child = os.fork()
    if child == 0:
        try:
            hvd.snapshot()
        except hvd.HorovodInternalError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("world")
def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="last=-1 must not be negative"):
        hvd.snapshot(last=-1)


def test_there_is_nothing_to_show_before_init() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.snapshot()
