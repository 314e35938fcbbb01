"""`run`: functions sent to workers, results and exceptions sent back."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from sirtaki.launch import api
from sirtaki.launch.api import run
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Mpi
from sirtaki.launch.hosts.addresses import own_addresses
from sirtaki.launch.hosts.slots import Host
from sirtaki.launch.starters.allocation import Allocation
from tests.single.launching import LIMIT

pytestmark = pytest.mark.job


def script(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a script that calls `run` with functions of its own."""
    path = tmp_path / "script.py"
    path.write_text("from sirtaki.launch.api import run\n" + textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )


def place() -> tuple[str, str]:
    return os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]


@pytest.mark.parametrize("size", [1, 3])
def test_results_come_in_rank_order(size: int) -> None:
    assert run(place, num_proc=size) == [(str(rank), str(size)) for rank in range(size)]


def test_one_process_is_the_default() -> None:
    assert run(place) == [("0", "1")]


def test_arguments_are_passed() -> None:
    def add(a: int, b: int, c: int = 0) -> int:
        return a + b + c

    assert run(add, args=(1, 2), kwargs={"c": 3}, num_proc=2) == [6, 6]
    assert run(add, [1, 2]) == [3]


def test_closures_and_lambdas_can_be_sent() -> None:
    captured = {"x": 5}
    assert run(lambda: captured["x"]) == [5]


def test_none_is_a_result() -> None:
    assert run(lambda: None, num_proc=2) == [None, None]


def test_more_than_the_store_takes_at_once_travels_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = os.urandom(1 << 20) * 70
    assert run(lambda sent: sent[::-1], args=(data,)) == [data[::-1]]


def test_functions_and_classes_of_a_script_work(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        """
        class Point:
            def __init__(self, x): self.x = x
        def work(p): return Point(p.x + 1)
        if __name__ == "__main__":
            results = run(work, (Point(1),), num_proc=2)
            print([r.x for r in results], all(isinstance(r, Point) for r in results))
        """,
    )
    assert (done.stdout, done.stderr) == ("[2, 2] True\n", "")


def test_modules_beside_the_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def work(): return 'beside'")
    done = script(tmp_path, "import beside\nprint(run(beside.work, num_proc=2))")
    assert done.stdout == "['beside', 'beside']\n"


def test_what_workers_print_is_shown_with_their_rank(tmp_path: Path) -> None:
    done = script(tmp_path, "run(lambda: print('hello'), num_proc=2)")
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:hello", "[1]<stdout>:hello"]


def test_output_can_be_kept_in_files(tmp_path: Path) -> None:
    run(lambda: print("kept"), output_filename=str(tmp_path / "out"))
    assert (tmp_path / "out" / "rank.0" / "stdout").read_text() == "kept\n"


def test_an_exception_names_its_rank_and_carries_the_original() -> None:
    def work() -> None:
        import time

        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("missing")
        time.sleep(600)

    with pytest.raises(
        RuntimeError, match=r"(?s)rank 1 \(localhost\).*in work.*KeyError"
    ) as caught:
        run(work, num_proc=2)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.args == ("missing",)
    assert "task.py" not in str(caught.value)


def test_the_first_of_several_exceptions_is_raised() -> None:
    def work() -> None:
        import time

        rank = int(os.environ["HOROVOD_RANK"])
        try:
            time.sleep(0.5 * rank)
            raise ValueError(rank)
        finally:
            # All fail before anybody exits.
            time.sleep(0 if rank else 1.0)

    with pytest.raises(RuntimeError, match="rank 1"):
        run(work, num_proc=2)


def test_an_exception_of_the_script_keeps_its_class(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        """
        class Odd(Exception):
            def __init__(self, a, b): super().__init__(a)  # cannot be read back by pickle
        class Mine(Exception): pass
        def odd(): raise Odd(1, 2)
        def mine(): raise Mine("m")
        for work in (mine, odd):
            try: run(work)
            except RuntimeError as error:
                print(type(error.__cause__).__name__, "Traceback" in str(error))
        """,
    )
    assert done.stdout.splitlines() == ["Mine True", "NoneType True"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("os.kill(os.getpid(), 9)", r"rank 1 \(localhost\) was killed by SIGKILL"),
        ("os._exit(4)", r"rank 1 \(localhost\) exited with code 4"),
        ("os._exit(0)", r"ranks \[1\] ended without a result"),
        ("sys.exit(3)", r"(?s)rank 1 .*failed:.*SystemExit: 3"),
    ],
)
def test_a_worker_that_ends_without_returning_is_named(how: str, words: str) -> None:
    def work(code: str) -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            exec(f"import os, sys; {code}")

    with pytest.raises(RuntimeError, match=words):
        run(work, args=(how,), num_proc=2)


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"value that rank 0 returned cannot be sent back"):
        run(lambda: threading.Lock())


