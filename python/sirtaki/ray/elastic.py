"""`ElasticRayExecutor`: functions on actors that join and leave with the cluster's nodes."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sirtaki.ray import nodes
from sirtaki.ray.elastic_job import Callbacks, ElasticRay
from sirtaki.ray.nodes import Share
from sirtaki.ray.settings import ElasticRaySettings, write_key

Executable = tuple[Callable[..., Any] | None, Sequence[Any], Mapping[str, Any]]
_KEY_FILE = "~/ray_bootstrap_key.pem"


class RayHostDiscovery:
    """Finds the machines of the cluster and the number of processes for each.

    Args:
        use_gpu: Whether processes have GPUs.
        cpus_per_slot: The CPUs of each process.
        gpus_per_slot: The GPUs of each process, with `use_gpu`.
    """

    def __init__(
        self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1
    ) -> None:
        self._share = Share(cpus_per_slot, gpus_per_slot if use_gpu else 0)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the slots by machine address, without machines that have none."""
        found: dict[str, int] = {}
        for node in nodes.alive():
            if slots := node.slots(self._share):
                found[node.address] = found.get(node.address, 0) + slots
        return found


class TestDiscovery(RayHostDiscovery):
    """Simulates machines that join and leave the cluster, to test an elastic job.

    Args:
        min_hosts: The minimum number of machines.
        max_hosts: The maximum number of machines.
        change_frequency_s: The seconds after which a machine leaves or joins.
        use_gpu: See `RayHostDiscovery`.
        cpus_per_slot: See `RayHostDiscovery`.
        gpus_per_slot: See `RayHostDiscovery`.
        verbose: Whether to print changes.
    """

    __test__ = False

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int = 1,
        verbose: bool = True,
        **_: Any,
    ) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)
        self._least, self._most = min_hosts, max_hosts
        self._seconds, self._verbose = change_frequency_s, verbose
        self._count, self._changed = max_hosts, time.monotonic()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the slots of the machines currently present."""
        found = super().find_available_hosts_and_slots()
        most = min(self._most, len(found))
        count = min(self._count, most)
        if time.monotonic() - self._changed >= self._seconds:
            self._changed = time.monotonic()
            count = count - 1 if count > self._least else most
            if self._verbose:
                print(f"TestDiscovery: {count} of {len(found)} hosts", flush=True)
        self._count = count
        return dict(sorted(found.items())[:count])


class ElasticRayExecutor:
    """Runs functions on actors that are replaced when lost; new nodes add more of them.

    The interface is that of Horovod's `horovod.ray.ElasticRayExecutor`. The function is that of an
    elastic job: it keeps its state in a `State` of `horovod.*.elastic`.

    Args:
        settings: From `create_settings`, or any object with attributes of these names.
        use_gpu: Whether processes have GPUs. Each sees all GPUs of its node, and uses the one with
            its local rank.
        cpus_per_slot: The CPUs that Ray reserves for a process.
        gpus_per_slot: The GPUs of a process; default: 1.
        env_vars: Variables of the processes' environment.
        override_discovery: Whether the hosts are the cluster's nodes; False: the hosts that
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
            min_num_proc: The minimum number of processes in a world.
            max_num_proc: The maximum number; None: as many as the cluster takes.
            reset_limit: The maximum number of new worlds after the first.
            elastic_timeout: The seconds that a world with enough processes may take to form.
            timeout_s: The seconds that an actor may take to start.
            ssh_identity_file: Accepted; Sirtaki needs no key.
            nics: The network interfaces on which processes reach this machine.
            min_np: Horovod's former name of `min_num_proc`.
            max_np: Horovod's former name of `max_num_proc`.
            **kwargs: Other attributes of `ElasticRaySettings`.
        """
        write_key(ssh_identity_file, kwargs.pop("ssh_str", None))
        return ElasticRaySettings(
            min_num_proc=_renamed("min_np", min_np, "min_num_proc", min_num_proc),
            max_num_proc=_renamed("max_np", max_np, "max_num_proc", max_num_proc),
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            timeout_s=timeout_s,
            # There may be no home folder, and the key is not needed.
            ssh_identity_file=ssh_identity_file or os.path.expanduser(_KEY_FILE),  # noqa: PTH111
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
        """Check that Ray is running; `run` starts the processes.

        Raises:
            RuntimeError: It is not running: call `ray.init` first.
        """
        nodes.alive()
        self._has_started = True

    def run(
        self,
        worker_fn: Callable[[], Any],
        callbacks: Callbacks | None = None,
    ) -> list[Any]:
        """Call a function on elastic processes; return the results of the last world.

        Args:
            worker_fn: The function, without arguments. Ray pickles it.
            callbacks: Each is called, in a thread, with every dict passed to `ray_logger.log`.

        Returns:
            The return values of the last world's members, by rank.

        Raises:
            RuntimeError: The job has failed; the message names the process and its node, and
                contains its traceback. The cause is Ray's exception.
        """
        if not self._has_started:
            raise RuntimeError("ElasticRayExecutor has not started: call start() first")
        return self._job.run(worker_fn, callbacks)


class ElasticWorkers:
    """The ranks of a `RayExecutor` whose job is elastic.

    Args:
        settings: The settings of the elastic job.
        share: The share of a node for each rank.
        override_discovery: See `ElasticRayExecutor`.
    """

    def __init__(
        self, settings: ElasticRaySettings, share: Share, override_discovery: bool
    ) -> None:
        discovery = None if override_discovery else _function_of(settings.discovery)
        self._job = ElasticRay(settings, share, {}, discovery)
        self._executable: Executable | None = None

    def start(self, executable: Executable, variables: Mapping[str, Any]) -> None:
        """Store the arguments with which each rank begins.

        Args:
            executable: A class or None, and the arguments of each rank's instance.
            variables: Variables for the ranks' environment.
        """
        nodes.alive()
        self._executable = executable
        self._job = replace(self._job, variables=dict(variables))

    def run(self, function: Callable[[], Any], callbacks: Callbacks | None) -> list[Any]:
        """See `ElasticRayExecutor.run`."""
        self._started()
        return self._job.run(function, callbacks)

    def execute(self, function: Callable[[Any], Any], callbacks: Callbacks | None) -> list[Any]:
        """Call a function with each rank's object."""
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
