"""Processes that have met differently often find each other, and say so where they contradict."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirtaki import _core
from sirtaki.rendezvous.world.attempts import Attempts
from sirtaki.rendezvous.world.join import Joined, JoinSettings, join_world
from sirtaki.rendezvous.world.membership import Membership, Topology
from tests.single.rendezvous.memory_store import MemoryStore

PATIENT = 20.0
HASTY = 1.0


class Process:
    """A process of a start, a thread here: on one host with the others, or on one of its own."""

    def __init__(self, store: MemoryStore, number: int, one_host: bool) -> None:
        self.attempts = Attempts(store)
        self.number = number
        self._store = store
        self._one_host = one_host

    def meet(self, *ids: int, timeout: float = PATIENT, epoch: int = 0) -> str:
        """Meet these processes; return what the meeting was called."""
        wanted = Membership.of(epoch, ids)
        rank, size = ids.index(self.number), len(ids)
        topology = Topology(rank, size, *((rank, size) if self._one_host else (0, 1)))
        name = f"node-{self.number}"
        wish = JoinSettings(wanted, topology, name, timeout, host_id=str(self.number))
        called = []

        def join(settings: JoinSettings, prefix: str) -> Joined:
            called.append(prefix)
            functions = (lambda n: 4096 * n), _core.linked_hosts
            return join_world(settings, self._store, prefix, *functions)

        leave(self.attempts.meet(wish, join))
        return called[-1]


def leave(world: Joined) -> None:
    links = [*world.local_links, *((link.rank, link.descriptor) for link in world.host_links)]
    for descriptor in [world.memfd, *world.event_descriptors, *(link for _, link in links)]:
        os.close(descriptor)
    world.close()


@pytest.fixture(params=[True, False], ids=["one host", "hosts"])
def processes(request: pytest.FixtureRequest) -> list[Process]:
    store = MemoryStore()
    return [Process(store, number, request.param) for number in range(4)]


@contextlib.contextmanager
def together() -> Iterator[Callable[..., Future[str]]]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def test_who_has_met_others_before_meets_who_has_not(processes: list[Process]) -> None:
    def some(process: Process) -> str:
        for _ in range(3):
            process.meet(0, 1)
        return process.meet(0, 1, 2, 3)

    with together() as start:
        names = [start(some, process) for process in processes[:2]]
        names += [start(process.meet, 0, 1, 2, 3) for process in processes[2:]]
    assert len({name.result() for name in names}) == 1


def test_a_process_that_follows_another_in_its_place_meets_who_stayed(
    processes: list[Process],
) -> None:
    first, second = processes[:2]
    with together() as start:
        for _ in range(2):
            name = start(first.meet, 0, 1)
            assert second.meet(0, 1) == name.result()
            second.attempts = Attempts(second._store)
    assert not first.attempts.follows


WORLDS = st.lists(
    st.lists(st.sampled_from(range(4)), min_size=2, max_size=4, unique=True), max_size=6
)


@settings(max_examples=25, deadline=None)
@given(WORLDS)
def test_any_worlds_in_one_order_are_met_each_under_a_name_of_its_own(
    worlds: list[list[int]],
) -> None:
    store = MemoryStore()

    def live(number: int) -> list[str]:
        process = Process(store, number, one_host=True)
        return [process.meet(*ids) if number in ids else "" for ids in worlds]

    with ThreadPoolExecutor(4) as pool:
        names = [set(met) - {""} for met in zip(*pool.map(live, range(4)), strict=True)]
    assert all(len(name) == 1 for name in names)
    assert len(set().union(*names)) == len(worlds)


def hurry(process: Process, *ids: int) -> None:
    with pytest.raises((TimeoutError, ConnectionError)):
        process.meet(*ids, timeout=HASTY)


def test_who_comes_when_the_others_have_given_up_meets_them_at_their_next_attempt(
    processes: list[Process],
) -> None:
    first, second = processes[:2]
    for _ in range(2):
        hurry(first, 0, 1)
    with together() as start:
        name = start(first.meet, 0, 1)
        assert second.meet(0, 1) == name.result()


@pytest.mark.parametrize("processes", [False], indirect=True)
def test_rank_0_of_several_hosts_finds_that_others_have_given_up(processes: list[Process]) -> None:
    first, second = processes[:2]
    hurry(second, 0, 1)
    with together() as start:
        name = start(second.meet, 0, 1)
        assert first.meet(0, 1) == name.result()


@pytest.mark.parametrize("processes", [True], indirect=True)
def test_rank_0_of_one_host_that_came_too_late_fails_once_and_then_meets_the_others(
    processes: list[Process],
) -> None:
    first, second = processes[:2]
    hurry(second, 0, 1)
    with together() as start:
        name = start(second.meet, 0, 1)
        with pytest.raises(TimeoutError, match="others had given up before this process came"):
            first.meet(0, 1, timeout=HASTY)
        assert first.meet(0, 1) == name.result()


def failures(
    *meetings: tuple[Process, Sequence[int], int], kind: type[Exception] = ValueError
) -> list[str]:
    """What each of these processes is told that wants these members in this epoch."""
    with together() as start:
        found = [
            start(process.meet, *ids, timeout=HASTY, epoch=epoch)
            for process, ids, epoch in meetings
        ]
    told = []
    for future in found:
        with pytest.raises(kind) as error:
            future.result()
        told.append(str(error.value))
    return told


def test_processes_that_were_given_different_members_are_named_with_what_to_do(
    processes: list[Process],
) -> None:
    first, second = processes[:2]
    one, other = failures((first, [0, 1], 0), (second, [1, 0, 2], 0))
    assert "launched rank 1 (node-1) wants a world of launched ranks 1,0,2 in epoch 0" in one
    assert "this process wants one of launched ranks 0-1 in epoch 0" in one
    assert "launched rank 0 (node-0) wants a world of launched ranks 0-1 in epoch" in other
    for message in (one, other):
        assert "give all processes of a world the same members (init(comm=...))" in message


def test_processes_of_different_epochs_are_named_with_what_to_do(
    processes: list[Process],
) -> None:
    one, other = failures((processes[0], [0, 1], 0), (processes[1], [0, 1], 1))
    assert "wants a world of launched ranks 0-1 in epoch 1" in one
    assert "wants a world of launched ranks 0-1 in epoch 0" in other
    assert "and the same SIRTAKI_EPOCH" in one


def test_one_who_waits_for_others_first_is_late_and_contradicts_nobody(
    processes: list[Process],
) -> None:
    first, second = processes[:2]
    (told, _) = failures((first, [0, 1], 0), (second, [1, 2], 0), kind=TimeoutError)
    assert "launched rank 1 (node-1) wants a world of launched ranks 1-2" in told
    assert "give all processes" not in told


def test_what_a_process_wanted_is_forgotten_once_it_has_it(processes: list[Process]) -> None:
    first, second, third = processes[:3]
    hurry(second, 1, 2)
    with together() as start:
        met = start(second.meet, 1, 2)
        third.meet(1, 2)
        met.result()
    (told,) = failures((first, [0, 1], 0), kind=TimeoutError)
    assert "wants" not in told


def test_a_meeting_leaves_no_thread(processes: list[Process]) -> None:
    before = threading.active_count()
    hurry(processes[0], 0, 1)
    assert threading.active_count() == before
