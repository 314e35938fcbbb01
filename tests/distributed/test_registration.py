"""What `import torch` changes in PyTorch where Sirtaki is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.distributed.jobs import LIMIT

FUNCTIONS = ("monitored_barrier", "split_group")
PROGRAM = """
import json, sys, tempfile, torch.distributed as dist

HANDLERS = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers

def replaced():
    functions = [dist.monitored_barrier, dist.split_group, dist.init_process_group]
    functions += [dist.new_group, HANDLERS["env"]]
    ours = [one for one in functions if "/sirtaki/" in one.__code__.co_filename]
    return [one.__name__ for one in ours]

before = replaced()
with tempfile.NamedTemporaryFile() as file:
    store = dist.FileStore(file.name, 1)
    dist.init_process_group(sys.argv[1], store=store, rank=0, world_size=1)
    after = replaced()
    dist.destroy_process_group()
print(json.dumps([before, after]))
"""


def replaced(backend: str, **variables: str) -> list[list[str]]:
    """Which functions of PyTorch are ours, before and after a group of a backend was made."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, backend],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_is_replaced_until_a_group_of_ours_is_made() -> None:
    assert replaced("sirtaki") == [[], list(FUNCTIONS)]


def test_nothing_is_replaced_for_other_backends() -> None:
    assert replaced("gloo") == [[], []]


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"])
def test_under_a_starter_without_pytorchs_variables_ranks_can_meet(name: str) -> None:
    assert replaced("gloo", **{name: "0"}) == [["_env_rendezvous_handler"]] * 2
