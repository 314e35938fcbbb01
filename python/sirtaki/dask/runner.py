"""`run`: one rank on each of several workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import sirtaki
from sirtaki import shipped
from sirtaki.dask import worker
from sirtaki.dask.worker import Answer, Introduction

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")
_TURN_SECONDS = 0.2
# How long the others may take to detect that a rank has failed.
_GRACE_SECONDS = 1.5
_RESTART_SECONDS = 30.0


def run(
    client: Client,
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int | None = None,
    start_timeout: float = 30,
    interfaces: Sequence[str] = (),
) -> list[T]:
    """Call `fn(*args, **kwargs)` on ranks in Dask's workers, and return their results.

    Each rank is a task in a worker of its own. Function, arguments and results are sent by
    cloudpickle, and the world's secret through Dask's connections: use ``tls://`` on a network that
    others can read.

    Args:
        client: A client of `distributed`.
        fn: The function; it calls `hvd.init()`.
        args: Its arguments.
        kwargs: Its named arguments.
        np: The number of ranks; default: the number of workers.
        start_timeout: The seconds that this number of workers may take to start.
        interfaces: The network interfaces on which the others reach rank 0.

    Returns:
        The ranks' return values, by rank. Ranks on one host have consecutive numbers.

    Raises:
        RuntimeError: A rank or its worker failed. The message names the rank and its host, and
            contains its traceback; the cause is the rank's exception. The others had 1.5 seconds to
            end before a restart of their workers. Or a worker has another Sirtaki, or none.
        TimeoutError: There are too few workers.
        ValueError: `np` is below 1.
        TypeError: The function cannot be pickled.
    """
    call = shipped.dumps((fn, tuple(args), dict(kwargs or {})))
    ranks = _ranks(client, np, start_timeout)
    hosts = [rank.host for rank in ranks]
    first = ranks[0].address
    places = client.run(worker.serve, hosts, list(interfaces), workers=[first])[first]
    job = _Job(client, ranks)
    return job.results(
        [
            # A rank that is run again alone would have no peers to meet.
            client.submit(worker.work, place, call, workers=[rank.address], pure=False, retries=0)
            for rank, place in zip(ranks, places, strict=True)
        ]
    )


@dataclass(frozen=True)
class _Rank:
    """A rank.

    Attributes:
        number: The number of the rank, from 0.
        address: The address of its worker.
        host: The machine's name.
    """

    number: int
    address: str
    host: str

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host} (worker {self.address})"


def _ranks(client: Client, np: int | None, timeout: float) -> list[_Rank]:
    """Choose workers, and number those of a host consecutively."""
    if np is not None and np < 1:
        raise ValueError(f"np={np} must be >= 1")
    wanted = np or 1
    try:
        client.wait_for_workers(wanted, timeout=timeout)
    except Exception as error:
        if not isinstance(error, TimeoutError):
            raise
        raise TimeoutError(
            f"sirtaki.dask.run(np={wanted}): the cluster has {len(client.nthreads())} worker(s) "
            f"after {timeout:g} s (start_timeout), and each rank needs one of its own"
        ) from None
    addresses = sorted(client.nthreads())
    told = client.run(worker.introduce, workers=addresses, on_error="return")
    for address in addresses:
        _require_usable(address, told[address])
    addresses.sort(key=lambda address: (told[address].host, address))
    chosen = addresses[:np]
    processes = {(told[address].host, told[address].pid) for address in chosen}
    if len(processes) < len(chosen):
        raise RuntimeError(
            "sirtaki.dask.run: some workers are threads of one process, and each rank needs a "
            "process: start them with LocalCluster(processes=True, n_workers=...)"
        )
    return [_Rank(n, address, told[address].host) for n, address in enumerate(chosen)]


def _require_usable(address: str, told: Introduction | BaseException) -> None:
    if isinstance(told, BaseException):
        raise RuntimeError(
            f"worker {address} cannot be a rank: {type(told).__name__}: {told}; install Sirtaki "
            f"{sirtaki.__version__} there"
        ) from told
    if told.version != sirtaki.__version__:
        raise RuntimeError(
            f"worker {address} on {told.host} has Sirtaki {told.version}, this program "
            f"{sirtaki.__version__}: install the same version on all workers"
        )


@dataclass(frozen=True)
class _Failure:
    rank: _Rank
    text: str
    error: bytes | None = None
    is_consequence: bool = False


class _Job:
    """The running ranks of a job.

    Args:
        client: A client of `distributed`.
        ranks: The ranks' places.
    """

    def __init__(self, client: Client, ranks: Sequence[_Rank]) -> None:
        self._client = client
        self._ranks = ranks

    def results(self, futures: Sequence[Future]) -> list[Any]:
        """Wait for all ranks, or for the first failure and a little longer for the others."""
        pending = dict(zip(futures, self._ranks, strict=True))
        values: dict[int, Any] = {}
        failures: list[_Failure] = []
        try:
            until: float | None = None
            while pending and (until is None or time.monotonic() < until):
                for rank, answer in self._turn(pending):
                    if isinstance(answer, _Failure):
                        failures.append(answer)
                    elif answer.text:
                        failures.append(
                            _Failure(rank, answer.text, answer.error, answer.is_consequence)
                        )
                    else:
                        values[rank.number] = shipped.value_of(answer.value, rank.number)
                if failures and until is None:
                    until = time.monotonic() + _GRACE_SECONDS
        except BaseException:
            self._end(pending)
            raise
        if failures:
            left = self._end(pending)
            raise _raised(failures, left)
        return [values[number] for number in range(len(self._ranks))]

    def _turn(self, pending: dict[Future, _Rank]) -> list[tuple[_Rank, Answer | _Failure]]:
        """Remove ended and lost ranks from `pending`."""
        from distributed import wait

        try:
            wait(list(pending), timeout=_TURN_SECONDS, return_when="FIRST_COMPLETED")
        except TimeoutError:
            there = self._client.nthreads()
            lost = [future for future, rank in pending.items() if rank.address not in there]
            return [(rank, _lost(rank)) for rank in map(pending.pop, lost)]
        ended = []
        for future in [each for each in pending if each.done()]:
            rank = pending.pop(future)
            ended.append((rank, _answer(future, rank)))
        return ended

    def _end(self, pending: dict[Future, _Rank]) -> str:
        """End the ranks that still run; return a message about those that do not end."""
        if not pending:
            return ""
        self._client.cancel(list(pending))
        there = self._client.nthreads()
        running = [rank for rank in pending.values() if rank.address in there]
        try:
            addresses = [rank.address for rank in running]
            self._client.restart_workers(addresses, timeout=_RESTART_SECONDS)
        except Exception as error:
            names = ", ".join(map(str, running))
            return (
                f"\n{names} could not be ended ({type(error).__name__}: {error}): workers without "
                "a nanny run on"
            )
        return ""


def _answer(future: Future, rank: _Rank) -> Answer | _Failure:
    try:
        answer: Answer = future.result()
    except Exception as error:
        return _Failure(rank, f"{type(error).__name__}: {error}")
    return answer


def _lost(rank: _Rank) -> _Failure:
    return _Failure(rank, "its worker was lost: the process has ended, or cannot be reached")


def _raised(failures: Sequence[_Failure], left: str) -> RuntimeError:
    first = next((each for each in failures if not each.is_consequence), failures[0])
    error = RuntimeError(f"{first.rank} failed, so the others were ended:\n{first.text}{left}")
    error.__cause__ = shipped.error_of(first.error)
    return error
