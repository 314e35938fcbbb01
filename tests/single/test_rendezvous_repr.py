"""What holds the job's secret does not show it in messages and tracebacks."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest

import sirtaki.rendezvous


def holders() -> list[type]:
    """The dataclasses of rendezvous that have a field `secret`."""
    names = [found.name for found in pkgutil.iter_modules(sirtaki.rendezvous.__path__)]
    modules = [importlib.import_module(f"sirtaki.rendezvous.{name}") for name in names]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if dataclasses.is_dataclass(each)
        and each.__module__ == module.__name__
        and any(field.name == "secret" for field in dataclasses.fields(each))
    ]


@pytest.mark.parametrize("holder", holders(), ids=lambda holder: holder.__name__)
def test_a_secret_is_not_shown(holder: type) -> None:
    fields = dataclasses.fields(holder)
    values = {field.name: b"x" if field.name == "secret" else None for field in fields}
    assert "secret" not in repr(holder(**values))


def test_all_holders_are_found() -> None:
    assert {"Meeting", "Settings"} <= {holder.__name__ for holder in holders()}
