"""What `nccl_built` and the like say depends on the PyTorch that the script has imported."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from sirtaki.core.basics import HorovodBasics
from sirtaki.doctor import probe
from tests import needs


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    *,
    nccl: bool = True,
    devices: bool = True,
    cuda: str | None = "13.0",
    hip: str | None = None,
) -> None:
    """Put a PyTorch of this kind in the place of the one here, which has no GPU."""
    module = SimpleNamespace(
        distributed=SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: nccl),
        cuda=SimpleNamespace(
            is_available=lambda: devices, nccl=SimpleNamespace(version=lambda: (2, 21, 5))
        ),
        version=SimpleNamespace(cuda=cuda, hip=hip),
    )
    monkeypatch.setitem(sys.modules, "torch", module)


def answers() -> tuple[int, bool, bool]:
    basics = HorovodBasics()
    return basics.nccl_built(), basics.cuda_built(), basics.rocm_built()


def test_nccl_has_its_version_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    assert answers() == (22105, True, False)


def test_rocm_is_told_from_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, cuda=None, hip="6.4")
    assert answers() == (22105, False, True)


@pytest.mark.parametrize("lacks", ["nccl", "devices"])
def test_nothing_is_built_without_nccl_or_a_device(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    pretend(monkeypatch, **{lacks: False})
    assert answers() == (0, False, False)


def test_nothing_is_imported_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert answers() == (0, False, False)
    assert "torch" not in sys.modules


@pytest.mark.slow
@pytest.mark.job
def test_the_doctor_says_why_nccl_does_not_work() -> None:
    torch = needs.package("torch")
    found = {each.name: each for each in probe.backends(probe.Probed("core", True, ""))}["nccl"]
    assert found.works == (torch.distributed.is_nccl_available() and torch.cuda.is_available())
    if not torch.distributed.is_nccl_available():
        assert found.detail == "tensors of GPUs go through CPU memory: this PyTorch has no NCCL"
