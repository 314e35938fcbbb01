"""What `import torch` changes in PyTorch where Sirtaki is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from sirtaki.torch.distributed.group import create
from tests.distributed.jobs import LIMIT

FUNCTIONS = ("monitored_barrier", "split_group")
# PyTorch is imported once; in a child for each case follows what its import does at the end.
PROGRAM = """
import json, os, sys, tempfile, torch, torch.distributed as dist

HANDLERS = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers

def replaced():
    functions = [dist.monitored_barrier, dist.split_group, dist.init_process_group]
    functions += [dist.new_group, HANDLERS["env"]]
    ours = [one for one in functions if "/site-packages/sirtaki/" in one.__code__.co_filename]
    return [one.__name__ for one in ours]

def of_group(backend, variable):
    if variable:
        os.environ[variable] = "0"
    torch._import_device_backends()
    before = replaced()
    with tempfile.NamedTemporaryFile() as file:
        store = dist.FileStore(file.name, 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        after = replaced()
        dist.destroy_process_group()
    print(json.dumps([before, after]), flush=True)

for case in json.loads(sys.argv[1]):
    if os.fork() == 0:
        of_group(*case)
        os._exit(0)
    assert os.wait()[1] == 0, case
"""
Replaced = dict[tuple[str, str], list[list[str]]]
STARTERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID")


@pytest.fixture(scope="module")
def replaced() -> Replaced:
    """Which functions of PyTorch are ours, before and after a group was made.

    By the group's backend, and the variable that is set.
    """
    cases = [("sirtaki", ""), ("gloo", ""), *(("gloo", name) for name in STARTERS)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


def test_nothing_is_replaced_until_a_group_of_ours_is_made(replaced: Replaced) -> None:
    assert replaced["sirtaki", ""] == [[], list(FUNCTIONS)]


def test_nothing_is_replaced_for_other_backends(replaced: Replaced) -> None:
    assert replaced["gloo", ""] == [[], []]


@pytest.mark.parametrize("name", STARTERS)
def test_under_a_starter_without_pytorchs_variables_ranks_can_meet(
    name: str, replaced: Replaced
) -> None:
    assert replaced["gloo", name] == [["_env_rendezvous_handler"]] * 2


def test_a_pytorch_that_would_hang_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.6.1"))
    with pytest.raises(RuntimeError, match=r"need PyTorch 2\.7 or newer, not 2\.6\.1"):
        create(None)
