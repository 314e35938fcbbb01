"""`sirtaki.records` behaves as `dataclasses`, and a job's start loads little else."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki import records
from tests.single.launching import Job, python


def point(module: Any, frozen: bool = True) -> Any:
    @module.dataclass(frozen=frozen)
    class Point:
        x: int
        y: object = 0
        hidden: str = module.field(default="", compare=False, repr=False)
        more: list[int] = module.field(default_factory=list)

    return Point


OURS, THEIRS = point(records), point(dataclasses)
VALUES = st.integers() | st.text()
CALLS = st.tuples(
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.sampled_from(["x", "y", "hidden", "more", "z"]), VALUES),
)


def outcome(kind: Any, call: tuple[list[object], dict[str, object]]) -> object:
    try:
        made = kind(*call[0], **call[1])
    except TypeError:
        return TypeError
    return vars(made), repr(made).rpartition(".")[2]


@given(CALLS)
def test_a_call_makes_what_that_of_a_dataclass_makes(
    call: tuple[list[Any], dict[str, Any]],
) -> None:
    assert outcome(OURS, call) == outcome(THEIRS, call)


@given(VALUES, VALUES, VALUES, VALUES)
def test_records_are_equal_and_hash_alike_where_dataclasses_do(
    x: object, y: object, hidden: object, other: object
) -> None:
    def compared(kind: Any) -> tuple[bool, bool]:
        one, two = kind(x, y, hidden, ()), kind(x, other, "", ())
        return one == two, hash(one) == hash(two)

    assert compared(OURS) == compared(THEIRS)


def test_only_records_of_one_class_are_equal() -> None:
    assert OURS(1) != THEIRS(1)
    assert point(records)(1) != OURS(1)


def test_a_frozen_record_cannot_be_changed() -> None:
    made = OURS(1)
    with pytest.raises(AttributeError, match="cannot assign to field 'x'"):
        made.x = 2
    with pytest.raises(AttributeError, match="cannot assign to field 'x'"):
        del made.x


def test_a_record_that_is_not_frozen_changes_and_has_no_hash() -> None:
    made = point(records, frozen=False)(1)
    made.x = 2
    assert made.x == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


def test_each_record_has_a_default_of_its_own_where_a_function_makes_it() -> None:
    OURS(1).more.append(1)
    assert OURS(2).more == []


def test_replace_changes_what_is_named() -> None:
    assert records.replace(OURS(1, 2), y=3) == OURS(1, 3)


def test_asdict_goes_into_lists_tuples_and_dictionaries() -> None:
    def nested(kind: Any) -> Any:
        return kind(1, (kind(2), {"a": [kind(3)]}))

    assert records.asdict(nested(OURS)) == dataclasses.asdict(nested(THEIRS))


def test_a_check_of_the_class_runs_after_its_fields_are_set() -> None:
    @records.dataclass
    class Checked:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_methods_of_the_class_stay() -> None:
    @records.dataclass(frozen=True)
    class Named:
        x: int

        def __repr__(self) -> str:
            return "named"

    assert repr(Named(1)) == "named"


def test_dataclasses_takes_a_record_as_one_of_its_own() -> None:
    ours, theirs = dataclasses.fields(OURS), dataclasses.fields(THEIRS)
    assert [(f.name, f.compare, f.repr) for f in ours] == [
        (f.name, f.compare, f.repr) for f in theirs
    ]
    assert dataclasses.replace(OURS(1), x=2) == OURS(2)
    assert dataclasses.asdict(OURS(1)) == dataclasses.asdict(THEIRS(1))


def test_a_record_is_pickled() -> None:
    place = importlib.import_module("sirtaki.rendezvous.world.membership").Topology(1, 2)
    assert pickle.loads(pickle.dumps(place)) == place


# Each takes a millisecond or more of a start, and no process of a job on one host needs it.
SLOW = ("dataclasses", "inspect", "hashlib", "hmac", "secrets", "random", "pickle", "ssl", "yaml")
LOADED = f"{{*{SLOW}}} & {{*sys.modules}}"


def test_a_launcher_of_a_job_on_one_host_loads_no_slow_module(job: Job) -> None:
    code = (
        "import sys; from sirtaki.launch.cli import horovodrun; "
        f"print(horovodrun(['-np', '2', 'true']), {LOADED})"
    )
    ended = subprocess.run(
        python(code), capture_output=True, text=True, env=job.environment, check=True
    )
    assert ended.stdout == "0 set()\n"


def test_a_rank_on_one_host_loads_no_slow_module_that_numpy_does_not(job: Job) -> None:
    code = (
        f"import sys, numpy; before = {LOADED}; import sirtaki; sirtaki.init(); "
        f"sirtaki.allreduce(numpy.ones(1)); print({LOADED} - before)"
    )
    ended = job.run("-np", "2", *python(code))
    assert sorted(ended.stdout.splitlines()) == ["[0]<stdout>:set()", "[1]<stdout>:set()"]
