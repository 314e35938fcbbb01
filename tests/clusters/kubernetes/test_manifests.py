"""The manifests among the examples are valid, and those of our own command are what it prints."""

from __future__ import annotations

import copy
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import needs
from tests.clusters.kubernetes import schemas
from tests.clusters.kubernetes.test_objects import validated
from tests.single.launching import SIRTAKI

jsonschema = needs.package("jsonschema")
needs.package("kubernetes_validate")
pytestmark = pytest.mark.nightly

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
SCHEMAS = {
    "jobset.yaml": schemas.JOB_SET,
    "mpijob.yaml": schemas.MPI_JOB,
    "trainjob.yaml": schemas.TRAIN_JOB,
}


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def pod_templates(value: Any) -> list[dict[str, Any]]:
    """Whatever has containers with images, wherever it is in an object."""
    if isinstance(value, list):
        return [found for each in value for found in pod_templates(each)]
    if not isinstance(value, dict):
        return []
    if any("image" in each for each in value.get("containers", ())):
        return [value]
    return [found for each in value.values() for found in pod_templates(each)]


def test_every_example_is_known() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {"job.yaml", *SCHEMAS}


def test_the_job_is_what_kubernetes_knows(tmp_path: Path) -> None:
    done = validated((EXAMPLES / "job.yaml").read_text(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SCHEMAS)
def test_other_kinds_have_the_fields_of_their_schemas(name: str) -> None:
    (found,) = objects(name)
    jsonschema.validate(found, SCHEMAS[name])


@pytest.mark.parametrize("name", ["jobset.yaml", "mpijob.yaml"])
def test_their_pods_are_what_kubernetes_knows(name: str, tmp_path: Path) -> None:
    pods = pod_templates(objects(name))
    assert len(pods) == {"jobset.yaml": 1, "mpijob.yaml": 2}[name]
    for pod in pods:
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": pod}
        done = validated(yaml.safe_dump(whole), tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_field_that_does_not_exist_is_found(name: str) -> None:
    (found,) = objects(name)
    wrong = copy.deepcopy(found)
    wrong["spec"]["replicas"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replicas"):
        jsonschema.validate(wrong, SCHEMAS[name])


@pytest.mark.parametrize("name", ["job.yaml", "jobset.yaml"])
def test_an_example_is_what_its_command_prints(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    command = shlex.split(text.splitlines()[1].lstrip("# "))
    assert command[0] == "sirtaki"
    done = subprocess.run(
        [*SIRTAKI, *command[1:]], capture_output=True, text=True, timeout=60, check=True
    )
    assert text.split("\n", 2)[2] == done.stdout