def test_a_function_that_cannot_be_sent_is_an_error_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError):
        run(lambda: lock)


def test_run_works_in_a_thread() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(place, num_proc=2)))
    thread.start()
    thread.join()
    assert results == [[("0", "2"), ("1", "2")]]


def test_the_workers_python_can_be_chosen(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.write_text(f'#!/bin/sh\nCHOSEN=yes exec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    assert run(lambda: os.environ.get("CHOSEN"), executable=str(chosen)) == ["yes"]
    with pytest.raises(ValueError, match="command not found"):
        run(place, executable=str(tmp_path / "none"))


def test_run_may_be_called_by_a_worker_of_run() -> None:
    def outer() -> list[Any]:
        return run(lambda: os.environ["HOROVOD_SIZE"], num_proc=2)

    assert run(outer, num_proc=1) == [["2", "2"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hosts": "localhost:1", "hostfile": "f"}, "hosts or hostfile"),
        ({"use_gloo": True, "use_mpi": True}, "use_gloo or use_mpi"),
        ({"use_mpi": True, "mpi_args": "-x 'A"}, "--mpi-args.*quotation"),
        ({"num_proc": 0}, "must be >= 1"),
        ({"num_proc": 2, "hosts": "localhost:1"}, "Requested more processes"),
        ({"hosts": "a b:1"}, "name:slots"),
        ({"min_num_proc": 3, "num_proc": 2}, "-np 2 is not between"),
        ({"min_num_proc": 1, "use_mpi": True}, "--mpi starts a fixed number"),
        ({"host_discovery_script": "exit 3"}, "'exit 3' ended with code 3"),
        ({"host_discovery": lambda: {"a b": 1}}, "returned {'a b': 1}: expected a mapping"),
    ],
)
def test_arguments_that_cannot_be_served_are_value_errors(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        run(place, **arguments)


def test_a_function_may_say_which_hosts_there_are() -> None:
    assert run(place, num_proc=2, host_discovery=lambda: {"localhost": 2}) == run(place, num_proc=2)


def test_the_old_names_of_arguments_still_work() -> None:
    with pytest.warns(DeprecationWarning, match="num_proc"):
        assert len(run(place, np=2)) == 2
    with (
        pytest.warns(DeprecationWarning, match="np"),
        pytest.raises(ValueError, match="contradict"),
    ):
        run(place, np=2, num_proc=3)


def test_arguments_that_launching_on_one_host_does_not_need_are_accepted() -> None:
    results = run(
        place,
        hosts="localhost:2",
        start_timeout=60,
        ssh_port=22,
        ssh_identity_file="key",
        disable_cache=True,
        verbose=2,
        use_gloo=True,
        network_interface="lo",
    )
    assert results == [("0", "1")]


def test_it_is_a_name_of_the_package() -> None:
    import sirtaki

    assert sirtaki.run is run


# Two ranks on this machine, whatever hosts it is told.
MPIRUN = f"""#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.3" && exit
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0
for rank in 0 1; do
  OMPI_COMM_WORLD_RANK=$rank {sys.executable} -m sirtaki.launch.task &
done
wait
"""


def test_ranks_that_mpirun_starts_on_hosts_of_a_scheduler_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        own_addresses(["n1"], ())
    except LaunchError:
        pytest.skip("this machine has no address that another could use")
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(MPIRUN)
    mpirun.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SIRTAKI_SHARED_DIR": str(tmp_path),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = run(lambda: os.environ["SIRTAKI_RENDEZVOUS"], num_proc=2, use_mpi=True)
    assert len(found) == 2
    assert all(address.startswith("tcp:") for address in found)


@pytest.mark.parametrize(
    ("hosts", "placed", "told"),
    [(None, {"a": 2, "b": 2}, False), ("c:4", {"c": 4}, True)],
)
def test_mpirun_starts_where_it_is_told_or_on_the_hosts_of_the_job(
    monkeypatch: pytest.MonkeyPatch, hosts: str | None, placed: dict[str, int], told: bool
) -> None:
    allocation = Allocation("slurm", "7", [Host("a", 2), Host("b", 2)], "srun")
    monkeypatch.setattr(api, "find_allocation", lambda _: allocation)
    given = {"num_proc": 4, "hosts": hosts, "controller": "mpi", "command": ["python"]}
    settings = api._settings(given)
    assert {host: len(slots) for host, slots in settings.by_host().items()} == placed
    assert isinstance(settings.kind, Mpi)
    assert settings.kind.hosts_given is told
