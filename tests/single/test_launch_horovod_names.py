"""The launcher under the names that Horovod's scripts import."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from horovod.runner import run
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util import threads
from sirtaki.launch import api
from tests.single.launching import LIMIT


def test_run_is_the_same_function() -> None:
    assert run is api.run


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 1)])
def test_run_commandline_is_horovodrun(command: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", "-np", "2", command],
        timeout=LIMIT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == code


def test_rank_and_size_come_from_the_launchers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("SIRTAKI", "HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{prefix}_RANK", raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    assert get_env_rank_and_size() == (2, 3)
    monkeypatch.setenv("HOROVOD_RANK", "4")
    monkeypatch.setenv("HOROVOD_SIZE", "5")
    assert get_env_rank_and_size() == (4, 5)


def test_in_thread_starts_the_function() -> None:
    done = threading.Event()
    thread = threads.in_thread(done.set)
    thread.join()
    assert done.is_set()
    assert thread.daemon


def test_functions_run_in_threads_give_results_by_index() -> None:
    results = threads.execute_function_multithreaded(pow, [(2, 3), (3, 2)])
    assert results == {0: 8, 1: 9}
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(divmod, [(1, 0)])
