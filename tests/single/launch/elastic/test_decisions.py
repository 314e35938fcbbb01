"""What an elastic job decides: worlds, updates, cooldowns, and errors of the program."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.elastic.departures import Departures, ProgramErrors
from sirtaki.launch.elastic.starts import Cooldowns, PlannedPlace, own_variables, planned_places
from sirtaki.launch.elastic.worlds import Worlds
from sirtaki.launch.hosts.slots import Slot
from sirtaki.rendezvous.world.elastic import ADDED, REMOVED, Raised, Ready, Training

HOSTS = {"a": 2, "b": 2}


def ask(worlds: Worlds, *ids: int) -> None:
    for number in ids:
        worlds.take(Ready(number, 0, worlds.alive[number].epoch))


def world_of(worlds: Worlds, hosts: dict[str, int] = HOSTS) -> list[int] | None:
    """Make the next world; returns its members in the order of their ranks."""
    world = worlds.next_world(hosts)
    if world is None:
        return None
    worlds.placed(world)
    return [member.id for member in world.members]


def running(least: int = 1, most: int = 4, count: int = 3) -> Worlds:
    """A first world of some processes, in turn on host a and b."""
    worlds = Worlds(least, most)
    for number in range(count):
        worlds.add(number, "ab"[number % 2], number // 2)
    ask(worlds, *range(count))
    assert world_of(worlds) == list(range(count))
    return worlds


def test_the_first_world_waits_for_all_that_were_started() -> None:
    worlds = Worlds(1, 4)
    worlds.add(0, "a", 0)
    worlds.add(1, "b", 0)
    ask(worlds, 0)
    assert world_of(worlds) is None
    ask(worlds, 1)
    assert world_of(worlds) == [0, 1]


def test_a_new_world_waits_for_all_survivors_and_not_for_those_who_start() -> None:
    worlds = running()
    worlds.remove(0)
    worlds.add(3, "a", 0)
    ask(worlds, 1)
    assert world_of(worlds) is None
    ask(worlds, 2)
    assert world_of(worlds) == [1, 2]


def test_survivors_stand_before_newcomers() -> None:
    worlds = running()
    worlds.remove(0)
    worlds.add(3, "a", 0)
    ask(worlds, 3, 2, 1)
    assert world_of(worlds) == [1, 2, 3]


def test_a_world_has_no_more_members_than_it_may_and_the_rest_waits() -> None:
    worlds = running(most=3)
    worlds.add(3, "b", 1)
    ask(worlds, 3)
    assert worlds.update(HOSTS) == 0
    worlds.remove(1)
    ask(worlds, 0, 2)
    assert world_of(worlds) == [0, 2, 3]


def test_too_few_are_no_world() -> None:
    worlds = running(least=3)
    worlds.remove(1)
    ask(worlds, 0, 2)
    assert world_of(worlds) is None


def test_members_on_a_host_that_is_gone_are_to_leave() -> None:
    worlds = running()
    ask(worlds, 0, 1, 2)
    world = worlds.next_world({"a": 2})
    assert world is not None
    assert ([m.id for m in world.members], [m.id for m in world.leaving]) == ([0, 2], [1])


def test_who_is_to_leave_and_has_the_only_state_stays_until_others_have_it() -> None:
    worlds = running(count=1, most=1)
    gone = {"b": 1}
    assert worlds.update(gone) == 0
    ask(worlds, 0)
    assert worlds.dismiss(gone) == []
    assert world_of(worlds, gone) == [0], "it goes on alone"
    worlds.add(1, "b", 0)
    assert worlds.update(gone) == 0
    ask(worlds, 1)
    assert worlds.update(gone) == ADDED
    ask(worlds, 0)
    assert world_of(worlds, gone) == [0, 1], "more than may be, for a moment"
    assert worlds.update(gone) == REMOVED
    ask(worlds, 0, 1)
    world = worlds.next_world(gone)
    assert world is not None
    assert [member.id for member in world.members] == [1]
    assert [member.id for member in world.leaving] == [0]


def test_who_is_started_has_the_place_that_the_next_world_will_give_it() -> None:
    worlds = running()
    planned = planned_places(worlds.expected(HOSTS), ["b", "c"], most=4)
    assert planned == [PlannedPlace(Slot(3, 4, "b", 1, 2, 1, 2), 1, 2)], "the other is a spare"
    variables = own_variables(planned[0], "b", 3, "unix:s")
    assert (variables["HOROVOD_RANK"], variables["RANK"], variables["NODE_RANK"]) == ("3", "3", "1")
    spare = own_variables(None, "c", 4, "unix:s")
    assert spare.keys() < variables.keys()
    assert not spare.keys() & {"HOROVOD_RANK", "HOROVOD_SIZE", "RANK", "WORLD_SIZE"}
    worlds.add(3, "b", 1)
    worlds.remove(0)
    assert worlds.expected(HOSTS) == ["b", "a", "b"], "survivors, and who starts"
    assert worlds.expected({"a": 1}) == ["a"], "without those that leave"
    assert worlds.expected({"c": 1}) == ["b", "a"], "who has the state stays for a while"
    assert planned_places([], ["a", "a", "b"], most=9)[1].slot == Slot(1, 3, "a", 1, 2, 0, 1)


def test_nobody_waits_for_who_has_said_that_it_ends() -> None:
    worlds = running()
    worlds.alive[1].ends = True
    ask(worlds, 0, 2)
    assert world_of(worlds) == [0, 2]
    worlds.alive[2].ends = True
    ask(worlds, 2)
    assert worlds.is_running, "it has caught its error"


def test_newcomers_do_not_begin_anew_while_those_who_have_the_state_end() -> None:
    worlds = running(count=1)
    worlds.add(1, "b", 0)
    ask(worlds, 1)
    worlds.alive[0].ends = True
    assert worlds.next_world(HOSTS) is None


def test_a_world_is_told_once_what_has_changed() -> None:
    worlds = running()
    assert worlds.update(HOSTS) == 0
    worlds.add(3, "b", 1)
    assert worlds.update(HOSTS) == 0, "it is not ready yet"
    ask(worlds, 3)
    assert worlds.update(HOSTS) == ADDED
    assert worlds.update({"a": 2}) == 0
    ask(worlds, 0, 1, 2)
    world_of(worlds)
    assert worlds.update({"a": 2}) == REMOVED


def test_newcomers_that_are_about_to_be_ready_are_waited_for() -> None:
    worlds = running(count=2)
    worlds.add(2, "a", 1)
    worlds.add(3, "b", 1)
    ask(worlds, 2)
    assert worlds.update(HOSTS) == 0
    ask(worlds, 3)
    assert worlds.update(HOSTS) == ADDED


@given(st.lists(st.tuples(st.sampled_from(["start", "ask", "end"]), st.integers(0, 7))))
def test_whatever_happens_rank_0_of_a_new_world_has_the_state_if_any_member_has_it(
    events: list[tuple[str, int]],
) -> None:
    worlds = Worlds(1, 3)
    started = 0
    has_state: set[int] = set()
    for kind, number in events:
        if kind == "start":
            worlds.add(started, "ab"[started % 2], started)
            started += 1
        elif kind == "ask" and number in worlds.alive:
            ask(worlds, number)
        elif kind == "end":
            worlds.remove(number)
        survivors = has_state & worlds.alive.keys()
        members = world_of(worlds)
        if members is None:
            continue
        assert len(members) <= worlds.most
        assert not survivors or members[0] in survivors
        assert all(worlds.alive[member].ready is None for member in members)
        has_state = set(members)


def test_a_host_cools_down_twice_as_long_after_each_failure() -> None:
    cooldowns = Cooldowns((1.0, 5.0))
    assert [cooldowns.failed("a", 100.0) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert cooldowns.cools("a", 104.9)
    assert not cooldowns.cools("a", 105.0)
    assert not cooldowns.cools("b", 100.0)
    assert cooldowns.next_end == 105.0


def test_the_end_of_a_cooldown_waits_for_somebody_who_looks_after_it() -> None:
    cooldowns = Cooldowns((1.0, 5.0))
    cooldowns.failed("a", 100.0)
    cooldowns.failed("b", 103.0)
    cooldowns.look(100.9)
    # However late it is by now: nobody has looked since host a may be given processes.
    assert cooldowns.next_end == 101.0
    cooldowns.look(101.0)
    assert cooldowns.next_end == 104.0
    cooldowns.look(104.5)
    assert cooldowns.next_end is None


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        ([(0, "a", "boom", 3), (1, "a", "boom", 3)], "came twice after 3 commits: boom"),
        ([(0, "a", "boom", 3), (1, "b", "boom", 4)], "came on every host: boom"),
        ([(0, "a", "boom", 3), (1, "a", "boom", 4)], ""),
        ([(0, "a", "boom", 3), (1, "b", "bang", 3)], ""),
        ([(0, "a", "boom", 3)], ""),
    ],
)
def test_an_error_is_the_program_s_if_it_comes_again(
    raised: list[tuple[int, str, str, int]], why: str
) -> None:
    errors = ProgramErrors()
    said = ""
    for number, host, text, step in raised:
        errors.take(Raised(number, text, step))
        said = errors.ended(number, host, {"a", "b"})
    assert said.endswith(why)
    assert bool(said) == bool(why)


def test_who_leaves_has_no_place_and_the_others_are_told_to_stop() -> None:
    worlds = running()
    worlds.leaving.add(1)
    assert worlds.update(HOSTS) == REMOVED
    ask(worlds, 0, 1, 2)
    world = worlds.next_world(HOSTS)
    assert world is not None
    assert ([m.id for m in world.members], [m.id for m in world.leaving]) == ([0, 2], [1])


def test_who_leaves_need_not_wait_for_others_and_is_told_once() -> None:
    worlds = running(least=3)
    worlds.leaving.add(1)
    ask(worlds, 1)
    assert worlds.dismiss(HOSTS) == [], "another one may be about to ask for the same world"
    ask(worlds, 0, 2)
    assert worlds.next_world(HOSTS) is None
    assert [member.id for member in worlds.dismiss(HOSTS)] == [1]
    assert worlds.dismiss(HOSTS) == []


def test_a_host_that_is_about_to_go_rests_without_a_failure() -> None:
    cooldowns = Cooldowns((1.0, 5.0))
    cooldowns.rest("a", 100.0)
    assert (cooldowns.cools("a", 104.9), cooldowns.cools("a", 105.0)) == (True, False)
    assert cooldowns.failed("a", 200.0) == 1.0


def test_signals_to_all_within_a_moment_are_one() -> None:
    departures = Departures()
    departures.take(Training(0, (15, 10)))
    departures.take(Training(1, (15,)))
    assert departures.can_all([0, 1], 15)
    assert not departures.can_all([0, 1], 10), "1 does something else on it"
    assert not departures.can_all([0, 2], 15)
    departures.ask(0, 10, 100.0)
    assert departures.of_all([0, 1]) is None
    assert not departures.settled(100.1)
    departures.ask(1, 15, 100.1)
    assert departures.settled(100.4)
    assert not departures.settled(100.5), "once"
    assert (departures.of_all([0, 1]), departures.of_all([0]), departures.of_all([])) == (
        15,
        10,
        None,
    )
