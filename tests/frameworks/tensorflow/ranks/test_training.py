"""Tapes, optimizers, variables and objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd

v1 = tf.compat.v1


def mean() -> float:
    return (hvd.size() - 1) / 2


def losses(variables: list[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(v) * float(hvd.rank()) for v in variables])


@pytest.mark.parametrize("options", [{}, {"num_groups": 2}, {"gradient_predivide_factor": 4.0}])
@pytest.mark.parametrize("traced", [False, True])
def test_a_tape_gives_averages(options: dict[str, Any], traced: bool) -> None:
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable([[1.0]])]

    def run() -> Any:
        with tf.GradientTape() as tape:
            loss = losses(variables)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for gradient in (tf.function(run) if traced else run)():
        np.testing.assert_allclose(gradient, np.full(gradient.shape, mean()))


def test_a_tape_may_be_distributed_before_it_records() -> None:
    v = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
        loss = v * float(hvd.rank())
    assert isinstance(tape, tf.GradientTape)
    assert tape.gradient(loss, v).numpy() == hvd.size() * mean()


def test_gradients_keep_the_structure_of_their_sources_and_none() -> None:
    used, unused = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = used * 2.0
    got = hvd.DistributedGradientTape(tape).gradient(loss, {"used": used, "unused": [unused]})
    assert got["used"].numpy() == 2
    assert got["unused"] == [None]


def sent_together(options: dict[str, Any], variables: list[Any]) -> list[int]:
    """How many gradients each operation of a tape's program reduces; the values are checked."""

    @tf.function
    def run() -> Any:
        with tf.GradientTape() as tape:
            loss = losses(variables)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for gradient in run():
        np.testing.assert_allclose(gradient, mean())
    operations = run.get_concrete_function().graph.get_operations()
    return [len(op.outputs) for op in operations if "Allreduce" in op.type]


def test_groups_of_variables_are_sent_together() -> None:
    if hvd.size() == 1:
        pytest.skip("nothing is sent")
    variables = [tf.Variable(float(i)) for i in range(5)]
    assert sent_together({}, variables) == [5]
    assert sent_together({"groups": [[variables[2], variables[0]]]}, variables) == [2, 3]
    assert sent_together({"groups": 3}, variables) == [2, 2, 1]
    assert sent_together({"num_groups": 5}, variables) == [1] * 5


def test_a_local_source_keeps_its_gradient_divided_by_the_ranks() -> None:
    shared, local = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = (shared + local) * float(hvd.rank())
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(local)
    got = tape.gradient(loss, [shared, local])
    np.testing.assert_allclose(got, [mean(), hvd.rank() / hvd.size()])
    pairs = [(got[1], local)], [(got[0], shared)]
    assert tape.get_local_and_global_gradients(got, [shared, local]) == pairs


def inner(variable: Any) -> Any:
    """TensorFlow's own variable of one of Keras 3."""
    return variable if isinstance(variable, tf.Variable) else variable.value


@pytest.mark.parametrize(
    "name",
    [
        lambda layer: layer,
        lambda layer: [layer],
        lambda layer: [[layer], []],
        lambda layer: layer.kernel,
        lambda layer: [inner(layer.kernel)],
        lambda layer: [inner(layer.kernel).ref()],
    ],
    ids=["layer", "list", "nested", "variable", "inner variable", "reference"],
)
@pytest.mark.parametrize("source", [lambda variable: variable, inner], ids=["variable", "inner"])
def test_layers_may_keep_their_gradients_to_their_ranks(name: Any, source: Any) -> None:
    shared = tf.keras.layers.Dense(1, use_bias=False)
    local = tf.keras.layers.Dense(1, use_bias=False)
    x = tf.fill([1, 2], float(hvd.rank()))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(shared(x) + local(x))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=name(local))
    got = tape.gradient(loss, [source(shared.kernel), source(local.kernel)])
    np.testing.assert_allclose(got[0], np.full([2, 1], mean()))
    np.testing.assert_allclose(got[1], np.full([2, 1], hvd.rank() / hvd.size()))


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ("dense", r"neither a layer nor a variable .*: give model\.get_layer"),
        (tf.constant(1.0), "neither a layer nor a variable"),
        (tf.keras.layers.Dense(1, name="late"), "the local layer late has no variables yet"),
    ],
)
def test_what_cannot_stay_local_is_refused_by_name(local: Any, message: str) -> None:
    with tf.GradientTape() as tape, pytest.raises(ValueError, match=message):
        hvd.PartialDistributedGradientTape(tape, local_layers=[local])
    assert type(tape) is tf.GradientTape


