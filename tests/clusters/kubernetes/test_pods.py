"""Ranks with the variables of pods, in namespaces of their own as far as names of hosts go."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirtaki.rendezvous.network import interfaces
from tests import needs

pytestmark = [needs.root, pytest.mark.nightly]
SUM = """
import numpy as np
import sirtaki as hvd
hvd.init()
print(hvd.rank(), hvd.cross_size(), hvd.allreduce(np.full(1, hvd.rank()), op=hvd.Sum)[0])
"""


def test_ranks_wait_for_a_name_that_does_not_resolve_yet(tmp_path: Path) -> None:
    hosts, secret = tmp_path / "hosts", tmp_path / "secret"
    hosts.write_text("127.0.0.1 localhost\n")
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    pods = []
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "train-0.train",
            "MASTER_PORT": "29500",
            "SIRTAKI_SECRET_FILE": str(secret),
            "SIRTAKI_HOST_ID": f"pod {rank}",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        }
        enter = f'mount --bind "{hosts}" /etc/hosts && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", enter, "sh", sys.executable, "-c", SUM]
        pods.append(
            subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
            )
        )
    time.sleep(2)  # both have found nothing by then
    with hosts.open("a") as file:
        file.write(f"{interfaces.candidates()[0]} train-0.train\n")
    assert sorted(pod.communicate(timeout=60)[0] for pod in pods) == ["0 2 1\n", "1 2 1\n"]
