"""What the first pages on TensorFlow, Keras and JAX tell a reader to type works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import BY_FRAMEWORK, DOCS, LIMIT, follow

pytestmark = [pytest.mark.slow, pytest.mark.job, pytest.mark.timeout(2 * LIMIT)]


@pytest.mark.parametrize(("page", "backend"), BY_FRAMEWORK.items())
def test_a_page_does_what_it_shows(
    page: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    follow(DOCS / f"{page}.md", tmp_path)
