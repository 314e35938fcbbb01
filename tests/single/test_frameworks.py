"""What is known about frameworks that are not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sirtaki.frameworks as registry
from sirtaki.frameworks import Framework, frameworks
from sirtaki.questions.answering import versions


def test_frameworks_are_listed_without_an_import() -> None:
    code = (
        "import sys; from sirtaki.frameworks import frameworks; "
        "print(*frameworks(), *(name for name in frameworks() if name in sys.modules))"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown.split() == ["jax", "keras", "numpy", "tensorflow", "torch"]


def test_the_folder_of_an_adapter_makes_it_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "framework.json").write_text('{"name": "Toy", "errors": ["toylib"]}')
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "frameworks.py"))
    assert frameworks.__wrapped__() == {"toy": Framework("Toy", errors=["toylib"])}


def test_a_rank_answers_the_versions_of_imported_frameworks() -> None:
    assert versions()["numpy"] == np.__version__
