"""A job of Slurm in containers of Charliecloud, which need no root and no service."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.containers.image import IMAGE, run
from tests.containers.test_alone import SUM
from tests.hosts.slurm_bed import SlurmBed, reason_to_skip

pytestmark = [
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
    needs.program("ch-run"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's files, as `ch-convert` unpacks an image."""
    folder = tmp_path_factory.mktemp("tree")
    container = run(["podman", "create", IMAGE]).stdout.strip()
    with subprocess.Popen(["podman", "export", container], stdout=subprocess.PIPE) as exported:
        subprocess.run(["tar", "-C", str(folder), "-x"], stdin=exported.stdout, check=True)
    run(["podman", "rm", container])
    return folder


def test_ranks_that_srun_starts_in_charliecloud_meet(tree: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    python = ("/opt/sirtaki/bin/python", "-c", SUM)
    contained = (shutil.which("ch-run") or "ch-run", str(tree), "--", *python)
    with SlurmBed(tmp_path, 2) as bed:
        env = {**os.environ, "USER": "root", "SIRTAKI_SHARED_DIR": str(shared)}
        step = ("srun", "--nodes=2", "--ntasks-per-node=2", "--kill-on-bad-exit=1")
        done = bed.run(*step, *contained, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("sum 4") == 4, done.stdout + done.stderr
