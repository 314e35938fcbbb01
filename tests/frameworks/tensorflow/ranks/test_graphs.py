"""How collectives live in graphs: order, names, loops, saved models, input pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd
from sirtaki import keras_2
from sirtaki.core.world.snapshot import exposed_of
from sirtaki.core.world.state import snapshot
from sirtaki.hang.answers import exposed_share


def test_ten_collectives_in_opposite_orders_finish() -> None:
    order = range(10) if hvd.rank() % 2 == 0 else reversed(range(10))
    numbers = list(order)

    @tf.function
    def run(x: Any) -> Any:
        return {
            str(i): hvd.allreduce(x * float(i), op=hvd.Sum, name=f"opposite.{i}") for i in numbers
        }

    for _ in range(5):
        results = run(tf.ones(4))
    for i in numbers:
        np.testing.assert_array_equal(results[str(i)], [i * hvd.size()] * 4)


def test_a_rank_that_traces_more_often_than_others_still_meets_them() -> None:
    @tf.function
    def run(x: Any) -> Any:
        return hvd.allreduce(tf.reduce_sum(x), op=hvd.Sum)

    for rows in (3, 4, 5):  # rank 0 sees one shape, the others three
        total = run(tf.ones(3 if hvd.rank() == 0 else rows))
        assert total.numpy() == 3 + (hvd.size() - 1) * rows


def test_what_other_functions_were_traced_before_does_not_matter() -> None:
    if hvd.rank() == 0:
        tf.function(lambda x: x * 2)(tf.ones(2))

    @tf.function
    def run(n: Any) -> Any:
        total = tf.constant(0.0)
        while n > 0:
            total += hvd.allreduce(1.0, op=hvd.Sum)
            n -= 1
        return total

    assert run(tf.constant(4)).numpy() == 4 * hvd.size()


def test_a_branch_that_all_take_reduces() -> None:
    @tf.function
    def run(x: Any, reduces: Any) -> Any:
        if reduces:
            return hvd.allreduce(x, op=hvd.Sum)
        return x

    assert run(tf.constant(1.0), tf.constant(True)).numpy() == hvd.size()
    assert run(tf.constant(1.0), tf.constant(False)).numpy() == 1


def test_a_barrier_whose_result_nobody_uses_runs() -> None:
    @tf.function
    def run(x: Any) -> Any:
        hvd.barrier()
        return x + 1

    assert run(tf.constant(1)).numpy() == 2


def test_a_saved_model_reduces_when_it_is_loaded(tmp_path: Path) -> None:
    class Module(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])  # type: ignore[untyped-decorator]
        def reduce(self, x: Any) -> Any:
            return hvd.allreduce(x, op=hvd.Sum)

    tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.reduce(tf.ones(3)), [hvd.size()] * 3)


def test_an_input_pipeline_may_reduce() -> None:
    data = tf.data.Dataset.range(6).map(lambda x: hvd.allreduce(x, op=hvd.Sum))
    assert [int(x) for x in data] == [i * hvd.size() for i in range(6)]


def test_a_variable_is_not_overwritten_by_its_own_reduction() -> None:
    variable = tf.Variable([1.0, 2.0])
    reduced = tf.function(lambda: hvd.allreduce(variable, op=hvd.Sum))()
    np.testing.assert_array_equal(variable, [1.0, 2.0])
    np.testing.assert_array_equal(reduced, [hvd.size(), 2 * hvd.size()])


def test_the_compiler_of_tensorflow_says_that_it_cannot_and_where() -> None:
    @tf.function(jit_compile=True)
    def compiled(x: Any) -> Any:
        return hvd.allreduce(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="Sirtaki"):
        compiled(tf.ones(2))


OLD: dict[str, Callable[[], Any]] = {
    "app": lambda: tf.app,
    "ConfigProto": lambda: tf.ConfigProto(),
    "AdamOptimizer": lambda: tf.train.AdamOptimizer(0.1),
}


@pytest.mark.parametrize("name", OLD)
def test_what_is_of_tensorflow_1_is_named_with_the_lines_that_bring_it_back(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        OLD[name]()
    keras_2.add_cure(caught.value)
    assert str(caught.value).endswith(f"'{name}'; {keras_2.TENSORFLOW_1}")


@pytest.mark.parametrize(
    ("name", "cure"), [("estimator", "MonitoredTrainingSession"), ("contrib", "replace"), ("x", "")]
)
def test_what_no_tensorflow_has_is_named_with_what_replaces_it(name: str, cure: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tf, name)
    keras_2.add_cure(caught.value)
    assert keras_2.TENSORFLOW_1 not in str(caught.value)
    assert cure in str(caught.value)


def test_numbers_of_the_world_are_looked_up_when_the_graph_runs() -> None:
    sets = hvd.global_process_set.process_set_id

    @tf.function
    def run() -> Any:
        return tf.stack(
            [
                hvd.size_op(),
                hvd.rank_op(),
                hvd.local_size_op(),
                hvd.local_rank_op(),
                hvd.process_set_included_op(sets),
            ]
        )

    expected = [hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank(), 1]
    np.testing.assert_array_equal(run(), expected)


@pytest.mark.parametrize("function", [hvd.size_op, hvd.process_set_included_op])
def test_the_number_of_a_process_set_that_does_not_exist_is_an_error(function: Any) -> None:
    with pytest.raises(ValueError, match="there is no process set 99"):
        function(99)


def test_what_a_graph_waits_for_is_not_seen_and_said_not_to_be() -> None:
    """Nobody knows what TensorFlow does meanwhile, so no share of the time is called exposed."""

    @tf.function
    def run(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, name="unseen")

    run(tf.ones(4))
    before = look()
    for _ in range(3):
        run(tf.ones(4)).numpy()
    assert exposed_share(before, look()) is None


def look() -> dict[str, Any]:
    """What two looks at this rank are compared by."""
    doing = snapshot(1, 0.0)[hvd.rank()].doing
    assert doing is not None
    return {"completed": doing.completed, **exposed_of(doing)}
