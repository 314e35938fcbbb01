"""`sirtaki.dask.run` on the workers of a real Dask."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sirtaki.dask
from tests import needs
from tests.clusters.examples import LIMIT, printed
from tests.pages import run_alone

distributed = needs.package("distributed")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(LIMIT + 30)]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def workers_are_back(client: Any) -> Iterator[None]:
    yield
    client.wait_for_workers(2, timeout=60)


def summed(base: int, step: int = 0) -> tuple[int, int, int, float, str]:
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    total = hvd.allreduce(np.full(1, base + hvd.rank() * step), op=hvd.Sum)
    return hvd.rank(), hvd.local_rank(), hvd.size(), float(total[0]), os.environ["HOROVOD_RANK"]


def test_a_function_runs_on_ranks_of_one_world(client: Any) -> None:
    found = sirtaki.dask.run(client, summed, [10], {"step": 5}, np=2)
    assert found == [(0, 0, 2, 25.0, "0"), (1, 1, 2, 25.0, "1")]


def test_every_worker_is_a_rank_by_default_and_leaves_nothing_behind(client: Any) -> None:
    assert [sirtaki.dask.run(client, summed, [base])[0][3] for base in (1, 2)] == [2.0, 4.0]
    names = client.run(lambda: sorted(name for name in os.environ if "HOROVOD_" in name))
    assert list(names.values()) == [[], []]


def test_a_rank_may_use_the_data_of_its_worker(client: Any) -> None:
    (future,) = client.scatter([7], broadcast=True)
    key = future.key

    def own() -> int:
        return int(distributed.get_worker().data[key])

    assert sirtaki.dask.run(client, own) == [7, 7]


def failing(how: str) -> None:
    """Fail on rank 1, while rank 0 waits for it."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    if hvd.rank() == 1:
        if how == "raise":
            raise ValueError("planted")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        hvd.allreduce(np.ones(1))
    threading.Event().wait()


def test_a_function_that_raises_is_shown_with_its_rank_and_host(client: Any) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 on \S+ .*in failing.*planted") as caught:
        sirtaki.dask.run(client, failing, ["raise"])
    assert isinstance(caught.value.__cause__, ValueError)
    client.wait_for_workers(2, timeout=60)
    assert sirtaki.dask.run(client, summed, [1])[0][3] == 2.0


def test_a_worker_that_is_killed_is_named_and_the_others_are_ended(client: Any) -> None:
    before = set(client.run(os.getpid).values())
    with pytest.raises(RuntimeError, match=r"rank 1 on \S+ .* failed(.|\n)*its worker was lost"):
        sirtaki.dask.run(client, failing, ["kill"])
    client.wait_for_workers(2, timeout=60)
    # Rank 0 waits for nothing of ours, so its worker was begun anew.
    until = time.monotonic() + 30
    while before & set(client.run(os.getpid).values()):
        assert time.monotonic() < until
    assert sirtaki.dask.run(client, summed, [1])[0][3] == 2.0


def test_what_cannot_be_pickled_is_said_before_anything_runs(client: Any) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        sirtaki.dask.run(client, lambda: lock)


def test_a_module_that_workers_lack_is_named(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def train(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    train = importlib.import_module("only_here").train
    with pytest.raises(RuntimeError, match=r"(?s)rank [01] on .*No module named 'only_here'"):
        sirtaki.dask.run(client, train)
    sys.modules.pop("only_here")


def test_too_few_workers_are_an_error_that_says_how_many_there_are(client: Any) -> None:
    with pytest.raises(TimeoutError, match=r"np=5\): the cluster has 2 worker\(s\) after 1 s"):
        sirtaki.dask.run(client, summed, [1], np=5, start_timeout=1)
    with pytest.raises(ValueError, match="np=0 must be >= 1"):
        sirtaki.dask.run(client, summed, [1], np=0)


def test_a_worker_with_another_version_is_named(client: Any) -> None:
    def pretend(version: str) -> None:
        import sirtaki

        sirtaki.__version__ = version

    ours = sirtaki.__version__
    client.run(pretend, "0.0.1")
    with pytest.raises(RuntimeError, match=r"has Sirtaki 0\.0\.1, this program"):
        sirtaki.dask.run(client, summed, [1])
    client.run(pretend, ours)


def test_workers_that_are_threads_of_one_process_are_refused() -> None:
    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as threads,
        pytest.raises(RuntimeError, match="processes=True"),
    ):
        sirtaki.dask.run(threads, summed, [1])


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    run_alone("howto/dask", tmp_path)


def test_the_example_trains_on_two_workers() -> None:
    (loss,) = re.findall(r"2 ranks, loss (0\.\d+)", printed("clusters/dask_train.py"))
    assert float(loss) < 0.5
