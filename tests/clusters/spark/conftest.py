"""A Spark of two slots on this machine, started once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import needs

needs.package("pyspark")


@pytest.fixture(scope="session")
def session_of() -> Iterator[Callable[[str], Any]]:
    """Make a session with a master in place of the one before."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    sessions: dict[str, Any] = {}

    def make(master: str) -> Any:
        if master not in sessions:
            for old in sessions.values():
                old.stop()
            sessions.clear()
            builder = SparkSession.builder.master(master)
            for name, value in {
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "900m",
            }.items():
                builder = builder.config(name, value)
            sessions[master] = builder.getOrCreate()
            sessions[master].sparkContext.setLogLevel("OFF")
        return sessions[master]

    yield make
    for session in sessions.values():
        session.stop()
