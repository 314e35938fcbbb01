"""Probing modules that are missing, broken, or crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sirtaki.doctor import probe

pytestmark = pytest.mark.job


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "probed.py"


@pytest.mark.parametrize(
    ("source", "works", "detail"),
    [
        ("__version__ = '1.2'", True, "1.2"),
        ("print('noise')\n__version__ = '1.2'", True, "1.2"),
        ("", True, "loads"),
        ("raise RuntimeError('no driver')", False, "RuntimeError: no driver"),
        ("import os; os.kill(os.getpid(), 11)", False, "its import was killed by SIGSEGV"),
        ("import os; os._exit(3)", False, "exit code 3"),
    ],
)
def test_an_import_that_works_or_fails_is_described(
    module: Path, source: str, works: bool, detail: str
) -> None:
    module.write_text(source)
    assert probe.probe_module("probed") == probe.Probed("probed", works, detail)


def test_a_package_that_cannot_be_imported_is_described_by_its_parts(module: Path) -> None:
    module.write_text("raise RuntimeError('cannot load its library')")
    detail = probe.probe_module("probed.part").detail
    assert detail == "RuntimeError: cannot load its library"


def test_an_import_that_hangs_is_given_up(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(probe, "_IMPORT_SECONDS", 0.3)
    assert "did not end within 0.3 s" in probe.probe_module("probed").detail


def test_a_framework_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: None)
    finding = probe.probe_module("jax")
    assert (finding.works, finding.fix.split(",")[0]) == (False, "pip install jax optax")


@pytest.mark.parametrize(
    ("here", "fix"),
    [
        ((), "install a backend for Keras: pip install tensorflow;"),
        (("jax",), "let Keras use a backend that is installed: export KERAS_BACKEND=jax"),
    ],
)
def test_keras_without_its_backend_says_which_to_take(
    here: tuple[str, ...],
    fix: str,
    module: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module.with_name("keras.py").write_text("import tensorflow")
    module.with_name("tensorflow.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'tensorflow'\")"
    )
    monkeypatch.setattr(
        probe.importlib.util, "find_spec", lambda name: name in ("keras", *here) or None
    )
    finding = probe.probe_module("keras")
    assert (finding.works, finding.fix[: len(fix)]) == (False, fix)


@pytest.mark.parametrize(
    ("chosen", "config", "works"),
    [("", "", False), ("jax", "", True), ("", "jax", True), ("torch", "jax", False)],
)
def test_keras_without_its_backend_is_found_without_an_import(
    chosen: str, config: str, works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX is the only backend here; Keras reads the variable, then its file."""
    monkeypatch.setenv("KERAS_BACKEND", chosen)
    monkeypatch.setenv("HOME", str(tmp_path))
    if config:
        (tmp_path / ".keras").mkdir()
        (tmp_path / ".keras/keras.json").write_text(json.dumps({"backend": config}))
    monkeypatch.setattr(probe.importlib.metadata, "version", lambda name: "3.15.0")
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: name == "jax" or None)
    found = probe.installed("keras")
    assert found.works == works
    if not works:
        assert found.detail == f"3.15.0, but its backend {chosen or 'tensorflow'} is not installed"
        assert found.fix.endswith("export KERAS_BACKEND=jax")


@pytest.mark.parametrize("name", ["no_such_module", "no_such_package.part"])
def test_a_missing_module_is_not_installed(name: str) -> None:
    finding = probe.probe_module(name)
    assert not finding.works
    assert finding.detail.startswith("not installed")


def test_scheduler_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert probe.schedulers()["SLURM_JOB_ID"] == "12"


@pytest.mark.slow
def test_backends_need_the_core() -> None:
    works = {b.name: b.works for b in probe.backends(probe.Probed("core", True, ""))}
    mpi = probe.probe_module("mpi4py.MPI").works
    works.pop("nccl")  # see test_accelerators
    assert works == {"native": True, "single": True, "mpi": mpi}
    assert not any(b.works for b in probe.backends(probe.Probed("core", False, "")))


@pytest.mark.slow
def test_what_stands_in_for_gloo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRTAKI_TORCH_DEFAULT", "1")
    assert "of gloo, of no name and of sirtaki are moved by sirtaki" in (
        probe.torch_distributed().detail
    )


def test_a_check_counts_under_optimize_too(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module.write_text("")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    found = probe.probe_module("probed", "need(False, 'sees no GPU')")
    assert (found.works, found.detail) == (False, "sees no GPU")
