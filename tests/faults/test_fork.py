"""A process forked from a rank: it is no rank, and its parents' world stays right."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.named_hosts import run_ranks
from tests.single.launching import Job, python

PROGRAM = """
import os, tempfile
import numpy as np
import sirtaki as hvd

def start(name):
    return hvd.allreduce_async(np.full(1, 100.0), op=hvd.Sum, name=name)

hvd.init()
if hvd.rank() == 0:
    pending = start("pending")
    for name, work in WORKS.items():
        pid = os.fork()
        if pid == 0:
            try:
                exec(work)
            except hvd.HorovodInternalError as error:
                print(name, "is refused:", error, flush=True)
                os._exit(0)
            os._exit(7)
        assert os.waitpid(pid, 0)[1] == 0, name
    hvd.send(np.ones(1), 1)
else:
    hvd.recv(np.empty(1), 0)  # so that no child can find it done
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


def test_a_forked_child_is_refused_and_the_parents_sums_stay_right(job: Job) -> None:
    done = job.run(
        "-np",
        "2",
        *python(PROGRAM.replace("WORKS", repr(ENTRY_POINTS))),
        HOROVOD_TIMELINE="DYNAMIC",
        HOROVOD_DYNAMIC_PROCESS_SETS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for entry in ENTRY_POINTS:
        refusal = f"{entry} is refused: this process was forked from rank 0.*'spawn'"
        assert re.search(refusal, done.stdout), done.stdout
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


# The child drops what it has inherited: neither the kernel's list of the parent's connections nor
# these may notice.
CHILD_OF_A_HOST = """
import os, sys
import numpy as np
import sirtaki as hvd

hvd.init()
other, values = 1 - hvd.rank(), np.arange(300_000.0)
for times in range(3):
    if hvd.rank() == 0:
        hvd.recv(values, other)
        large = hvd.irecv(np.empty(300_000), other, tag=1)
        pid = os.fork()
        if pid == 0:
            del hvd, large
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        hvd.send(values[:1], other)
        hvd.synchronize(large)
    else:
        hvd.send(values, other)
        hvd.recv(np.empty(1), other)
        hvd.send(values, other, tag=1)
print("right", flush=True)
"""


def test_a_forked_child_leaves_the_connections_to_other_hosts_alone(tmp_path: Path) -> None:
    ranks = run_ranks(CHILD_OF_A_HOST, tmp_path, host_of=[0, 1], limit=60, start_timeout=20)
    assert [rank.stdout for rank in ranks] == ["right\n"] * 2, [rank.stderr for rank in ranks]
