"""What holds a secret does not show it in messages and tracebacks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sirtaki.core.config import Config
from sirtaki.launch.hosts.nodes import Nodes
from sirtaki.rendezvous.host.joining import HostLinks
from sirtaki.rendezvous.trust.auth import Keys
from sirtaki.rendezvous.world.join import JoinSettings
from sirtaki.rendezvous.world.listener import DataLink
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.rendezvous.world.placement import Placement
from sirtaki.rendezvous.world.start import MeetingPlace
from sirtaki.schedulers.start import Start

PYTHON = Path(__file__).resolve().parents[4] / "python"
NAMES = ("secret", "key", "sending", "receiving")


def secrets_of(text: str) -> list[tuple[str, bool]]:
    """The fields of a module's classes that hold secrets, and whether their instances hide them."""
    found = []
    for holder in ast.walk(ast.parse(text)):
        if not isinstance(holder, ast.ClassDef) or not shows_fields(holder):
            continue
        own = any(
            isinstance(each, ast.FunctionDef) and each.name == "__repr__" for each in holder.body
        )
        found += [
            (f"{holder.name}.{ast.unparse(each.target)}", own or is_hidden(each))
            for each in holder.body
            if isinstance(each, ast.AnnAssign)
            and ast.unparse(each.target) in NAMES
            and ast.unparse(each.annotation) in ("bytes", "bytes | None")
        ]
    return found


def shows_fields(holder: ast.ClassDef) -> bool:
    made_by = " ".join(map(ast.unparse, [*holder.bases, *holder.decorator_list]))
    return "NamedTuple" in made_by or "dataclass" in made_by


def is_hidden(field: ast.AnnAssign) -> bool:
    return field.value is not None and "repr=False" in ast.unparse(field.value)


def test_every_class_of_fields_hides_its_secrets() -> None:
    found = [each for path in PYTHON.rglob("*.py") for each in secrets_of(path.read_text())]
    assert len(found) >= 17
    assert [name for name, hidden in found if not hidden] == []


def test_a_field_that_shows_its_secret_is_found() -> None:
    text = "class A(NamedTuple):\n  rank: int\n  secret: bytes\n  key: str"
    assert secrets_of(text) == [("A.secret", False)]


@pytest.mark.parametrize(
    "holder",
    [
        Config(secret=b"hidden"),
        Nodes(1, 0, 1, "a", 1, b"hidden"),
        HostLinks(-1, True, b"hidden", [], [], []),
        Keys(b"hidden", b"hidden"),
        Placement(0, 1, "unix:x", secret=b"hidden"),
        JoinSettings(Membership.of(0, [0]), Topology(), "a", 1.0, secret=b"hidden"),
        MeetingPlace(Start(Topology()), secret=b"hidden"),
        DataLink(-1, b"hidden", b"hidden"),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_a_secret_is_not_shown(holder: object) -> None:
    assert "hidden" not in repr(holder)
