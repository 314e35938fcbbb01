"""Jobs in which torchrun, or a launcher of ours, is started on each host."""

from __future__ import annotations

from sirtaki.schedulers.scheduler import Scheduler
from sirtaki.schedulers.start import SET_FOR_TORCH, Environ, Start, described, placed

# The variables that replace a missing flag of a node's launcher, in this order: torchrun's, then
# that of Kubernetes' indexed jobs.
OF_A_LAUNCHER = {
    "nnodes": ("PET_NNODES",),
    "node_rank": ("PET_NODE_RANK", "JOB_COMPLETION_INDEX"),
    "nproc_per_node": ("PET_NPROC_PER_NODE",),
    "master_addr": ("PET_MASTER_ADDR", "MASTER_ADDR"),
    "master_port": ("PET_MASTER_PORT", "MASTER_PORT"),
}
# Variables that describe a node's place, and would be wrong for its ranks.
OF_A_NODE = {name for names in OF_A_LAUNCHER.values() for name in names} | {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    "SIRTAKI_SECRET_FILE",
}
_MASTER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_HERE = frozenset(("localhost", "127.0.0.1", "::1"))


def starts_each_node(environ: Environ) -> bool:
    """Return whether the variables describe a node that starts its own ranks."""
    return "PET_NNODES" in environ and "PET_NODE_RANK" in environ


class Torchrun(Scheduler):
    """Any starter that sets the variables of `torch.distributed`."""

    name = "torchrun"
    shown = ("TORCHELASTIC_RUN_ID",)

    def find_start(self, environ: Environ) -> Start | None:
        """See `Scheduler`."""
        ours = environ.get(SET_FOR_TORCH, "").split(",")
        if any(not environ.get(name) or name in ours for name in _MASTER):
            return None
        local = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")
        start = described(environ, "MASTER_ADDR", "RANK", "WORLD_SIZE", *local)
        address, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
        run = [environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
        topology = start.topology
        if topology.local_size == 0 and address in _HERE:
            # Only ranks of the same host can reach this address.
            topology = placed(topology.rank, topology.size, topology.rank, topology.size)
        bracketed = f"[{address}]" if ":" in address else address
        job = ":".join(("torch", address, port, *run))
        return start._replace(topology=topology, job=job, master=f"{bracketed}:{port}")


TORCHRUN = Torchrun()
