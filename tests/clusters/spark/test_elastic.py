"""`horovod.spark.run_elastic` on a real Spark: ranks and executors that are lost."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import horovod.spark
from tests import needs

needs.package("pyspark")
pytestmark = pytest.mark.nightly


def kill_executor() -> None:
    """Kill the executor's JVM, which is an ancestor of this rank."""
    import os
    import signal
    from pathlib import Path

    process = os.getpid()
    while Path(f"/proc/{process}/comm").read_text().strip() != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)


def train(folder: str, how: str, steps: int = 12) -> tuple[int, int, int, int]:
    """Train; in the fifth step rank 1 is lost, once. Returns rank, size, steps, worlds."""
    import os
    import signal
    from pathlib import Path

    import torch

    import horovod.torch as hvd

    hvd.init()
    state = hvd.elastic.TorchState(step=0, worlds=0)

    @hvd.elastic.run
    def work(state: Any) -> tuple[int, int, int, int]:
        state.worlds += 1
        while state.step < steps:
            if state.step == 4 and how == "raise":
                raise ValueError("planted")
            if state.step == 4 and hvd.rank() == 1 and not Path(folder, "done").exists():
                Path(folder, "done").write_text(str(os.getpid()))
                if how == "executor":
                    kill_executor()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1), name="x")
            state.step += 1
            state.commit()
        return hvd.rank(), hvd.size(), int(state.step), int(state.worlds)

    return work(state)  # type: ignore[no-any-return]


def left() -> list[str]:
    """The command lines of ranks and agents that still run."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = each.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "sirtaki.spark." in text:
            found.append(text)
    return found


def nothing_is_left() -> bool:
    deadline = time.monotonic() + 20
    while left() and time.monotonic() < deadline:
        time.sleep(0.2)
    return not left()


def test_a_rank_that_is_killed_is_replaced(
    session_of: Callable[[str], Any], tmp_path: Path
) -> None:
    session_of("local[2]")
    said = io.StringIO()
    found = horovod.spark.run_elastic(
        train, (str(tmp_path), "kill"), num_proc=2, min_num_proc=1, stderr=said
    )
    assert "ended with SIGKILL" in said.getvalue()
    assert [rank for rank, *_ in found] == list(range(len(found)))
    assert {steps for _, _, steps, _ in found} == {12}
    assert (tmp_path / "done").exists()
    assert nothing_is_left()


def test_an_error_of_the_program_ends_the_job(
    session_of: Callable[[str], Any], tmp_path: Path
) -> None:
    session_of("local[2]")
    said = io.StringIO()
    with pytest.raises(RuntimeError, match="ValueError: planted"):
        horovod.spark.run_elastic(
            train, (str(tmp_path), "raise"), num_proc=2, elastic_timeout=60, stderr=said
        )
    assert nothing_is_left()


def test_too_few_slots_are_an_error_after_the_start_timeout(
    session_of: Callable[[str], Any], tmp_path: Path
) -> None:
    session_of("local[2]")
    with pytest.raises(Exception, match="2 of 3 have started after 8 s"):
        horovod.spark.run_elastic(train, (str(tmp_path), "kill"), num_proc=3, start_timeout=8)
    assert nothing_is_left()


def test_an_executor_that_is_lost_is_replaced(
    session_of: Callable[[str], Any], tmp_path: Path
) -> None:
    session_of("local-cluster[2,1,1024]")
    said = io.StringIO()
    found = horovod.spark.run_elastic(
        train, (str(tmp_path), "executor"), num_proc=2, min_num_proc=1, stderr=said
    )
    assert "was lost" in said.getvalue()
    assert {steps for _, _, steps, _ in found} == {12}
    assert nothing_is_left()


def test_numbers_that_contradict_each_other_are_refused(session_of: Callable[[str], Any]) -> None:
    session_of("local[2]")
    with pytest.raises(ValueError, match="min-np 3 is more than"):
        horovod.spark.run_elastic(train, ("", ""), num_proc=2, min_num_proc=3, max_num_proc=2)
