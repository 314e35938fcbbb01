"""`ElasticRayExecutor`: functions on actors that come and go with the nodes of the cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sirtaki.ray import nodes
from sirtaki.ray.elastic_job import Callbacks, ElasticRay
from sirtaki.ray.nodes import Share
from sirtaki.ray.settings import ElasticRaySettings, write_key

Executable = tuple[Callable[..., Any] | None, Sequence[Any], Mapping[str, Any]]
_KEY_FILE = "~/ray_bootstrap_key.pem"


class RayHostDiscovery:
    """Tells which machines of the cluster there are, and how many processes each takes.

    Args:
        use_gpu: Whether processes have GPUs.
        cpus_per_slot: What each has of the CPUs.
        gpus_per_slot: What each has of the GPUs, with `use_gpu`.
    """

    def __init__(
        self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1
    ) -> None:
        self._share = Share(cpus_per_slot, gpus_per_slot if use_gpu else 0)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the slots by the address of the machine; those without any are left out."""
        found: dict[str, int] = {}
        for node in nodes.alive():
            if slots := node.slots(self._share):
                found[node.address] = found.get(node.address, 0) + slots
        return found


class ElasticRayExecutor:
    """Runs functions on actors that are replaced when they are lost; more come with new nodes.

    The interface is that of Horovod's `horovod.ray.ElasticRayExecutor`. The function is one of an
    elastic job: it keeps its state in a `State` of `horovod.*.elastic`.

    Args:
        settings: From `create_settings`, or any object with attributes of these names.
        use_gpu: Whether processes have GPUs. Each sees all GPUs of its node, and takes the one of
            its local rank.
        cpus_per_slot: What Ray reserves for a process.
        gpus_per_slot: How many GPUs; default 1.
        env_vars: Variables of the processes' environment.
        override_discovery: Whether the hosts are the nodes of the cluster; False: those that
            `settings.discovery.find_available_hosts_and_slots()` returns.

    Raises:
        ValueError: Arguments contradict each other.
    """

    @classmethod
    def create_settings(
        cls,
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: Any = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticRaySettings:
        """Return settings; see `ElasticRaySettings`.

        Args:
            min_num_proc: How many processes a world has at least.
            max_num_proc: How many it has at most; None: as many as the cluster takes.
            reset_limit: How many new worlds there may be after the first.
            elastic_timeout: How many seconds a world with enough processes may take to form.
            timeout_s: How many seconds an actor may take to start.
            ssh_identity_file: Kept for programs that give it; Sirtaki needs no key.
            nics: The network interfaces of this machine at which processes reach it.
            min_np: Horovod's old name of `min_num_proc`.
            max_np: Horovod's old name of `max_num_proc`.
            **kwargs: Other attributes of `ElasticRaySettings`.
        """
        write_key(ssh_identity_file, kwargs.pop("ssh_str", None))
        return ElasticRaySettings(
            min_num_proc=_renamed("min_np", min_np, "min_num_proc", min_num_proc),
            max_num_proc=_renamed("max_np", max_np, "max_num_proc", max_num_proc),
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file or str(Path(_KEY_FILE).expanduser()),
            nics=nics,
            **kwargs,
        )

    def __init__(
        self,
        settings: object = None,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        own = ElasticRaySettings.of(settings)
        share = Share.of(cpus_per_slot, use_gpu, gpus_per_slot, "gpus_per_slot")
        discovery = None if override_discovery else _function_of(own.discovery)
        self._job = ElasticRay(own, share, dict(env_vars or {}), discovery)
        self._has_started = False

    def start(self) -> None:
        """Look whether Ray is there; `run` starts the processes.

        Raises:
            RuntimeError: It is not: call `ray.init` first.
        """
        nodes.alive()
        self._has_started = True

    def run(
        self,
        worker_fn: Callable[[], Any],
        callbacks: Callbacks | None = None,
    ) -> list[Any]:
        """Call a function on processes that come and go; return what the last ones returned.

        Args:
            worker_fn: The function, without arguments. It travels by Ray's pickling.
            callbacks: Each is called, in a thread, with what a process gives to `ray_logger.log`.

        Returns:
            What the members of the last world returned, by rank.

        Raises:
            RuntimeError: The job has failed; names the process, its node, and shows its traceback.
                The cause is Ray's exception.
        """
        if not self._has_started:
            raise RuntimeError("ElasticRayExecutor has not started: call start() first")
        return self._job.run(worker_fn, callbacks)


class ElasticWorkers:
    """The ranks of a `RayExecutor` whose job is elastic.

    Args:
        settings: How the job goes on.
        share: What each rank has of its node.
        override_discovery: See `ElasticRayExecutor`.
    """

    def __init__(
        self, settings: ElasticRaySettings, share: Share, override_discovery: bool
    ) -> None:
        discovery = None if override_discovery else _function_of(settings.discovery)
        self._job = ElasticRay(settings, share, {}, discovery)
        self._executable: Executable | None = None

    def start(self, executable: Executable, variables: Mapping[str, Any]) -> None:
        """Note what each rank begins with.

        Args:
            executable: A class or None, and the arguments of the object that each rank makes of it.
            variables: Of the ranks' environment.
        """
        nodes.alive()
        self._executable = executable
        self._job = replace(self._job, variables=dict(variables))

    def run(self, function: Callable[[], Any], callbacks: Callbacks | None) -> list[Any]:
        """See `ElasticRayExecutor.run`."""
        self._started()
        return self._job.run(function, callbacks)

    def execute(self, function: Callable[[Any], Any], callbacks: Callbacks | None) -> list[Any]:
        """Call a function with the object that each rank makes."""
        return self.run(partial(_execute, function, self._started()), callbacks)

    def _started(self) -> Executable:
        if self._executable is None:
            raise RuntimeError("RayExecutor has no workers: call start() first")
        return self._executable


def _execute(function: Callable[[Any], Any], executable: Executable) -> Any:
    cls, args, kwargs = executable
    return function(None if cls is None else cls(*args, **kwargs))


def _renamed(old: str, old_value: Any, new: str, new_value: Any) -> Any:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    return old_value


def _function_of(discovery: Any) -> Callable[[], Mapping[str, int]]:
    if discovery is None:
        raise ValueError(
            "override_discovery=False needs settings.discovery, an object with "
            "find_available_hosts_and_slots()"
        )
    found: Callable[[], Mapping[str, int]] = discovery.find_available_hosts_and_slots
    return found
