"""Schemas of the kinds that Kubernetes itself does not know, as far as we write their fields.

Objects hold no other fields than these: a field that is misspelt is found. Templates of pods and
of Jobs are left to Kubernetes' own schemas.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
ANY = {"type": "object"}
TEXTS = {"type": "array", "items": TEXT}


def fields(*needed: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object with these fields, some of them needed, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(needed),
        "additionalProperties": False,
    }


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


def kind(name: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = fields("name", name=TEXT, namespace=TEXT, labels=ANY, annotations=ANY)
    return fields(
        *("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": version},
        kind={"const": name},
        metadata=metadata,
        spec=spec,
    )


# jobset.x-k8s.io of JobSet 0.12.
JOB_SET = kind(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    fields(
        "replicatedJobs",
        replicatedJobs=listed(fields("name", "template", name=TEXT, replicas=COUNT, template=ANY)),
        failurePolicy=fields(
            maxRestarts=COUNT,
            restartStrategy={"enum": ["Recreate", "BlockingRecreate"]},
            rules={"type": "array"},
        ),
        successPolicy=fields("operator", operator={"enum": ["All", "Any"]}),
        network=fields(
            enableDNSHostnames={"type": "boolean"},
            publishNotReadyAddresses={"type": "boolean"},
            subdomain=TEXT,
        ),
        suspend={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT,
    ),
)

_REPLICAS = fields(
    "template",
    replicas=COUNT,
    restartPolicy={"enum": ["Never", "OnFailure", "Always", "ExitCode"]},
    template=ANY,
)
# kubeflow.org of the MPI Operator 0.8.
MPI_JOB = kind(
    "MPIJob",
    "kubeflow.org/v2beta1",
    fields(
        "mpiReplicaSpecs",
        slotsPerWorker=COUNT,
        runLauncherAsWorker={"type": "boolean"},
        launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
        sshAuthMountPath=TEXT,
        runPolicy=fields(
            cleanPodPolicy={"enum": ["None", "Running", "All"]},
            activeDeadlineSeconds=COUNT,
            backoffLimit=COUNT,
            ttlSecondsAfterFinished=COUNT,
            suspend={"type": "boolean"},
        ),
        mpiReplicaSpecs=fields("Launcher", Launcher=_REPLICAS, Worker=_REPLICAS),
    ),
)

# trainer.kubeflow.org of Trainer 2.2 and 2.3. A patch may hold these parts of a pod, no others.
_POD_PATCH = fields(
    serviceAccountName=TEXT,
    volumes={"type": "array", "items": ANY},
    initContainers={"type": "array", "items": ANY},
    containers=listed(
        fields("name", name=TEXT, env={"type": "array"}, volumeMounts={"type": "array"})
    ),
    nodeSelector=ANY,
    affinity=ANY,
    tolerations={"type": "array"},
)
_JOB_PATCH = fields(spec=fields(template=fields(metadata=ANY, spec=_POD_PATCH)), metadata=ANY)
TRAIN_JOB = kind(
    "TrainJob",
    "trainer.kubeflow.org/v1alpha1",
    fields(
        "runtimeRef",
        runtimeRef=fields("name", name=TEXT, apiGroup=TEXT, kind=TEXT),
        trainer=fields(
            image=TEXT,
            command=TEXTS,
            args=TEXTS,
            env=listed(fields("name", name=TEXT, value={"type": "string"}, valueFrom=ANY)),
            numNodes=COUNT,
            numProcPerNode=COUNT,
            resourcesPerNode=fields(requests=ANY, limits=ANY),
        ),
        runtimePatches=listed(
            fields(
                "manager",
                manager=TEXT,
                trainingRuntimeSpec=fields(
                    template=fields(
                        metadata=ANY,
                        spec=fields(
                            replicatedJobs=listed(fields("name", name=TEXT, template=_JOB_PATCH))
                        ),
                    )
                ),
            )
        ),
        suspend={"type": "boolean"},
        activeDeadlineSeconds=COUNT,
    ),
)
