"""Worlds whose hosts differ by name only: ranks on this machine that talk over its loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

_STARTED = ("HOROVOD_", "SIRTAKI_", "OMPI_", "PMI", "SLURM")


def run_ranks(
    code: str,
    folder: Path,
    host_of: Sequence[int],
    limit: float,
    start_timeout: float,
    tls: bool = False,
) -> list[subprocess.CompletedProcess[str]]:
    """Run `code` as every rank to its end.

    folder: for the secret. host_of: the host of each rank, whose ranks follow one another. limit:
    seconds for everything. start_timeout: HOROVOD_START_TIMEOUT.
    """
    secret = os.urandom(32)
    (folder / "secret").write_bytes(secret)
    (folder / "secret").chmod(0o600)
    base = {name: value for name, value in os.environ.items() if not name.startswith(_STARTED)}
    base |= {
        "HOROVOD_SIZE": str(len(host_of)),
        "HOROVOD_START_TIMEOUT": str(start_timeout),
        "SIRTAKI_IFACE": "lo",
        "SIRTAKI_SECRET_FILE": str(folder / "secret"),
    }
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(TcpStoreServer(["127.0.0.1"], secret, tls=tls))
        ranks = []
        for rank, host in enumerate(host_of):
            local_rank = host_of[:rank].count(host)
            place = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_LOCAL_RANK": str(local_rank),
                "HOROVOD_LOCAL_SIZE": str(host_of.count(host)),
                "HOROVOD_CROSS_RANK": str(host),
                "HOROVOD_CROSS_SIZE": str(max(host_of) + 1),
                "SIRTAKI_HOST_ID": f"host {host}",
                "SIRTAKI_RENDEZVOUS": server.address,
            }
            ranks.append(
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", code],
                        env={**base, **place},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
            )
            stack.callback(ranks[-1].kill)
        said = [process.communicate(timeout=limit) for process in ranks]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(ranks, said, strict=True)
    ]
