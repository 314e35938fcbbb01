"""`RayExecutor`: ranks as Ray actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ray

from sirtaki import shipped
from sirtaki.ray import failures
from sirtaki.ray.elastic import ElasticWorkers
from sirtaki.ray.nodes import Share
from sirtaki.ray.placing import Demand, Room, by_node, require_version
from sirtaki.ray.settings import ElasticRaySettings, RaySettings, write_key
from sirtaki.ray.worker import BaseHorovodWorker

_NOT_STARTED = "RayExecutor has no workers: call start() first"


class RayExecutor:
    """Runs functions on actors that form a world: `hvd.init()` in them joins the others.

    The interface is that of Horovod's `horovod.ray.RayExecutor`.

    Args:
        settings: From `create_settings`, or any object with attributes of these names; None for
            the defaults.
        num_workers: The number of ranks, packed onto few nodes.
        num_hosts: In place of it: the number of nodes for ranks.
        num_workers_per_host: With `num_hosts`: the number of ranks on each.
        cpus_per_worker: The CPUs that Ray reserves for a rank.
        use_gpu: Whether ranks have GPUs. Each sees all GPUs of its node's ranks, and uses the one
            with its local rank.
        gpus_per_worker: The GPUs of a rank; default: 1.
        use_current_placement_group: Whether to use the placement group in which the program runs,
            such as Ray Tune's.
        min_workers: In place of `num_workers`: the job is elastic, with at least this many ranks.
        max_workers: The maximum number of ranks; None: as many as the cluster takes.
        reset_limit: The maximum number of new worlds of an elastic job.
        cooldown_range: The seconds for which a node gets no new rank after a failure: the initial
            and the maximum value.
        elastic_timeout: The seconds that a world with enough ranks may take to form.
        override_discovery: See `ElasticRayExecutor`.

    Raises:
        ValueError: Arguments contradict each other.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Any = None,
        verbose: int = 1,
    ) -> RaySettings:
        """Return settings; see `RaySettings`.

        Args:
            timeout_s: The seconds that the workers may take to meet.
            ssh_identity_file: The file for `ssh_str`, unless it exists.
            ssh_str: A key; Sirtaki needs none.
            placement_group_timeout_s: The seconds that the cluster may take to find room.
            nics: The network interfaces on which the others reach rank 0.
            verbose: Accepted and ignored.
        """
        write_key(ssh_identity_file, ssh_str)
        return RaySettings(
            nics=nics,
            verbose=verbose,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    def __init__(
        self,
        settings: object = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[float, float] | None = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        share = Share.of(cpus_per_worker, use_gpu, gpus_per_worker, "gpus_per_worker")
        self._elastic: ElasticWorkers | None = None
        self._settings = RaySettings.of(settings)
        if max_workers is not None and not min_workers:
            raise ValueError(
                "`max_workers` provided without any positive `min_workers`: give min_workers for "
                "an elastic job, num_workers for one of a fixed size"
            )
        workers: int | None
        if min_workers:
            if num_workers is not None or num_hosts is not None:
                raise ValueError(
                    "Both `min_workers` and `num_workers` provided (or num_hosts): give "
                    "min_workers for an elastic job, the others for one of a fixed size"
                )
            own = ElasticRaySettings.of(settings)
            own.min_num_proc, own.max_num_proc = min_workers, max_workers
            own.reset_limit, own.cooldown_range = reset_limit, cooldown_range
            own.elastic_timeout = elastic_timeout
            self._elastic = ElasticWorkers(own, share, override_discovery)
            workers = min_workers
        else:
            if num_workers is not None and num_hosts is not None:
                raise AssertionError(  # which Horovod's programs expect
                    "give num_workers or num_hosts with num_workers_per_host, not both"
                )
            workers = num_workers if num_hosts is None else num_hosts * num_workers_per_host
        if workers is None or workers < 1:
            raise ValueError("RayExecutor needs num_workers, or num_hosts, of at least 1")
        self._demand = Demand(workers, num_hosts or 0, share)
        self._use_current = use_current_placement_group
        self._room: Room | None = None
        self._nodes: list[str] = []
        self._hosts: list[str] = []
        self._variables: list[dict[str, Any]] = []
        self.workers: list[Any] = []

    @property
    def num_workers(self) -> int:
        """The number of ranks; in an elastic job, the minimum."""
        return self._demand.workers

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the actors and assign their ranks.

        Args:
            executable_cls: A class that each actor instantiates, for `execute`.
            executable_args: Its arguments.
            executable_kwargs: Its named arguments.
            extra_env_vars: Variables for the actors' environment.

        Raises:
            TimeoutError: The cluster has no room for the workers.
            RuntimeError: A worker could not be started.
        """
        if self.workers:
            raise RuntimeError("RayExecutor has started already: call shutdown() first")
        executable = executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {})
        if self._elastic is not None:
            self._elastic.start(executable, extra_env_vars or {})
            return
        timeout = self._settings.placement_group_timeout_s
        self._room = Room(self._demand, timeout, self._use_current)
        try:
            self._start(extra_env_vars or {})
            if executable_cls is not None:
                self._await(
                    [worker.start_executable.remote(*executable) for worker in self.workers]
                )
        except BaseException:
            self.shutdown()
            raise

    def _start(self, variables: Mapping[str, Any]) -> None:
        assert self._room is not None
        actor = ray.remote(BaseHorovodWorker)
        size = self._demand.workers
        made = [actor.options(**self._room.options(n)).remote(n, size) for n in range(size)]
        self.workers, self._nodes = made, ["unknown"] * size
        told = self._await([worker.introduce.remote() for worker in made])
        order = by_node([node for node, _, _ in told])
        self.workers, told = [made[n] for n in order], [told[n] for n in order]
        self._nodes, self._hosts = [node for node, _, _ in told], [host for _, host, _ in told]
        require_version([version for _, _, version in told], self._hosts)
        own = {"HOROVOD_START_TIMEOUT": self._settings.timeout_s}
        seen = self._visible_gpus() if self._demand.share.gpus else [{}] * size
        self._variables = [{**own, **each, **variables} for each in seen]
        self._place()

    def _place(self) -> None:
        """Assign the workers places in a new world."""
        (places,) = self._await(
            [self.workers[0].serve.remote(self._nodes, self._settings.interfaces())]
        )
        self._await(
            [
                worker.take_place.remote(place, variables)
                for worker, place, variables in zip(
                    self.workers, places, self._variables, strict=True
                )
            ]
        )

    def _visible_gpus(self) -> list[dict[str, str]]:
        """Let each rank see the GPUs of all ranks on its node, so that peers reach each other."""
        own = self._await([worker.get_gpu_ids.remote() for worker in self.workers])
        of_node: dict[str, list[Any]] = {}
        for node, gpus in zip(self._nodes, own, strict=True):
            of_node.setdefault(node, []).extend(gpus)
        return [{"CUDA_VISIBLE_DEVICES": ",".join(map(str, of_node[n]))} for n in self._nodes]

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[[Any], None]] | None = None,
    ) -> list[Any]:
        """Return the results of `fn(*args, **kwargs)` on each rank, in rank order.

        Args:
            fn: The function; Ray pickles it and its arguments.
            args: Its arguments.
            kwargs: Its named arguments.
            callbacks: Each is called here with every dict that a rank passes to `ray_logger.log`.

        Raises:
            RuntimeError: A rank failed. The message names the rank and its node, with a traceback;
                the error is also of the classes of Ray's exception and the function's. The workers
                meet again in the next call if all end within 1.5 seconds; otherwise they are ended.
        """
        call = (Sourced(fn), tuple(args or ()), dict(kwargs or {}))
        if self._elastic is not None:
            return self._elastic.run(partial(call[0], *call[1], **call[2]), callbacks)
        return self._logged(lambda: [w.run.remote(*call) for w in self._started()], callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Start `fn(*args, **kwargs)` on each rank; return the arguments for `ray.get`, by rank.

        Raises:
            NotImplementedError: The job is elastic: its ranks change.
        """
        self._require_fixed("run_remote")
        call = (Sourced(fn), tuple(args or ()), dict(kwargs or {}))
        return [worker.run.remote(*call) for worker in self._started()]

    def execute(
        self,
        fn: Callable[[Any], Any],
        callbacks: Sequence[Callable[[Any], None]] | None = None,
    ) -> list[Any]:
        """Return the results of `fn` on each rank's object from `start`, by rank.

        Args:
            fn: Called with the object, or with None.
            callbacks: See `run`.

        Raises:
            RuntimeError: See `run`.
        """
        if self._elastic is not None:
            return self._elastic.execute(Sourced(fn), callbacks)
        return self._logged(
            lambda: [w.execute.remote(Sourced(fn)) for w in self._started()], callbacks
        )

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Return the result of `fn` on rank 0's object.

        Args:
            fn: Called with the object, or with None.

        Raises:
            RuntimeError: See `run`.
            NotImplementedError: The job is elastic: its ranks change.
        """
        self._require_fixed("execute_single")
        return self._await([self._started()[0].execute.remote(Sourced(fn))])[0]

    def shutdown(self) -> None:
        """End the actors; remove the placement group if `start` created it."""
        for worker in self.workers:
            ray.kill(worker)
        self.workers, self._nodes, self._hosts, self._variables = [], [], [], []
        if self._room is not None:
            self._room.close()
            self._room = None

    def _require_fixed(self, call: str) -> None:
        if self._elastic is not None:
            raise NotImplementedError(
                f"RayExecutor.{call}: the ranks of an elastic job change, so none can be named; "
                "call run or execute"
            )

    def _started(self) -> list[Any]:
        if not self.workers:
            raise RuntimeError(_NOT_STARTED)
        return self.workers

    def _logged(
        self, start: Callable[[], list[Any]], callbacks: Sequence[Callable[[Any], None]] | None
    ) -> list[Any]:
        """Wait for the work that `start` starts, and call callbacks with log entries meanwhile."""
        if not callbacks:
            return self._await(start())
        from ray.util.queue import Queue

        queue = Queue()
        self._await([worker.set_queue.remote(queue) for worker in self._started()])

        def hand_over() -> None:
            for info in queue.get_nowait_batch(queue.qsize()):
                for callback in callbacks:
                    callback(info)

        try:
            values = self._await(start(), hand_over)
            hand_over()
            return values
        finally:
            queue.shutdown()

    def _await(self, refs: list[Any], each_turn: Callable[[], None] = lambda: None) -> list[Any]:
        found = failures.results(refs, each_turn)
        if not found.failures:
            return found.values
        first = failures.first_of(found.failures)
        where = f"rank {first.rank} (node {self._nodes[first.rank]}) failed"
        if self._hosts:
            where += f" on {self._hosts[first.rank]}"
        if not (found.all_idle and self._has_renewed()):
            self.shutdown()
            where += ", so the other workers were ended; call start() to try again"
        raise failures.named(first.error, f"{where}:\n{first.error}") from first.error

    def _has_renewed(self) -> bool:
        """Let the workers meet again after a failure; return whether that succeeded."""
        if not self._variables:
            return False
        try:
            self._await([worker.leave.remote() for worker in self.workers])
            self._place()
        except Exception:
            return False
        return True


class Sourced:
    """A function whose tracebacks show lines in an actor, wherever its source is.

    Ray pickles it itself, because only Ray handles references in it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None)
        self._function = function
        self._sources = shipped.sources([code.co_filename] if code is not None else [])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Register the source with the actor when it unpickles the function."""
        return _read, (self._sources, self._function)


def _read(found: Mapping[str, str], function: Callable[..., Any]) -> Callable[..., Any]:
    shipped.remember(found)
    return function
