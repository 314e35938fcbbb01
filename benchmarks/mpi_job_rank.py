"""One rank of an MPI's job, which does what the rank of allreduce.py with its number says.

Arguments: the folder of the pipes, the MPI's name.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import mpi4py
import numpy as np
from mpi_jobs import pipes

from sirtaki.observe.contenders import timed

# One thread calls MPI: let it leave out its locks.
mpi4py.rc.thread_level = "funneled"


def main() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    orders, answers = pipes(Path(sys.argv[1]), sys.argv[2], world.rank)
    with orders.open() as asked, answers.open("w") as told:
        print(json.dumps(MPI.Get_library_version().splitlines()[0]), file=told, flush=True)
        data = np.zeros(0, np.float32)
        run = timed(lambda: None)
        for line in asked:
            order = json.loads(line)
            if data.size != order["elements"]:
                data = np.empty(order["elements"], np.float32)
                run = timed(partial(world.Allreduce, MPI.IN_PLACE, data))
            data.fill(order["value"])
            world.Barrier()
            seconds = run(order["repeats"])
            result = {"lowest": float(data.min()), "highest": float(data.max()), "seconds": seconds}
            print(json.dumps(result), file=told, flush=True)


if __name__ == "__main__":
    main()
