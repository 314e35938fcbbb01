"""Runs a script as if this rank had a host of its own: `apart.py SCRIPT [ARGUMENT …]`.

NCCL refuses two ranks on one GPU of one host. With a value of NCCL_HOSTID for each rank it takes
them for hosts of their own and connects them by sockets, which shows that results are right on a
machine with one GPU, and nothing about speed.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

os.environ |= {
    "NCCL_HOSTID": f"rank-{os.getpid()}",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
}

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
