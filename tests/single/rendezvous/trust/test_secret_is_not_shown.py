"""What holds the job's secret does not show it in messages and tracebacks."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest

import sirtaki.rendezvous


def holders() -> list[type]:
    """The dataclasses of rendezvous that have a field `secret`."""
    package = sirtaki.rendezvous
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    modules = [importlib.import_module(each.name) for each in found]
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
    whole = object.__new__(holder)
    for field in dataclasses.fields(holder):
        object.__setattr__(whole, field.name, b"hidden" if field.name == "secret" else None)
    assert "hidden" not in repr(whole)


def test_all_holders_are_found() -> None:
    assert {"JoinSettings", "Meeting", "Placement"} <= {holder.__name__ for holder in holders()}
