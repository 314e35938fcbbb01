"""Groups meet whatever their processes have made before, and their store forgets them."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from sirtaki.core.errors import PeerLostError
from sirtaki.torch.distributed.group import Group
from sirtaki.torch.distributed.interface.reconfigure import HandlesError
from sirtaki.torch.distributed.meeting import meetings

LIMIT = timedelta(seconds=60)
# What is PyTorch's own of a group, and right for ours as it is.
_THEIRS = {"_id", "_backend_id", "_register_backend", "_set_default_backend", "boxed", "unbox"} | {
    *("rank", "size", "group_name", "group_desc", "_set_group_name", "_set_group_desc"),
    *("bound_device_id", "use_pg_for_symm_mem_rendezvous", "_enable_collectives_timing"),
    *("BackendType", "UNDEFINED", "GLOO", "NCCL", "XCCL", "UCC", "MPI", "CUSTOM", "get_backend"),
}


def together(*ranks: Callable[[], object]) -> list[object]:
    """Run each in a thread; what they return or raise."""
    found: list[object] = [None] * len(ranks)

    def run(number: int) -> None:
        try:
            found[number] = ranks[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return found


def pair(store: dist.Store, name: str = "pair") -> list[Group]:
    made = together(*(lambda r=r: Group(store, r, 2, name, LIMIT) for r in range(2)))
    assert all(isinstance(group, Group) for group in made), made
    return made  # type: ignore[return-value]


def summed(groups: list[Group]) -> list[object]:
    def add(group: Group) -> float:
        tensor = torch.ones(1)
        group.allreduce(tensor).wait()
        return tensor.item()

    return together(*(lambda g=g: add(g) for g in groups))


def test_ranks_as_threads_of_a_process_meet_again_and_again_at_one_store() -> None:
    store = dist.HashStore()
    for _ in range(3):
        groups = pair(store)
        assert summed(groups) == [2.0, 2.0]
        for group in groups:
            group.shutdown()


def test_the_store_forgets_a_group_that_all_have_left() -> None:
    store = dist.HashStore()
    groups = pair(store)
    for group in groups:
        group.shutdown()
    assert [key for key in store.list_keys() if key.startswith("sirtaki/")] == []


def test_what_a_rank_0_that_died_has_left_is_replaced() -> None:
    store = dist.HashStore()
    meeting = meetings.Meeting(store, "pair", 0, 2, 5.0)
    meeting._hall.set("now", b"0123456789abcdef")
    seen = threading.Event()

    def late() -> Group:
        seen.wait(1.0)
        return Group(store, 0, 2, "pair", LIMIT)

    made = together(late, lambda: Group(store, 1, 2, "pair", LIMIT))
    assert all(isinstance(group, Group) for group in made), made


def test_another_living_process_with_the_same_rank_is_named() -> None:
    store = dist.HashStore()
    first = os.getppid()
    other = meetings._Process.own()
    fields = [first, meetings._start_of(first), other.where, other.host]
    place = meetings.Meeting(store, "pair", 1, 2, 5.0)
    place._hall.set("member 1", json.dumps(fields).encode())
    with pytest.raises(ValueError, match=f"is at the store already: process {first} on"):
        Group(store, 1, 2, "pair", LIMIT)


def test_who_waits_in_vain_is_told_as_by_pytorchs_own_groups() -> None:
    with pytest.raises(dist.DistStoreError, match=r"ranks \[1\] .*\(timeout after 50ms\)") as told:
        Group(dist.HashStore(), 0, 2, "alone", timedelta(milliseconds=50))
    assert isinstance(told.value, TimeoutError)


@pytest.mark.parametrize("dropped", [False, True], ids=["shut down", "dropped"])
def test_what_a_rank_does_without_one_that_has_left_fails_at_once(dropped: bool) -> None:
    stays, leaves = pair(dist.HashStore())
    begun = leaves.allreduce(torch.ones(1))
    if not dropped:
        leaves.shutdown()
    # The garbage collector may come in the middle of anything that Python does.
    with leaves._completions._lock:
        del leaves
    assert summed([stays]) == [2.0]
    begun.wait()
    for _ in range(2):
        (error,) = summed([stays])
        assert isinstance(error, PeerLostError)
        assert re.search(r"Connection closed by peer \(.*: rank 1 \(.* left the group", str(error))
    stays.shutdown()


def test_parts_of_a_group_meet_without_their_store() -> None:
    store = dist.HashStore()
    groups = pair(store)
    before = set(store.list_keys())
    for _ in range(2):
        made = together(*(lambda g=g: g.split_group([1, 0]) for g in groups))
        assert [part.getRank() for part in made] == [1, 0]  # type: ignore[attr-defined]
        assert summed(made) == [2.0, 2.0]  # type: ignore[arg-type]
    assert set(store.list_keys()) == before
    assert groups[0].split_group([1]) is None


def test_nothing_secret_is_in_the_store() -> None:
    store = dist.HashStore()
    groups = pair(store)
    key = groups[0]._joined_key
    assert key == groups[1]._joined_key
    assert len(key) == 32
    values = [store.get(key) for key in store.list_keys()]
    assert all(key not in value and key.hex().encode() not in value for value in values)


@pytest.mark.parametrize("owner", [dist.ProcessGroup, c10d.Backend], ids=["group", "backend"])
def test_all_that_pytorch_has_of_a_group_is_known(owner: type) -> None:
    """What is found here in a newer version must be served, or be right as it is."""
    group = Group(dist.HashStore(), 0, 1)
    face = group._get_backend(torch.device("cpu"))
    for name in vars(owner):
        if name.startswith(("__", "_pybind11")) or name in _THEIRS:
            continue
        if owner is dist.ProcessGroup:
            ours = next(base for base in Group.__mro__ if name in vars(base))
            assert ours.__module__.startswith("sirtaki."), name
        else:
            getattr(face, name)


@pytest.mark.skipif(not hasattr(c10d, "ReconfigureOptions"), reason="of PyTorch 2.14")
def test_members_leave_and_join() -> None:
    store = dist.HashStore()
    groups = [Group(store, 0, 1, "g", LIMIT, unformed=True) for _ in range(3)]
    handles = [group.get_reconfigure_handle() for group in groups]

    def form(uuid: int, *members: int) -> list[object]:
        opts = c10d.ReconfigureOptions()  # type: ignore[attr-defined]
        opts.uuid, opts.handles, opts.timeout = uuid, [handles[m] for m in members], LIMIT
        done = together(*(lambda m=m: groups[m].reconfigure(opts) for m in members))
        assert not any(isinstance(each, Exception) for each in done), done
        return summed([groups[m] for m in members])

    assert form(1, 0, 1) == [2.0, 2.0]
    assert form(2, 2, 0) == [2.0, 2.0]
    assert groups[2].getRank() == 0
    assert form(3, 1, 2, 0) == [3.0, 3.0, 3.0]
    opts = c10d.ReconfigureOptions()  # type: ignore[attr-defined]
    opts.handles = handles[1:]
    with pytest.raises(HandlesError, match="not among those given"):
        groups[0].reconfigure(opts)


def test_a_process_that_ended_is_no_member() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert meetings._start_of(pid) == ""
    os.waitpid(pid, 0)