@pytest.mark.parametrize(
    "compression",
    [
        hvd.Compression.fp16,
        hvd.Compression.bf16,
        hvd.Compression.int8,
        hvd.Compression.int4,
    ],
)
def test_compressed_gradients_come_back_in_their_own_type(compression: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = losses([v])
    gradient = hvd.DistributedGradientTape(tape, compression=compression).gradient(loss, v)
    assert gradient.dtype == tf.float32
    np.testing.assert_allclose(gradient, [mean()] * 2, rtol=1e-2)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
@pytest.mark.parametrize("in_graph", [False, True])
def test_compression_rounds_what_each_rank_gives_and_not_their_sum(
    compression: Any, in_graph: bool
) -> None:
    def total(floats: Any, integers: Any) -> list[Any]:
        return hvd.grouped_allreduce([floats, integers], op=hvd.Sum, compression=compression)

    # 1 + 2**-12 is 1 in both types, which have no 2049 either.
    mine = tf.constant([2048.0 if hvd.rank() == 0 else 1.0, 1 + 2**-12])
    run = tf.function(total) if in_graph else total
    floats, integers = run(mine, tf.constant([2**20 + 1]))
    assert floats.dtype == tf.float32
    assert floats.numpy().tolist() == [2048.0 + hvd.size() - 1, hvd.size()]
    assert integers.numpy().tolist() == [(2**20 + 1) * hvd.size()]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_int8_sends_steps_of_the_largest_number(dtype: Any, in_graph: bool) -> None:
    def total(floats: Any, integers: Any) -> list[Any]:
        both = [floats, integers]
        return hvd.grouped_allreduce(both, op=hvd.Sum, compression=hvd.Compression.int8)

    run = tf.function(total) if in_graph else total
    floats, integers = run(tf.constant([127.0, 1.4], dtype), tf.constant([2**20 + 1]))
    assert floats.dtype == dtype
    assert floats.numpy().tolist() == [127.0 * hvd.size(), hvd.size()]
    assert integers.numpy().tolist() == [(2**20 + 1) * hvd.size()]
    with pytest.raises(ValueError, match=r"Compression\.int8 is for allreduce with Sum"):
        hvd.allreduce(tf.ones(2), op=hvd.Max, compression=hvd.Compression.int8)


@pytest.mark.parametrize("in_graph", [False, True])
def test_int4_sends_eighths_of_the_largest_number(in_graph: bool) -> None:
    def total(floats: Any) -> Any:
        return hvd.allreduce(floats, op=hvd.Sum, compression=hvd.Compression.int4)

    run = tf.function(total) if in_graph else total
    found = run(tf.constant([8.0, 1.4, -6.6]))
    assert found.numpy().tolist() == [8.0 * hvd.size(), hvd.size(), -7.0 * hvd.size()]


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients_are_gathered_or_summed(as_dense: bool) -> None:
    table = tf.Variable(tf.zeros([hvd.size() + 1, 2]))
    with tf.GradientTape() as tape:
        rows = tf.gather(table, [hvd.rank(), hvd.size()])
        loss = tf.reduce_sum(rows)
    tape = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense)
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices) is not as_dense
    expected = [1 / hvd.size()] * hvd.size() + [1.0]
    np.testing.assert_allclose(tf.convert_to_tensor(gradient)[:, 0], expected, rtol=1e-6)


def test_a_process_set_reduces_among_its_members() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank has no subset but itself")
    last_alone = hvd.add_process_set([hvd.size() - 1])
    if last_alone.included():
        only = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=last_alone))
        assert only(tf.constant(2.0)).numpy() == 2
    hvd.remove_process_set(last_alone)


def of_a_tape(traced: bool, process_set: hvd.ProcessSet) -> float:
    variable = tf.Variable(1.0)

    def run() -> Any:
        with tf.GradientTape() as tape:
            loss = variable * float(hvd.rank() + 1)
        return hvd.DistributedGradientTape(tape, process_set=process_set).gradient(loss, variable)

    return float((tf.function(run) if traced else run)())


