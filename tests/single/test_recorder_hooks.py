"""PyTorch's flight recorder stands in front of a group of ours only on request."""

from __future__ import annotations

from typing import Any

import pytest

from sirtaki.torch.distributed.interface.hooks import Hooks, _attaching


class Group(Hooks):
    """One of ours."""

    def _front(self) -> Any:
        return "front"


def attach(*arguments: Any) -> Any:
    """PyTorch's: since 2.15 it takes the ranks, which PyTorch passes for every new group."""
    return arguments


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_a_program_that_attaches_it_gets_it() -> None:
    assert _attaching(attach, Group)(Group()) == ("front",)


def test_pytorch_attaches_it_where_a_variable_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = _attaching(attach, Group)
    assert attached(Group(), [0, 1]) is None
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    assert attached(Group(), [0, 1]) == ("front", [0, 1])


def test_groups_of_other_backends_are_passed_on() -> None:
    assert _attaching(attach, Group)("theirs", [0]) == ("theirs", [0])
