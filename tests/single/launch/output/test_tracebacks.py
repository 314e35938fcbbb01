"""What ranks say when they fail: tracebacks found, shortened, folded, and the first one named."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirtaki
from sirtaki.launch.elastic.job import with_last_error
from sirtaki.launch.errors import JobError
from sirtaki.launch.output.first_error import Errors, FirstError
from sirtaki.launch.output.tracebacks import Traceback, TracebackFinder, shortened
from tests.single.launching import Job, python

PLAIN = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step(1)
    ~~~~^^^
  File "train.py", line 2, in step
    [Previous line repeated 2 more times]
ValueError: bad batch
"""
CHAINED = f"""\
{PLAIN}second line of the message

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
RuntimeError: cannot train
"""
LEFT = """\
Traceback (most recent call last):
  File "train.py", line 5, in <module>
HorovodInternalError: the world has been shut down: rank 2 (a) left; let every rank run the same
"""
LOST = PLAIN.replace("ValueError: bad batch", "sirtaki.core.errors.PeerLostError: rank 2 died")


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def traceback(text: str, rest: str = "") -> Traceback:
    return Traceback(tuple(lines(text)), tuple(lines(rest)))


def found(text: str) -> list[str | Traceback]:
    finder = TracebackFinder()
    return [*finder.feed(lines(text)), *finder.release()]


# ---- Found ----


@pytest.mark.parametrize("text", [PLAIN, CHAINED, LEFT])
def test_a_traceback_with_those_that_led_to_it_is_found_whole(text: str) -> None:
    assert found(f"before\n{text}") == ["before\n", traceback(text)]


def test_what_comes_at_once_behind_a_traceback_belongs_to_it() -> None:
    assert found(f"{PLAIN}more\n\nand more\n") == [traceback(PLAIN, "more\n\nand more\n")]


@pytest.mark.parametrize(
    "text",
    [
        '  File "train.py", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
        "/usr/bin/python3.12: can't open file '/a/train.py': [Errno 2] No such file or directory\n",
        "python: No module named train\n",
    ],
)
def test_a_script_that_cannot_be_read_or_found_is_an_error_like_a_traceback(text: str) -> None:
    assert found(f"before\n{text}") == ["before\n", traceback(text)]
    errors = Errors()
    for rank in (0, 1):
        errors.take(rank, traceback(text))
    assert errors.say(math.inf) == ["The same error as that of rank 0 came from rank 1."]
    assert errors.first([0, 1], []) == FirstError(0, lines(text)[-1].rstrip())


def test_a_line_that_looks_like_a_frame_is_no_error() -> None:
    text = '  File "list.txt", line 2\nis empty\n'
    assert found(text) == lines(text)


def test_another_traceback_is_one_of_its_own() -> None:
    assert found(PLAIN + LEFT) == [traceback(PLAIN), traceback(LEFT)]


def test_a_traceback_is_held_until_it_ends() -> None:
    finder = TracebackFinder()
    assert finder.feed(lines(PLAIN)[:4]) == []
    assert finder.holds
    assert finder.feed(lines(PLAIN)[4:]) == []
    assert finder.release() == [traceback(PLAIN)]
    assert not finder.holds


def test_lines_without_end_are_not_held() -> None:
    many = "line\n" * 100
    finder = TracebackFinder()
    shown = finder.feed(lines(PLAIN + many))
    assert not finder.holds
    assert shown[0] == traceback(PLAIN, "line\n" * 30)
    assert shown[1:] == ["line\n"] * 70


