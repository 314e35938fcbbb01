"""The image, for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.containers.image import build, reason_to_skip


@pytest.fixture(scope="session", autouse=True)
def image(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where there can be no containers."""
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    build(tmp_path_factory.mktemp("image"))
