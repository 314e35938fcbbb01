"""What follows from a membership: every rank's place, and the name under which its members meet."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sirtaki.rendezvous.world.membership import Member, Membership, Topology

HOSTS = st.lists(st.integers(0, 5), min_size=1, max_size=12)
IDS = st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True)
EPOCHS = st.integers(0, 3)


def on(hosts: list[int], epoch: int = 0) -> Membership:
    return Membership.of(epoch, range(len(hosts)), hosts)


def places(world: Membership) -> list[Topology]:
    return [world.topology(rank) for rank in range(world.size)]


@given(HOSTS)
def test_ranks_of_a_host_are_numbered_in_their_order(hosts: list[int]) -> None:
    for rank, place in enumerate(places(on(hosts))):
        assert (place.rank, place.size) == (rank, len(hosts))
        assert place.local_rank == hosts[:rank].count(hosts[rank])
        assert place.local_size == hosts.count(hosts[rank])


@given(HOSTS)
def test_ranks_of_one_local_rank_are_numbered_in_their_order(hosts: list[int]) -> None:
    found = places(on(hosts))
    for place in found:
        beside = [other.rank for other in found if other.local_rank == place.local_rank]
        assert (place.cross_rank, place.cross_size) == (beside.index(place.rank), len(beside))


@given(HOSTS)
def test_hosts_are_numbered_by_their_lowest_ranks_whatever_they_are_called(
    hosts: list[int],
) -> None:
    world = on(hosts)
    assert list(dict.fromkeys(world.host_of)) == list(range(len(set(hosts))))
    assert Membership.of(0, range(len(hosts)), [f"node-{9 - host}" for host in hosts]) == world


@given(HOSTS)
def test_a_world_is_homogeneous_where_all_hosts_have_equally_many_ranks(hosts: list[int]) -> None:
    assert on(hosts).homogeneous == (len(set(Counter(hosts).values())) == 1)


@given(IDS, EPOCHS)
def test_until_hosts_are_known_there_are_no_local_places(ids: list[int], epoch: int) -> None:
    world = Membership.of(epoch, ids)
    size = len(ids)
    assert places(world) == [Topology(rank, size, 0, 0, 0, 0) for rank in range(size)]
    assert world.on(range(size)).members == tuple(
        Member(number, host, 0) for host, number in enumerate(ids)
    )


@given(EPOCHS, IDS, EPOCHS, IDS)
def test_the_name_says_epoch_and_members_in_their_order_and_no_more(
    epoch: int, ids: list[int], other_epoch: int, other_ids: list[int]
) -> None:
    world = Membership.of(epoch, ids)
    assert world.on([0] * len(ids)).name == world.name
    same = (epoch, ids) == (other_epoch, other_ids)
    assert (world.name == Membership.of(other_epoch, other_ids).name) == same
    assert (world.name == Membership.of(epoch, ids[::-1]).name) == (len(ids) == 1)


@given(st.data(), HOSTS, EPOCHS)
def test_some_of_the_members_form_a_world_of_their_own(
    data: st.DataObject, hosts: list[int], epoch: int
) -> None:
    world = on(hosts, epoch)
    ids = data.draw(st.lists(st.sampled_from(range(len(hosts))), min_size=1, unique=True))
    assert world.choose(ids) == Membership.of(epoch, ids, [hosts[number] for number in ids])
    assert world.choose(world.ids) == world
    unplaced = Membership.of(epoch, world.ids)
    assert unplaced.choose(ids) == Membership.of(epoch, ids)
