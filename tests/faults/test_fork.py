"""A process forked from a rank: it is no rank, and its parents' world stays right."""

from __future__ import annotations

import pytest

from tests.single.launching import Job, python

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import os, tempfile, time
import numpy as np
import sirtaki as hvd

def start(name):
    return hvd.allreduce_async(np.full(1, 100.0), op=hvd.Sum, name=name)

hvd.init()
if hvd.rank() == 0:
    pending = start("pending")
    pid = os.fork()
    if pid == 0:
        try:
            WORK
        except hvd.HorovodInternalError as error:
            print("refused:", error, flush=True)
            os._exit(0)
        os._exit(7)
    assert os.waitpid(pid, 0)[1] == 0
else:
    time.sleep(1)  # so that the child cannot find it done
    pending = start("pending")
assert hvd.synchronize(pending)[0] == 200
for _ in range(3):
    assert hvd.allreduce(np.ones(1), op=hvd.Sum, name="x")[0] == 2
print("right", flush=True)
"""

ENTRY_POINTS = {
    "allreduce": "hvd.allreduce(np.full(1, 100.0), op=hvd.Sum, name='x')",
    "allreduce_async": "hvd.allreduce_async(np.full(1, 100.0), op=hvd.Sum, name='x')",
    "broadcast": "hvd.broadcast(np.ones(1), 0)",
    "barrier": "hvd.barrier()",
    "join": "hvd.join()",
    "add_process_set": "hvd.add_process_set([0])",
    "start_timeline": "hvd.start_timeline(tempfile.mktemp())",
    "stop_timeline": "hvd.stop_timeline()",
    "synchronize": "hvd.synchronize(pending)",
    "poll": "hvd.poll(pending)",
}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_a_forked_child_is_refused_and_the_parents_sums_stay_right(job: Job, entry: str) -> None:
    done = job.run(
        "-np",
        "2",
        *python(PROGRAM.replace("WORK", ENTRY_POINTS[entry])),
        HOROVOD_TIMELINE="DYNAMIC",
        HOROVOD_DYNAMIC_PROCESS_SETS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: this process was forked from rank 0" in done.stdout
    assert "'spawn'" in done.stdout
    assert done.stdout.count("right") == 2


def test_a_forked_child_knows_the_rank_and_leaves_without_disturbing_the_world(job: Job) -> None:
    code = """
import os, sys
import numpy as np
import sirtaki as hvd

hvd.init()
for shuts_down in (False, True):
    pid = os.fork()
    if pid == 0:
        assert hvd.size() == 2 and hvd.rank() in (0, 1)
        if shuts_down:
            hvd.shutdown()
        sys.exit(0)  # with the hooks of atexit
    assert os.waitpid(pid, 0)[1] == 0
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == 2
print("right", flush=True)
"""
    done = job.run("-np", "2", *python(code))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right") == 2


def test_data_loaders_fork_workers_as_ever(job: Job) -> None:
    code = """
import torch
import horovod.torch as hvd

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([float(index + 100 * hvd.rank())])

hvd.init()
torch.set_num_threads(1)
for _ in range(2):
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    for batch in loader:
        total = hvd.allreduce(batch.sum(0), op=hvd.Sum)
print("loaded", total.item(), flush=True)
hvd.shutdown()
"""
    done = job.run("-np", "2", *python(code))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("loaded 444.0") == 2