PIECES = [*lines(CHAINED), "\n", "text\n", "  indented\n", "Traceback (most recent call last):\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_nothing_is_lost_or_added_by_looking_for_tracebacks(pieces: list[str]) -> None:
    parts = [[p] if isinstance(p, str) else [*p.lines, *p.rest] for p in found("".join(pieces))]
    assert [line for part in parts for line in part] == pieces


# ---- Shortened ----


def frames(*paths: str) -> Traceback:
    head = "Traceback (most recent call last):\n"
    body = "".join(f'  File "{path}", line 1, in f\n    call()\n    ^^^^^^\n' for path in paths)
    return traceback(f"{head}{body}ValueError: no\n")


OURS = "/anywhere/site-packages/sirtaki/core/operations/handles.py"
USERS = "/home/me/sirtaki/train.py"


def test_frames_of_the_package_are_left_out_on_whatever_host_it_is() -> None:
    here = str(Path(sirtaki.__file__).parent / "torch" / "optimizer.py")
    text = "".join(shortened(frames(USERS, OURS, here, USERS, OURS)).lines)
    assert text.count(USERS) == 2
    assert "handles.py" not in text
    assert "  [2 frames inside Sirtaki; --verbose shows them]\n" in text
    assert "  [1 frame inside Sirtaki; --verbose shows them]\n" in text
    assert text.endswith("ValueError: no\n")


@pytest.mark.parametrize("paths", [(OURS, OURS), (USERS,), ()])
def test_a_traceback_of_one_kind_of_frames_stays_as_it_is(paths: tuple[str, ...]) -> None:
    assert shortened(frames(*paths)) == frames(*paths)


# ---- Folded ----


def test_what_another_rank_has_said_is_not_shown_again_but_counted() -> None:
    errors = Errors()
    shown = [errors.take(rank, traceback(PLAIN)) for rank in (1, 0, 2, 3)]
    assert shown == [lines(PLAIN), [], [], []]
    assert errors.due() is not None
    assert errors.say(0.0) == []
    said = ["The same traceback as that of rank 1 came from ranks 0,2-3."]
    assert errors.say(math.inf) == said
    assert errors.say(math.inf) == []


def test_addresses_and_ends_of_lines_make_no_difference() -> None:
    errors = Errors()
    text = PLAIN.replace("bad batch", "<Batch at 0x7f01>")
    errors.take(0, traceback(text))
    assert errors.take(1, traceback(text.replace("0x7f01", "0x7fee").replace("\n", "\r\n"))) == []


def test_what_is_behind_an_equal_traceback_is_shown_where_it_differs() -> None:
    errors = Errors()
    errors.take(0, traceback(PLAIN, "same\n"))
    assert errors.take(1, traceback(PLAIN, "same\n")) == []
    assert errors.take(2, traceback(PLAIN, "other\n")) == ["other\n"]


def test_a_rank_that_repeats_itself_is_shown_again() -> None:
    errors = Errors()
    assert [errors.take(0, traceback(PLAIN)) for _ in range(2)] == [lines(PLAIN)] * 2


def test_a_script_that_never_ends_to_find_new_errors_fills_no_memory() -> None:
    errors = Errors()
    for number in range(1100):
        errors.take(0, traceback(PLAIN.replace("bad", str(number))))
    assert errors.take(1, traceback(PLAIN.replace("bad", "1099"))) == []
    first = PLAIN.replace("bad", "0")
    assert errors.take(1, traceback(first)) == lines(first)


def test_a_verbose_run_shows_all_tracebacks_of_all_ranks() -> None:
    errors = Errors(verbose=True)
    whole = frames(USERS, OURS)
    assert [errors.take(rank, whole) for rank in (0, 1)] == [list(whole.lines)] * 2
    assert errors.say(math.inf) == []


# ---- The first ----


def first(*said: tuple[int, str], failed: tuple[int, ...], asked: tuple[int, ...] = ()):
    errors = Errors()
    for rank, text in said:
        if text.startswith("Traceback"):
            errors.take(rank, traceback(text))
        else:
            errors.take_line(rank, text)
    return errors.first(failed, asked)


@pytest.mark.parametrize("consequence", [LEFT, LOST])
def test_the_first_error_is_the_one_that_does_not_follow_from_another(consequence: str) -> None:
    expected = FirstError(2, "ValueError: bad batch", tuple(PLAIN.splitlines()))
    assert first((2, PLAIN), (0, consequence), failed=(0, 2)) == expected
    # Pipes are read in any order, and the launcher may have ended the rank while it ended.
    said = ((0, consequence), (2, PLAIN), (1, consequence.replace("line 5", "line 6")))
    assert first(*said, (1, LEFT), failed=(0, 1), asked=(2,)) == expected


def test_of_several_errors_the_first_is_the_one_that_came_first() -> None:
    other = PLAIN.replace("ValueError", "KeyError")
    found = first((1, PLAIN), (0, other), failed=(0, 1))
    assert found == FirstError(1, "ValueError: bad batch", tuple(PLAIN.splitlines()))


def test_an_error_right_above_is_not_repeated() -> None:
    assert first((1, PLAIN), failed=(1,)) == FirstError(1, "ValueError: bad batch")


def test_a_rank_that_left_with_a_sentence_is_asked_for_it() -> None:
    said = ((2, "usage: train.py\n"), (2, "train.py: error: no data\n"), (0, LEFT))
    lines = ("usage: train.py", "train.py: error: no data")
    assert first(*said, failed=(0,), asked=(2,)) == FirstError(2, lines[-1], lines)


def test_a_rank_that_ended_well_too_early_is_named() -> None:
    expected = FirstError(2, "it ended with exit code 0 while other ranks still needed it")
    assert first((1, LEFT), failed=(0, 1)) == expected


def test_the_last_error_of_failed_ranks_is_none_that_follows_from_another() -> None:
    errors = Errors()
    other = PLAIN.replace("ValueError", "torch.OutOfMemoryError")
    for rank, text in ((0, PLAIN), (1, other), (2, LEFT)):
        errors.take(rank, traceback(text))
    found = errors.last([0, 1, 2])
    assert found is not None
    assert (found.rank, found.error) == (1, "torch.OutOfMemoryError: bad batch")
    assert errors.last([2]) is None

    def explained(text: str) -> str:
        job = SimpleNamespace(errors=errors), SimpleNamespace(failed=[1])
        return str(with_last_error(JobError(text), *job))  # type: ignore[arg-type]

    assert explained("all lost").endswith("; the last error is that of process 1: " + found.error)
    assert explained("twice: OutOfMemoryError: bad batch") == "twice: OutOfMemoryError: bad batch"


def test_the_cause_is_found_behind_where_the_nodes_of_a_graph_were_defined() -> None:
    head, cause = LEFT.split("HorovodInternalError: ")
    nodes = "Detected at node Sum defined at (most recent call last):\n" + '  File "a.py"\n' * 99
    rest = f"\n{nodes}\nHorovodInternalError: {cause}"
    text = f"{head}errors_impl.AbortedError: Graph execution error:\n{rest}"
    [whole] = found(text)
    assert isinstance(whole, Traceback)
    errors = Errors()
    errors.take(0, whole)
    expected = FirstError(2, "it ended with exit code 0 while other ranks still needed it")
    assert errors.first((0, 1), ()) == expected


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_who_prints_that_it_lost_another_is_a_victim_though_it_caught_the_error(
    stream: str,
) -> None:
    errors = Errors()
    line = f"caught {LEFT.splitlines()[-1]}\n"
    if stream == "stderr":
        errors.take_line(0, line)
    else:
        errors.take_loss(0, line)
    assert errors.culprit([0, 2]) == 2
    assert errors.awaits([0], {2})
    assert not errors.awaits([0, 2], {1})


@pytest.mark.parametrize("said", [(), ((1, LOST),)])
def test_without_an_error_of_its_own_nobody_is_named(said: tuple[tuple[int, str], ...]) -> None:
    assert first(*said, failed=(0, 1)) is None


# ---- Whole jobs ----

TRAIN = """
import numpy, sirtaki
sirtaki.init()
for step in range(3):
    if step == 1 and sirtaki.rank() == 1:
        raise ValueError("bad batch")
    sirtaki.allreduce(numpy.ones(3), name="grad")
"""


def test_the_last_word_of_a_job_is_the_error_that_came_first(job: Job) -> None:
    done = job.run("-np", "3", *python(TRAIN))
    assert done.returncode == 1
    *_, last = re.split(r"^The first error is that of ", done.stderr, flags=re.MULTILINE)
    # Without the lines where they stand right above.
    lines = r"\nTraceback \(most recent call last\):\n(.*\n)+"
    error = rf"rank 1 on localhost:( |{lines})ValueError: bad batch\n"
    assert re.fullmatch(error, last), done.stderr
    # The two others say the same of it, without what is inside of us.
    assert done.stderr.count("let every rank run the same number of steps") == 1
    assert re.search(r"as that of rank [02] came from rank [02]\.$", done.stderr, re.MULTILINE)
    assert "handles.py" not in done.stderr


def test_a_verbose_job_shows_what_is_inside(job: Job) -> None:
    done = job.run("-np", "2", "--verbose", *python(TRAIN))
    assert "handles.py" in done.stderr


def test_a_line_behind_a_traceback_is_shown_while_the_rank_runs_on(job: Job) -> None:
    code = f"import sys, time; print({PLAIN!r}, file=sys.stderr, flush=True); time.sleep(600)"
    running = job.start("-np", "1", *python(code))
    assert running.stdout is not None
    shown = [running.stdout.readline() for _ in lines(PLAIN)]
    running.terminate()
    running.wait()
    running.stdout.close()
    assert shown[-1] == "[0]<stderr>:ValueError: bad batch\n"


@pytest.mark.parametrize("line", ["  " + "z" * 97 + "\n", "  " + "z" * 100_000 + "\n"])
def test_what_looks_like_a_traceback_without_end_is_not_held(line: str) -> None:
    finder = TracebackFinder()
    held = 0
    shown = finder.feed(["Traceback (most recent call last):\n"])
    for _ in range(10_000 if len(line) < 1000 else 50):
        shown += finder.feed([line])
        held = max(held, sum(map(len, finder._lines)))
    assert held < 2 << 20
    assert not finder.holds
    assert all(isinstance(each, str) for each in shown)


def test_the_oldest_of_many_tracebacks_may_come_again() -> None:
    def traceback(text: str) -> Traceback:
        return Traceback(("Traceback (most recent call last):\n", f"{text}\n"))

    errors = Errors()
    for rank in (0, 1):  # the second one is pending while the others come
        errors.take(rank, traceback("E: first"))
    for number in range(1000):
        errors.take(0, traceback(f"E: {number}"))
    errors.say(math.inf)
    errors.take(1, traceback("E: first"))
    errors.say(math.inf)
