"""When a job counts as hanging: two looks at all ranks that find the same, after a while."""

from __future__ import annotations

from typing import Any

from sirtaki.hang.watching import Watching
from sirtaki.questions.messages import Question
from tests.single.hang.made_up import answer, opened

SECONDS = 10.0


class Clock:
    """A job whose watch is asked whenever it wants to be; says what was printed, and when."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watching = Watching("job", SECONDS, self.now)
        self.asked: list[str] = []

    def run(self, until: float, answers: Any) -> list[tuple[float, str]]:
        """answers: of a time, what all ranks tell then."""
        said = []
        while self.watching.due <= until:
            self.now = max(self.now, self.watching.due)
            self.asked.append(self.watching.question)
            if text := self.watching.take(answers(self.now), self.now):
                said.append((self.now, text.splitlines()[0]))
        return said


def stuck_since(then: float, completed: int = 7) -> Any:
    """Rank 0 waits for rank 1."""

    def answers(now: float) -> list[dict[str, Any]]:
        told = {"idle": now - then, "completed": completed}
        waits = opened("grad", seconds=now - then)
        return [answer(0, 2, waits, told=told), answer(1, 2, told=told)]

    return answers


def test_a_hang_is_reported_once_and_within_a_tenth_of_the_time() -> None:
    [(at, text)] = Clock().run(300, stuck_since(3.0))
    assert text.startswith("stalled: ")
    assert 13 <= at <= 14


def test_all_ranks_are_asked_twice_only_once_nothing_has_moved_for_half_of_the_time() -> None:
    clock = Clock()
    clock.run(8, stuck_since(3.0))
    assert set(clock.asked) == {Question.POLL}
    clock.run(14, stuck_since(3.0))
    assert clock.asked.count(Question.REPORT) == 2


def test_steps_that_take_long_are_no_hang() -> None:
    def answers(now: float) -> list[dict[str, Any]]:
        step = now // 9
        return stuck_since(step * 9, completed=int(step))(now)

    assert Clock().run(300, answers) == []


def test_what_has_moved_between_two_looks_is_no_hang() -> None:
    def answers(now: float) -> list[dict[str, Any]]:
        return stuck_since(0.0, completed=int(now * 10))(now)

    assert Clock().run(59, answers) == []


def test_data_that_move_are_no_hang() -> None:
    def answers(now: float) -> list[dict[str, Any]]:
        moving = opened("grad", "under way", seconds=now, peer=1, waits=0.1, chunk=int(now * 10))
        return [answer(0, 2, moving, told={"idle": now}), answer(1, 2, told={"idle": now})]

    assert Clock().run(300, answers) == []


def test_a_job_in_no_operation_is_no_hang() -> None:
    assert Clock().run(300, lambda now: [answer(0, 2), answer(1, 2)]) == []


def test_a_job_that_goes_on_says_so_and_may_hang_again() -> None:
    clock = Clock()
    clock.run(30, stuck_since(0.0))
    assert clock.run(35, stuck_since(32.0, 8)) == [(32.5, "the job goes on, after 32 s")]
    assert len(clock.run(60, stuck_since(32.0, 8))) == 1


def test_an_operation_that_is_never_joined_is_reported_though_others_end() -> None:
    def answers(now: float) -> list[dict[str, Any]]:
        told = {"idle": 0.1, "completed": int(now)}
        return [answer(0, 2, opened("lonely", seconds=now), told=told), answer(1, 2, told=told)]

    [(at, _)] = Clock().run(300, answers)
    assert 60 <= at <= 65


def test_a_rank_that_has_joined_may_wait_for_as_long_as_the_others_train() -> None:
    def answers(now: float) -> list[dict[str, Any]]:
        told = {"idle": 0.1, "completed": int(now)}
        joined = opened("", kind="join", seconds=now)
        return [answer(0, 2, joined, told=told), answer(1, 2, told=told)]

    assert Clock().run(300, answers) == []


def test_hosts_that_do_not_answer_end_no_watch() -> None:
    assert Clock().run(60, lambda now: []) == []
