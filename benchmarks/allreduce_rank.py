"""One rank of allreduce.py, started by mpirun so that Open MPI can take part.

Arguments: the plan as JSON, a folder that all ranks share, the names of the peers; MPIs other than
Open MPI have jobs of their own. Rank 0 writes timings.json there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mpi4py
from mpi_jobs import Peer
from peers import GLOO, OPEN_MPI, gloo, join_gloo, open_mpi

import sirtaki
from sirtaki.launch.hosts.environment import rank_environment
from sirtaki.launch.hosts.slots import Slot
from sirtaki.observe.contenders import own_contenders
from sirtaki.observe.measure import Plan, measure

# One thread calls MPI: let it leave out its locks.
mpi4py.rc.thread_level = "funneled"


def main() -> None:
    from mpi4py import MPI

    plan, folder = Plan(**json.loads(sys.argv[1])), Path(sys.argv[2])
    world = MPI.COMM_WORLD
    slot = Slot(world.rank, world.size, "localhost", world.rank, world.size, 0, 1)
    os.environ.update(rank_environment(slot, os.environ["SIRTAKI_RENDEZVOUS"]))
    sirtaki.init()
    contenders = own_contenders()
    others = {}
    if sys.argv[3:]:
        join_gloo(folder / "gloo", world.rank, world.size)
        others = {
            name: Peer(folder, name, world.rank)
            for name in sys.argv[3:]
            if name not in (GLOO, OPEN_MPI)
        }
        contenders |= {GLOO: gloo(), OPEN_MPI: open_mpi(world), **others}
    timings = measure(plan, contenders)
    if world.rank == 0:
        libraries = [MPI.Get_library_version(), *(peer.library for peer in others.values())]
        mpi = "; ".join(" ".join(library.split(",")[0].split()) for library in libraries)
        result = {"timings": timings, "mpi": mpi}
        (folder / "timings.json").write_text(json.dumps(result))
    sirtaki.shutdown()


if __name__ == "__main__":
    main()
