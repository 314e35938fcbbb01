"""Importing much at once, and little at the start of a job."""

from __future__ import annotations

import gc
import subprocess

import pytest

from sirtaki.importing import uncollected
from tests.single.launching import Job, python

# Each takes a millisecond or more of a start, and no process of a job on one host needs it.
SLOW = ("dataclasses", "inspect", "hashlib", "hmac", "secrets", "random", "pickle", "ssl", "yaml")
LOADED = f"{{*{SLOW}}} & {{*sys.modules}}"


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_is_left_as_it_was(collects: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def test_a_launcher_of_a_job_on_one_host_loads_no_slow_module(job: Job) -> None:
    code = (
        "import sys; from sirtaki.launch.cli import horovodrun; "
        f"print(horovodrun(['-np', '2', 'true']), {LOADED})"
    )
    ended = subprocess.run(
        python(code), capture_output=True, text=True, env=job.environment, check=True
    )
    assert ended.stdout == "0 set()\n"


def test_a_rank_on_one_host_loads_no_slow_module_that_numpy_does_not(job: Job) -> None:
    code = (
        f"import sys, numpy; before = {LOADED}; import sirtaki; sirtaki.init(); "
        f"sirtaki.allreduce(numpy.ones(1)); print({LOADED} - before)"
    )
    ended = job.run("-np", "2", *python(code))
    assert sorted(ended.stdout.splitlines()) == ["[0]<stdout>:set()", "[1]<stdout>:set()"]
