"""The objects that `sirtaki submit --scheduler kubernetes` makes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sirtaki.launch.flags.parser import make_parser
from sirtaki.schedulers.job_script import SubmitRequest
from sirtaki.schedulers.kubernetes import Pods, manifest
from sirtaki.submit.command import main

COMMAND = ["python", "train.py", "it's $(HOME) $$ $x"]


def objects(
    secret: bool = False, restarts: int | None = None, **asked: Any
) -> dict[str, dict[str, Any]]:
    """The objects by kind."""
    request = SubmitRequest(COMMAND, **{"nodes": 4, "name": "train", **asked})
    text = manifest(request, Pods("registry.example/train:1", "lab", restarts), secret)
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container(**asked: Any) -> dict[str, Any]:
    (found,) = objects(**asked)["Job"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def expanded(text: str) -> str:
    """What Kubernetes makes of a word of a command whose variables it does not know."""
    found, rest = "", text
    while rest:
        if rest.startswith("$$"):
            found, rest = found + "$", rest[2:]
        else:
            found, rest = found + rest[0], rest[1:]
    return found


def test_each_pod_is_a_rank_that_finds_rank_0_by_the_service() -> None:
    found = objects()
    job, service = found["Job"]["spec"], found["Service"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (4, 4, "Indexed")
    assert job["template"]["spec"]["subdomain"] == service["metadata"]["name"] == "train"
    assert service["spec"]["selector"] == {"job-name": found["Job"]["metadata"]["name"]}
    variables = {each["name"]: each.get("value") for each in container()["env"]}
    assert variables["WORLD_SIZE"] == "4"
    assert variables["MASTER_ADDR"] == "train-0.train"
    assert variables["SIRTAKI_SECRET_FILE"] == "/run/sirtaki/secret"
    assert "RANK" in variables


def test_the_command_arrives_as_it_was_given() -> None:
    assert [expanded(word) for word in container()["command"]] == COMMAND


def test_several_ranks_of_a_pod_are_started_by_a_launcher_in_it() -> None:
    pod = container(ranks_per_node=3, threads=2)
    assert pod["resources"]["requests"] == {"cpu": "6"}
    variables = {each["name"]: each.get("value") for each in pod["env"]}
    assert not {"RANK", "WORLD_SIZE"} & variables.keys()
    args = make_parser("sirtaki").parse_args([expanded(word) for word in pod["command"][2:]])
    assert pod["command"][:2] == ["sirtaki", "run"]
    assert args.command == ["--", *COMMAND]
    assert (args.nnodes, args.nproc_per_node, variables["MASTER_ADDR"]) == (4, "3", "train-0.train")


def test_pods_that_start_again_are_those_of_a_job_set() -> None:
    """Its fields are those of jobset.x-k8s.io/v1alpha2, which names pods SET-GROUP-0-INDEX.SET."""
    found = objects(restarts=3, queue="gpu")
    assert list(found) == ["JobSet"]
    assert found["JobSet"]["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert found["JobSet"]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpu"}
    spec = found["JobSet"]["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 3}
    (group,) = spec["replicatedJobs"]
    assert group.keys() == {"name", "replicas", "template"}
    assert group["replicas"] == 1
    job = group["template"]["spec"]
    assert (job["completions"], job["backoffLimit"]) == (4, 0)
    (pod,) = job["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in pod["env"]}
    assert variables["MASTER_ADDR"] == f"train-{group['name']}-0-0.train"


def test_cores_gpus_time_and_queue_have_their_places() -> None:
    asked = {"threads": 3, "gpus": 2, "time": "01:02:03", "queue": "gpu"}
    found = objects(**asked)["Job"]
    assert container(**asked)["resources"] == {
        "requests": {"cpu": "3"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert found["spec"]["activeDeadlineSeconds"] == 3723
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpu"}


def test_all_objects_are_in_the_namespace() -> None:
    assert {each["metadata"]["namespace"] for each in objects(secret=True).values()} == {"lab"}


def test_a_secret_is_shown_to_kubectl_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Secret" in objects(secret=True)
    arguments = ["--scheduler", "kubernetes", "--image", "a:1", "--nodes", "2", "--dry-run"]
    assert main([*arguments, "--", "python"]) == 0
    shown = capsys.readouterr().out
    assert "kubectl create secret generic sirtaki" in shown
    assert "kind: Secret" not in shown


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"account": "a"}, "--account has no meaning"),
        ({"output": "a"}, "--output has no meaning"),
        ({"modules": ["gcc"]}, "--module has no meaning"),
        ({"name": "Train_1"}, "--name 'Train_1'"),
    ],
)
def test_what_kubernetes_has_no_place_for_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        objects(**asked)


@pytest.mark.parametrize(("image", "namespace"), [("a b", None), ("--x", None), ("a", "A b")])
def test_hostile_names_are_refused(image: str, namespace: str | None) -> None:
    with pytest.raises(ValueError, match=r"expected|wants"):
        Pods(image, namespace)


def test_an_image_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scheduler", "kubernetes", "--", "python"]) == 2
    assert "--image NAME" in capsys.readouterr().err
