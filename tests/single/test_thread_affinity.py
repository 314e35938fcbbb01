"""On which CPU the engine's threads of each rank run."""

from __future__ import annotations

import os

import pytest

from sirtaki.core.config import Config
from tests.single.launching import Job, python

CPUS = sorted(os.sched_getaffinity(0))
TELL = """
import os, threading, time
import sirtaki as hvd

before = set(os.listdir("/proc/self/task"))
own = sorted(os.sched_getaffinity(0))
hvd.init()
# Threads of the engine, not of Python. Some that only bring ranks together may still be ending.
for _ in range(100):
    others = {str(thread.native_id) for thread in threading.enumerate()}
    started = set(os.listdir("/proc/self/task")) - before - others
    try:
        found = {tuple(sorted(os.sched_getaffinity(int(thread)))) for thread in started}
    except ProcessLookupError:
        continue
    if len(found) == 1:
        break
    time.sleep(0.1)
assert sorted(os.sched_getaffinity(0)) == own
print(os.environ["HOROVOD_LOCAL_RANK"], *sorted(found))
hvd.barrier()
"""


def engines(np: int, *flags: str, **variables: str) -> list[str]:
    """What ranks say of their engines' threads, by rank: the CPUs on which these may run."""
    done = Job().run("-np", str(np), "--bind-to", "none", *flags, *python(TELL), **variables)
    assert done.returncode == 0, done.stderr
    return sorted(line.partition(":")[2] for line in done.stdout.splitlines())


def test_engines_run_wherever_the_process_may_unless_told() -> None:
    assert engines(2) == [f"{rank} {tuple(CPUS)}" for rank in range(2)]


def test_each_local_rank_has_its_entry_of_the_list() -> None:
    listed = (CPUS[-1], CPUS[0])
    flag = ("--thread-affinity", ",".join(map(str, listed)))
    assert engines(2, *flag) == [f"{rank} {(cpu,)}" for rank, cpu in enumerate(listed)]


def test_ranks_beyond_the_list_are_left_to_the_system() -> None:
    expected = [f"0 {(CPUS[0],)}", f"1 {tuple(CPUS)}"]
    assert engines(2, HOROVOD_THREAD_AFFINITY=str(CPUS[0])) == expected


@pytest.mark.parametrize("cpu", ["9999", "99999999999999999999"])
def test_a_cpu_that_is_not_there_is_named_with_variable_and_rank(cpu: str) -> None:
    done = Job().run("-np", "2", *python(TELL), HOROVOD_THREAD_AFFINITY=f"{CPUS[0]},{cpu}")
    assert done.returncode == 1
    assert (
        f"ValueError: HOROVOD_THREAD_AFFINITY={CPUS[0]},{cpu}: the engine of local rank 1 cannot "
        f"run on CPU {cpu}" in done.stderr
    )


@pytest.mark.parametrize("text", ["-1", "a", "1,,2", "1-2", "²"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_THREAD_AFFINITY='.+' is not a list"):
        Config.from_env({"HOROVOD_THREAD_AFFINITY": text})
