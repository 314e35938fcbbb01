"""Functions that hear of every operation."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import OperationEvent, add_hooks
from sirtaki.core.world.state import current_world


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[str, OperationEvent]] = []

    def at(self, moment: str, event: OperationEvent) -> None:
        self.events.append((moment, event))

    def all(self, count: int) -> list[tuple[str, OperationEvent]]:
        """Those that there are once there are so many, or after ten seconds."""
        deadline = time.monotonic() + 10
        while len(self.events) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.events


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Of a world of one."""
    hvd.init()
    found = Heard()
    hooks = add_hooks(
        before=lambda event: found.at("before", event),
        after=lambda event: found.at("after", event),
        abort=lambda event: found.at("abort", event),
    )
    yield found
    hooks.remove()
    hvd.shutdown()


def test_an_operation_is_told_before_and_after(heard: Heard) -> None:
    hvd.allreduce(np.ones(5, np.float32), name="grad")
    event = OperationEvent("allreduce", "grad", "float32", 20, 0, "")
    assert heard.all(2) == [("before", event), ("after", event)]


def test_one_that_fails_is_told_as_aborted_with_its_error(heard: Heard) -> None:
    current_world().engine.abort("the disk is full")
    with pytest.raises(hvd.HorovodInternalError, match="the disk is full"):
        hvd.allreduce(np.ones(5, np.float32), name="grad")
    (before, first), (abort, second) = heard.all(2)
    assert (before, abort) == ("before", "abort")
    assert first == OperationEvent("allreduce", "grad", "float32", 20, 0, "")
    assert second == first._replace(error=second.error)
    assert "the disk is full" in second.error


def test_removed_hooks_hear_nothing() -> None:
    hvd.init()
    heard = Heard()
    with add_hooks(before=lambda event: heard.at("before", event)) as hooks:
        hvd.allreduce(np.ones(1), name="a")
    hvd.allreduce(np.ones(1), name="b")
    hooks.remove()
    hvd.shutdown()
    assert [event.name for _, event in heard.events] == ["a"]


def test_what_a_hook_raises_leaves_the_operation_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: OperationEvent) -> None:
        raise ValueError(f"not {event.name}")

    monkeypatch.setattr("sys.unraisablehook", lambda what: print(what.exc_value))
    hvd.init()
    with add_hooks(before=fail):
        result = hvd.allreduce(np.ones(1), name="grad")
    hvd.shutdown()
    assert (result.tolist(), capsys.readouterr().out) == ([1.0], "not grad\n")


def test_there_is_no_world_before_init() -> None:
    with pytest.raises(ValueError, match=r"init\(\)"):
        add_hooks()
