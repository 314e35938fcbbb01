"""What of a notebook a cell takes along to the ranks."""

from __future__ import annotations

import threading

import pytest

from sirtaki.notebook.cells import named, run_cell

VALUES = {"a": 1, "b": 2, "lock": threading.Lock(), "print": 3}


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        ("a + 1", {"a"}),
        ("def f():\n    return b\nf()", {"b"}),
        ("a = a + 1", {"a"}),
        ("import a", set()),
        ("lock = 1\nlock", set()),
        ("print(c)", set()),
    ],
)
def test_a_cell_takes_what_it_names(code: str, taken: set[str]) -> None:
    assert named(code, VALUES).keys() == taken


def test_a_value_that_cannot_be_pickled_and_is_needed_is_named_by_what_sends_it() -> None:
    assert named("lock.acquire()", VALUES).keys() == {"lock"}


def test_the_value_of_a_cell_is_that_of_its_last_expression() -> None:
    assert run_cell("x = a * 2\nx + 1", {"a": 3}) == 7
    assert run_cell("x = a * 2", {"a": 3}) is None
    assert run_cell("", {}) is None


def test_a_function_of_a_cell_sees_its_other_names() -> None:
    assert run_cell("y = 2\ndef f():\n    return y + a\nf()", {"a": 3}) == 5
