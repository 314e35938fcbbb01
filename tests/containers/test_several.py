"""Three containers on three servers train together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.containers.image import ROOT
from tests.containers.servers import servers

HOSTS = "192.168.11.3:1,192.168.11.5:1,192.168.11.6:1"
TRAIN = ("horovodrun", "-np", "3", "-H", HOSTS, "-p", "12345", "python")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id_ed25519")]
    subprocess.run(command, check=True)
    return folder


def test_the_pages_three_servers_train(keys: Path) -> None:
    """As docker/README.md says, with podman in place of docker."""
    mounts = (f"--volume={keys}:/keys:ro", f"--volume={ROOT}/examples:/work:ro")
    with servers("page", flags=mounts) as containers:
        done = containers[0].execute(*TRAIN, "pytorch_cifar10.py", "--epochs", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "epoch 1/1: loss" in done.stdout
        assert "3 ranks" in done.stderr


def test_horovods_tutorial_runs_as_it_is_written(keys: Path, tmp_path: Path) -> None:
    """Its containers mount /root/.ssh, start sshd themselves and run scripts of /examples."""
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    shutil.copy(keys / "id_ed25519", folder / "id_ed25519")
    shutil.copy(keys / "id_ed25519.pub", folder / "authorized_keys")
    command = ("bash", "-c", "/usr/sbin/sshd -p 12345; sleep infinity")
    mounts = (f"--volume={folder}:/root/.ssh",)
    with servers("tutorial", *command, flags=mounts) as containers:
        script = "/examples/pytorch_cifar10.py"
        done = containers[0].execute(*TRAIN, script, "--epochs", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "epoch 1/1: loss" in done.stdout
