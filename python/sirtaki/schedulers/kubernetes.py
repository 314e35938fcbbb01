"""Kubernetes, and MPIJobs of Kubeflow's MPI Operator."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirtaki.schedulers.job_script import Flag, SubmitRequest
from sirtaki.schedulers.scheduler import Scheduler, number_of
from sirtaki.schedulers.start import Environ

# Other pods may first have to fetch their images.
_START_SECONDS = 300.0
# The variables for the mounted list of hosts, one per MPI.
_HOSTFILES = ("OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE")
# The operator mounts this script beside the list of hosts.
_DISCOVERY = "discover_hosts.sh"

_LABEL = r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?"
_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_MASTER_PORT = 29500
_SECRET_FOLDER = "/run/sirtaki"
_SECRET_BYTES = 32
# The name of the group of pods in a JobSet.
_GROUP = "node"


class Kubernetes(Scheduler):
    """A cluster in which each pod is a node that starts its own ranks."""

    name = "kubernetes"
    shown = ("KUBERNETES_SERVICE_HOST",)
    submit = ("kubectl", "apply", "-f", "-")
    flags = (
        Flag("--image", "NAME", "Kubernetes: of the containers"),
        Flag("--namespace", "NAME", "Kubernetes: of the job's objects"),
        Flag(
            "--restarts",
            "N",
            "Kubernetes: start all pods again after a failure, so often, by a JobSet",
            number=True,
        ),
    )

    def start_seconds(self, environ: Environ) -> float | None:
        """See `Scheduler`."""
        return _START_SECONDS if environ.get("KUBERNETES_SERVICE_HOST") else None

    def hostfile(self, environ: Environ) -> str | None:
        """See `Scheduler`."""
        if environ.get("K_MPI_JOB_ROLE") != "launcher":
            return None
        return next((environ[name] for name in _HOSTFILES if environ.get(name)), None)

    def discovery_script(self, environ: Environ) -> str | None:
        """See `Scheduler`."""
        hostfile = environ.get(_HOSTFILES[0], "")
        if environ.get("K_MPI_JOB_ROLE") != "launcher" or not hostfile:
            return None
        script = Path(hostfile).with_name(_DISCOVERY)
        return str(script) if script.is_file() else None

    def discovered_slots(self, environ: Environ) -> int | None:
        """See `Scheduler`."""
        slots = number_of(environ, "OMPI_MCA_orte_set_default_slots")
        return slots if environ.get("K_MPI_JOB_ROLE") else None

    def script(self, request: SubmitRequest, programs: Path) -> str:
        """Return the objects of the job; its image contains the programs."""
        own = request.own
        if own["image"] is None:
            raise ValueError("Kubernetes runs images: give --image NAME, of one that has sirtaki")
        pods = Pods(own["image"], own["namespace"], own["restarts"])
        return manifest(request, pods, secret=not request.shown)


@dataclass(frozen=True)
class Pods:
    """The settings for Kubernetes only. Raises ValueError for values that it would refuse.

    image: of the containers. namespace: of all objects; None: kubectl's own. restarts: how often a
    JobSet restarts all pods after a failure; None: a Job without restarts.
    """

    image: str
    namespace: str | None = None
    restarts: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if re.fullmatch(_IMAGE, self.image) is None:
            raise ValueError(f"--image {self.image!r}: expected the name of a container image")
        if self.namespace is not None:
            _require_label("--namespace", self.namespace)


def manifest(request: SubmitRequest, pods: Pods, secret: bool) -> str:
    """Return the objects of a job as YAML: a service by which pods find rank 0, and the pods.

    secret: whether to include a secret, which only kubectl may read. Raises ValueError for settings
    that Kubernetes does not support.
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
            raise ValueError(f"{flag} has no meaning on Kubernetes; leave it out")
    if request.modules:
        raise ValueError("--module has no meaning on Kubernetes: what a rank needs is its image's")


def _require_label(flag: str, value: str) -> None:
    if re.fullmatch(_LABEL, value) is None:
        raise ValueError(
            f"{flag} {value!r}: Kubernetes wants at most 52 small letters, digits and -, with "
            "letters or digits at both ends"
        )


def _secret(request: SubmitRequest) -> dict[str, Any]:
    import base64

    text = os.urandom(_SECRET_BYTES).hex()
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
    """Return a service that gives pods names before they are ready: ranks wait for each other."""
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
    """Return a JobSet, which restarts all pods when one fails and gives them names itself."""
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
        # A single restarted rank could not rejoin its world.
        "backoffLimit": 0,
        "template": {"spec": _pod(request, pods)},
    }
    if request.time is not None:
        hours, minutes, seconds = map(int, request.time.split(":"))
        spec["activeDeadlineSeconds"] = (hours * 60 + minutes) * 60 + seconds
    return spec


def _pod(request: SubmitRequest, pods: Pods) -> dict[str, Any]:
    # A JobSet sets the subdomain itself.
    named = {"subdomain": request.name} if pods.restarts is None else {}
    return {
        **named,
        "restartPolicy": "Never",
        # The group lets a user other than root read the secret.
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
        # Kubernetes replaces $(NAME) in arguments, and $$ by a dollar.
        "command": [word.replace("$", "$$") for word in command],
        "env": [*place, *({"name": name, "value": value} for name, value in variables.items())],
        "resources": resources,
        "volumeMounts": [
            {"name": "secret", "mountPath": _SECRET_FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _places(request: SubmitRequest) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the command of a pod, and the variables that determine its ranks."""
    if request.ranks_per_node == 1:
        rank = {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
        return request.command, [rank, {"name": "WORLD_SIZE", "value": str(request.nodes)}]
    # Kubernetes sets JOB_COMPLETION_INDEX to the number of the node.
    counts = ["--nnodes", str(request.nodes), "--nproc-per-node", str(request.ranks_per_node)]
    return ["sirtaki", "run", *counts, "--", *request.command], []


KUBERNETES = Kubernetes()
