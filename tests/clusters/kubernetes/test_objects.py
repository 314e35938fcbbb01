"""The objects of a job are what Kubernetes' own schemas say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sirtaki.schedulers.job_script import SubmitRequest
from sirtaki.schedulers.kubernetes import Pods, manifest
from tests import needs

needs.package("kubernetes_validate")
pytestmark = pytest.mark.nightly
VALIDATE = Path(sys.executable).parent / "kubernetes-validate"


def validated(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "objects.yaml"
    path.write_text(text)
    return subprocess.run(
        [VALIDATE, "--strict", path], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("secret", "ranks"), [(False, 1), (True, 1), (True, 3)])
def test_the_objects_of_a_job_are_valid(tmp_path: Path, secret: bool, ranks: int) -> None:
    request = SubmitRequest(
        ["python", "train.py"],
        nodes=4,
        ranks_per_node=ranks,
        threads=2,
        gpus=1,
        time="01:00:00",
        queue="q",
        name="train",
    )
    done = validated(manifest(request, Pods("example/train:1", "lab"), secret), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_field_that_does_not_exist_is_found(tmp_path: Path) -> None:
    text = manifest(SubmitRequest(["python"], name="train"), Pods("a:1"), secret=False)
    done = validated(text.replace("backoffLimit", "backofLimit"), tmp_path)
    assert done.returncode != 0


def test_the_jobs_of_a_job_set_are_valid(tmp_path: Path) -> None:
    """There is no schema of JobSet itself, so what is in it is held to that of a Job."""
    request = SubmitRequest(["python", "train.py"], nodes=4, ranks_per_node=2, name="train")
    (job_set,) = yaml.safe_load_all(manifest(request, Pods("a:1", restarts=2), secret=False))
    (group,) = job_set["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    done = validated(yaml.safe_dump({**job, **group["template"]}), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
