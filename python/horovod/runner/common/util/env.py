"""The rank in a launcher's variables, before `init`."""

import os

_VARIABLES = (
    ("SIRTAKI_RANK", "SIRTAKI_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """Return (rank, size) from the variables of Horovod's launcher or mpirun, else (0, 1).

    Raises ValueError for a variable that is not a number.
    """
    for rank, size in _VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
