"""Hooks of operations that several ranks take part in."""

from __future__ import annotations

import time

import numpy as np
import pytest

import sirtaki as hvd


def test_ranks_that_disagree_hear_of_an_abort() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    heard: list[tuple[str, str, str]] = []
    with hvd.add_hooks(
        before=lambda event: heard.append(("before", event.name, event.error)),
        after=lambda event: heard.append(("after", event.name, event.error)),
        abort=lambda event: heard.append(("abort", event.name, event.error)),
    ):
        hvd.allreduce(np.ones(3), name="good")
        with pytest.raises(hvd.MismatchError):
            hvd.allreduce(np.ones(3 + hvd.rank()), name="bad")
        deadline = time.monotonic() + 10
        while len(heard) < 4 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert sorted(each[:2] for each in heard) == [
        ("abort", "bad"),
        ("after", "good"),
        ("before", "bad"),
        ("before", "good"),
    ]
    [error] = [text for moment, _, text in heard if moment == "abort"]
    assert "shape" in error
    hvd.barrier()