def of_an_optimizer_of_tensorflow_1(process_set: hvd.ProcessSet) -> float:
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", initializer=0.0)
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        train = hvd.DistributedOptimizer(optimizer, process_set=process_set).minimize(
            weight * float(hvd.rank() + 1)
        )
        session.run(v1.global_variables_initializer())
        session.run(train)
        return -float(session.run(weight))


@pytest.mark.parametrize(
    "gradient",
    [partial(of_a_tape, False), partial(of_a_tape, True), of_an_optimizer_of_tensorflow_1],
    ids=["tape", "tape in a function", "optimizer of TensorFlow 1"],
)
def test_ranks_outside_of_a_process_set_keep_their_gradients(
    gradient: Callable[[hvd.ProcessSet], float],
) -> None:
    if hvd.size() == 1:
        pytest.skip("there is no rank outside")
    members = hvd.add_process_set(range(1, hvd.size()))
    average = sum(range(2, hvd.size() + 1)) / (hvd.size() - 1)
    assert gradient(members) == (average if members.included() else 1.0)
    hvd.remove_process_set(members)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", [None, "group"])
def test_a_group_may_hold_sparse_tensors(traced: bool, name: str | None) -> None:
    def run() -> list[Any]:
        rows = tf.constant([[hvd.rank() + 1.0]])
        where, shape = tf.constant([hvd.rank()]), tf.constant([4, 1])
        sparse = [tf.IndexedSlices(rows * i, where, shape) for i in (1, 2)]
        tensors = [sparse[0], tf.constant([1.0]), sparse[1]]
        return hvd.grouped_allreduce(tensors, op=hvd.Sum, name=name)  # type: ignore[no-any-return]

    one, dense, two = (tf.function(run) if traced else run)()
    ranks = np.arange(hvd.size())
    np.testing.assert_array_equal(one.indices, ranks)
    np.testing.assert_array_equal(one.values[:, 0], ranks + 1.0)
    np.testing.assert_array_equal(dense, [hvd.size()])
    np.testing.assert_array_equal(two.values[:, 0], 2 * (ranks + 1.0))
    np.testing.assert_array_equal(two.dense_shape, (4, 1))


def test_variables_become_the_roots() -> None:
    root = hvd.size() - 1
    variables = [
        tf.Variable([float(hvd.rank())] * 3),
        tf.Variable(hvd.rank(), dtype=tf.int64),
        tf.Variable(hvd.rank() == root),
    ]
    hvd.broadcast_variables(variables, root)
    assert variables[0].numpy().tolist() == [root] * 3
    assert variables[1].numpy() == root
    assert bool(variables[2].numpy())


def test_variables_become_the_roots_in_place() -> None:
    variables = [tf.Variable([float(hvd.rank()), 1.0]), tf.Variable(hvd.rank())]
    given = hvd.broadcast_(variables, hvd.size() - 1)
    assert given[0].numpy().tolist() == [hvd.size() - 1, 1]
    assert given[1].numpy() == hvd.size() - 1
    assert variables[0].numpy().tolist() == [hvd.size() - 1, 1]
    assert variables[1].numpy() == hvd.size() - 1


def test_a_group_is_summed_and_scattered() -> None:
    tensors = [tf.fill([hvd.size(), 2], float(hvd.rank() + i)) for i in range(2)]
    parts = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
    ranks = hvd.size() * mean()
    assert [part.numpy().tolist() for part in parts] == [[[ranks] * 2], [[ranks + hvd.size()] * 2]]


def test_objects_are_sent_and_gathered() -> None:
    assert hvd.broadcast_object({"from": hvd.rank()}, 0) == {"from": 0}
    assert hvd.broadcast_object_fn(0)(hvd.rank()) == 0
    assert hvd.allgather_object(["x"] * hvd.rank()) == [["x"] * r for r in range(hvd.size())]


def test_joined_ranks_add_zeros() -> None:
    for _ in range(hvd.rank()):
        total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="joined")
        assert total.numpy() <= hvd.size()
    last = hvd.join()
    assert last.dtype == tf.int32
    assert int(last) == hvd.size() - 1


