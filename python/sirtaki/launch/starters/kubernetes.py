"""Kubernetes: the objects of a job whose pods are its ranks, or start several each."""

from __future__ import annotations

import base64
import re
import secrets
from typing import Any

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.starters.job_script import SubmitRequest
from sirtaki.records import dataclass

SUBMIT = ["kubectl", "apply", "-f", "-"]
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_MASTER_PORT = 29500
_SECRET_FOLDER = "/run/sirtaki"
_SECRET_BYTES = 32
# Of the pods in a JobSet.
_GROUP = "node"


@dataclass(frozen=True)
class Pods:
    """What only Kubernetes needs to know. Raises LaunchError for what it would refuse.

    image: of the containers. namespace: of all objects; None: kubectl's own. restarts: how often
    all pods are started again after a failure, by a JobSet; None: never, by a Job.
    """

    image: str
    namespace: str | None = None
    restarts: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if _IMAGE.fullmatch(self.image) is None:
            raise LaunchError(f"--image {self.image!r}: expected the name of a container image")
        if self.namespace is not None:
            _require_label("--namespace", self.namespace)


def manifest(request: SubmitRequest, pods: Pods, secret: bool) -> str:
    """Return the objects of a job as YAML: a service by which pods find rank 0, and the pods.

    secret: whether a secret is among them, for kubectl alone to read. Raises LaunchError for what
    Kubernetes has no place for.
    """
    import yaml

    _check(request)
    if pods.restarts is None:
        objects = [_service(request), _job(request, pods)]
    else:
        objects = [_job_set(request, pods, pods.restarts)]
    if secret:
        objects.insert(0, _secret(request))
    for each in objects:
        if pods.namespace is not None:
            each["metadata"]["namespace"] = pods.namespace
    text = str(yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False))
    return text if secret else _how_to_make_secret(request, pods) + text


def _check(request: SubmitRequest) -> None:
    _require_label("--name", request.name)
    for flag, value in (("--account", request.account), ("--output", request.output)):
        if value is not None:
            raise LaunchError(f"{flag} has no meaning on Kubernetes; leave it out")
    if request.modules:
        raise LaunchError("--module has no meaning on Kubernetes: what a rank needs is its image's")


def _require_label(flag: str, value: str) -> None:
    if _LABEL.fullmatch(value) is None:
        raise LaunchError(
            f"{flag} {value!r}: Kubernetes wants at most 52 small letters, digits and -, with "
            "letters or digits at both ends"
        )


def _secret(request: SubmitRequest) -> dict[str, Any]:
    text = secrets.token_hex(_SECRET_BYTES)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": request.name},
        "data": {"secret": base64.b64encode(text.encode()).decode()},
    }


def _how_to_make_secret(request: SubmitRequest, pods: Pods) -> str:
    where = f" --namespace {pods.namespace}" if pods.namespace else ""
    return (
        "# The job's secret, once, before the rest:\n"
        f"#   kubectl create secret generic {request.name}{where} "
        '--from-literal=secret="$(openssl rand -hex 32)"\n'
    )


def _service(request: SubmitRequest) -> dict[str, Any]:
    """Give pods names; also those that are not ready, as ranks wait for each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": request.name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": request.name},
        },
    }


def _job(request: SubmitRequest, pods: Pods) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request),
        "spec": _job_spec(request, pods),
    }


def _job_set(request: SubmitRequest, pods: Pods, restarts: int) -> dict[str, Any]:
    """Start all pods again when one fails; a JobSet gives them names without a service of ours."""
    group = {
        "name": _GROUP,
        "replicas": 1,
        "template": {"spec": _job_spec(request, pods)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(request),
        "spec": {"failurePolicy": {"maxRestarts": restarts}, "replicatedJobs": [group]},
    }


def _metadata(request: SubmitRequest) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": request.name}
    if request.queue is not None:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": request.queue}
    return metadata


def _job_spec(request: SubmitRequest, pods: Pods) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": request.nodes,
        "parallelism": request.nodes,
        # A rank that is started again alone cannot come back into its world.
        "backoffLimit": 0,
        "template": {"spec": _pod(request, pods)},
    }
    if request.time is not None:
        hours, minutes, seconds = map(int, request.time.split(":"))
        spec["activeDeadlineSeconds"] = (hours * 60 + minutes) * 60 + seconds
    return spec


def _pod(request: SubmitRequest, pods: Pods) -> dict[str, Any]:
    # A JobSet says it itself.
    named = {"subdomain": request.name} if pods.restarts is None else {}
    return {
        **named,
        "restartPolicy": "Never",
        # Readable by the group of a user who is not root.
        "securityContext": {"fsGroup": 1000},
        "containers": [_container(request, pods)],
        "volumes": [
            {"name": "secret", "secret": {"secretName": request.name, "defaultMode": 0o400}},
            # The default of 64 MiB is too small for the loaders of most frameworks.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _container(request: SubmitRequest, pods: Pods) -> dict[str, Any]:
    cores = request.threads * request.ranks_per_node
    resources: dict[str, Any] = {"requests": {"cpu": str(cores)}}
    if request.gpus:
        resources["limits"] = {"nvidia.com/gpu": str(request.gpus)}
    first = "0" if pods.restarts is None else f"{_GROUP}-0-0"
    variables = {
        "MASTER_ADDR": f"{request.name}-{first}.{request.name}",
        "MASTER_PORT": str(_MASTER_PORT),
        "SIRTAKI_SECRET_FILE": f"{_SECRET_FOLDER}/secret",
        "OMP_NUM_THREADS": str(request.threads),
    }
    command, place = _places(request)
    return {
        "name": "rank",
        "image": pods.image,
        # Kubernetes replaces $(NAME) in arguments, and takes $$ for a dollar.
        "command": [word.replace("$", "$$") for word in command],
        "env": [*place, *({"name": name, "value": value} for name, value in variables.items())],
        "resources": resources,
        "volumeMounts": [
            {"name": "secret", "mountPath": _SECRET_FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _places(request: SubmitRequest) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the command of a pod, and the variables that say which ranks it has."""
    if request.ranks_per_node == 1:
        rank = {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
        return request.command, [rank, {"name": "WORLD_SIZE", "value": str(request.nodes)}]
    # Which node it is Kubernetes itself says in JOB_COMPLETION_INDEX.
    counts = ["--nnodes", str(request.nodes), "--nproc-per-node", str(request.ranks_per_node)]
    return ["sirtaki", "run", *counts, "--", *request.command], []
