"""A job goes on from the checkpoint of another one, on other numbers of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs
from tests.single.launching import GRACE, Job, python

needs.package("torch")
pytestmark = [pytest.mark.job, pytest.mark.slow, pytest.mark.timeout(180)]

TRAIN = """
import sys
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
data = torch.randn(24, 4).double()
model = torch.nn.Linear(4, 1).double()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
sampler = hvd.elastic.ElasticSampler(range(24), shuffle=False)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0)
folder, last = sys.argv[1], int(sys.argv[2])
if hvd.checkpoint.latest(folder):
    hvd.checkpoint.load(folder, state)
used = []
while state.step < last:
    # Each step takes 12 rows, whatever the number of ranks.
    rows = list(sampler)[: 12 // hvd.size()]
    used += rows
    optimizer.zero_grad()
    model(data[rows]).square().mean().backward()
    optimizer.step()
    sampler.record_batch(0, len(rows))
    sampler.reset()
    state.step += 1
    hvd.checkpoint.save(folder, state, state.step, sharded="sharded" in sys.argv)
hvd.checkpoint.wait()
rows = sorted(row for part in hvd.allgather_object(used) for row in part)
if hvd.rank() == 0:
    print(rows, [round(value, 12) for value in model.weight.flatten().tolist()])
"""


@pytest.mark.parametrize("sharded", [(), ("sharded",)])
def test_a_job_of_4_ranks_goes_on_with_3(job: Job, tmp_path: Path, sharded: tuple[str]) -> None:
    def trained(ranks: int, folder: Path, steps: int) -> str:
        arguments = (str(folder), str(steps), *sharded)
        done = job.run("-np", str(ranks), *GRACE, *python(TRAIN), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("<stdout>:")[2].strip()

    whole = trained(4, tmp_path / "whole", 2)
    first = trained(4, tmp_path / "parts", 1)
    second = trained(3, tmp_path / "parts", 2)
    weights = "] ["
    assert second.partition(weights)[2] == whole.partition(weights)[2]
    rows = [eval(text.partition(weights)[0] + "]") for text in (first, second)]
    assert sorted(rows[0] + rows[1]) == list(range(24))