def test_asynchronous_forms_are_waited_for() -> None:
    n = hvd.size()
    handles = [
        hvd.allreduce_async(tf.ones(2), op=hvd.Sum),
        hvd.allgather_async(tf.constant([hvd.rank()])),
        hvd.broadcast_async(tf.constant(hvd.rank()), 0),
        hvd.reducescatter_async(tf.ones([n]), op=hvd.Sum),
        hvd.alltoall_async(tf.range(n)),
    ]
    results = [hvd.synchronize(handle) for handle in handles]
    np.testing.assert_array_equal(results[0], [n, n])
    np.testing.assert_array_equal(results[1], range(n))
    assert results[2].numpy() == 0
    np.testing.assert_array_equal(results[3], [n])
    np.testing.assert_array_equal(results[4][0], [hvd.rank()] * n)


def test_an_asynchronous_sum_of_bfloat16_is_exact() -> None:
    handle = hvd.allreduce_async(tf.ones(3, tf.bfloat16), op=hvd.Sum)
    result = hvd.synchronize(handle)
    assert result.dtype == tf.bfloat16
    np.testing.assert_array_equal(result, [hvd.size()] * 3)


# ---- In the style of TensorFlow 1 ----


def test_variables_of_a_graph_become_the_roots_when_what_broadcast_gives_is_run() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("own", initializer=float(hvd.rank()))
        given = hvd.broadcast_([variable], hvd.size() - 1)
        session.run(v1.global_variables_initializer())
        assert session.run(given) == [hvd.size() - 1]
        assert session.run(variable) == hvd.size() - 1


def linear(learning_rate: float, **options: Any) -> tuple[Any, Any, Any]:
    """A variable, the operation that trains it, and a counter of steps."""
    weight = v1.get_variable("weight", initializer=float(hvd.rank() + 1), dtype=tf.float32)
    step = v1.train.get_or_create_global_step()
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(learning_rate), **options
    )
    loss = weight * tf.cast(hvd.rank(), tf.float32)
    return weight, optimizer.minimize(loss, global_step=step), step


def test_a_monitored_session_broadcasts_trains_and_stops(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        weight, train, _ = linear(0.5)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=4)]
        folder = str(tmp_path) if hvd.rank() == 0 else None
        seen = []
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
                if not session.should_stop():
                    seen.append(session.run(weight))
    np.testing.assert_allclose(seen[0], 1.0 - 0.5 * mean())
    assert (len(list(tmp_path.glob("*.index"))) > 0) == (hvd.rank() == 0)


@pytest.mark.parametrize("average", [False, True])
def test_gradients_of_several_passes_are_added_up(average: bool) -> None:
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
    with tf.Graph().as_default(), v1.Session() as session:
        weight, train, step = linear(1.0, **options)
        session.run(v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        values = []
        for _ in range(4):
            session.run(train)
            values.append(float(session.run(weight)))
        assert session.run(step) == 4
    each = mean() * (1 if average else 2)
    np.testing.assert_allclose(values, [1.0, 1.0 - each, 1.0 - each, 1.0 - 2 * each], rtol=1e-6)


def test_passes_are_added_up_beside_unused_sparse_and_local_variables() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(name, initializer=tf.ones([2, 1]))
            for name in ("unused", "table", "local")
        ]
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, sparse_as_dense=True
        )
        optimizer.register_local_var(variables[2])
        loss = tf.reduce_sum(tf.gather(variables[1], [0])) + tf.reduce_sum(variables[2])
        pairs = optimizer.compute_gradients(loss * float(hvd.rank()), variables)
        train = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        session.run(train)
        session.run(train)
        unused, table, local = session.run(variables)
    np.testing.assert_allclose(unused[:, 0], [1.0, 1.0])
    np.testing.assert_allclose(table[:, 0], [1.0 - 2 * mean(), 1.0], rtol=1e-6)
    expected = [1.0 - 2 * hvd.rank() / hvd.size()] * 2
    np.testing.assert_allclose(local[:, 0], expected, rtol=1e-6)


def test_an_optimizer_of_tensorflow_1_takes_no_several_passes_in_eager_mode() -> None:
    with pytest.raises(ValueError, match="needs a graph"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=2)
