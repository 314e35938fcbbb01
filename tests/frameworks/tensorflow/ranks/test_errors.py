"""What is refused, with which error, and that training can go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import dtypes

import sirtaki.tensorflow as hvd
from sirtaki.core.operations.codes import DTYPES, REDUCED_DTYPES

alone = pytest.mark.skipif("__import__('sirtaki').size() < 2", reason="ranks cannot differ")


def works() -> bool:
    return bool(hvd.allreduce(tf.constant(1.0), op=hvd.Sum).numpy() == hvd.size())


@pytest.fixture(params=[False, True], ids=["eager", "function"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    if request.param:
        return lambda function: tf.function(function)()
    return lambda function: function()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda r: hvd.allreduce(tf.ones(2 + r), name="m"), "tensor shapes"),
        (
            lambda r: hvd.allreduce(tf.ones(2, [tf.float32, tf.int32][r > 0]), name="m"),
            "data types",
        ),
        (lambda r: hvd.allreduce(tf.ones(2), op=[hvd.Sum, hvd.Max][r > 0], name="m"), "reduce"),
        (lambda r: hvd.grouped_allreduce([tf.ones(2)] * (1 + r), name="m"), "numbers of tensors"),
        (lambda r: hvd.broadcast(tf.ones(2), int(r > 0), name="m"), "root ranks"),
        (lambda r: hvd.allgather(tf.ones([2, 1 + r]), name="m"), "tensor shapes"),
    ],
)
def test_ranks_that_differ_are_told_so_and_go_on(
    call: Callable[[int], Any], text: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank cannot differ")
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        run(lambda: call(min(hvd.rank(), 1)))
    assert works()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hvd.allreduce(tf.constant("text")), TypeError, "string"),
        (
            lambda: hvd.allreduce(tf.constant(1j), op=hvd.Min),
            ValueError,
            "not complex128",
        ),
        (lambda: hvd.allgather(tf.IndexedSlices(tf.ones([1, 1]), [0])), TypeError, "IndexedSlices"),
        (lambda: hvd.allreduce(tf.ones(1), op=77), ValueError, "not a reduction"),
        (lambda: hvd.allreduce(tf.ones(1), average=True, op=hvd.Sum), ValueError, "not both"),
        (lambda: hvd.allreduce(tf.ones(1, tf.int32), op=hvd.Adasum), ValueError, "floating"),
        (lambda: hvd.reducescatter(tf.ones(2), op=hvd.Adasum), NotImplementedError, "but Adasum"),
        (lambda: hvd.broadcast(tf.ones(1), "0"), TypeError, "root_rank must be an int"),
        (
            lambda: hvd.allreduce(tf.ones(1), process_set=hvd.ProcessSet([0])),
            ValueError,
            "not registered",
        ),
        (
            lambda: hvd.allreduce(tf.IndexedSlices(tf.ones([1, 1]), [0]), op=hvd.Max),
            NotImplementedError,
            "IndexedSlices",
        ),
        (
            lambda: hvd.broadcast_global_variables(0),
            RuntimeError,
            "disable_v2_behavior",
        ),
        (lambda: hvd.BroadcastGlobalVariablesHook(0), RuntimeError, "disable_v2_behavior"),
        (lambda: hvd.DistributedOptimizer(object()), ValueError, "optimizer"),
        (lambda: hvd.broadcast_variables([np.ones(3)], 0), ValueError, "got ndarray"),
        (lambda: hvd.broadcast_([tf.Variable(1.0), tf.ones(3)], 0), ValueError, "got EagerTensor"),
        (
            lambda: hvd.DistributedGradientTape(
                tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0
            ),
            ValueError,
            "gradient_predivide_factor",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: hvd.alltoall(tf.ones(hvd.size() + 1)), "divisible by"),
        (lambda: hvd.alltoall(tf.ones(1), splits=[0.5] * hvd.size()), "must be integers"),
        (lambda: hvd.alltoall(tf.ones(1), splits=1), "1-D"),
        (lambda: hvd.reducescatter(tf.constant(1.0)), "rows"),
    ],
)
def test_an_invalid_argument_is_one_for_tensorflow_and_a_value_error(
    call: Callable[[], Any], text: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank divides all")
    for error in (tf.errors.InvalidArgumentError, ValueError):
        with pytest.raises(error, match=text):
            run(call)
    assert works()


@alone
def test_a_root_outside_of_the_process_set_is_an_invalid_argument() -> None:
    first = hvd.add_process_set([0])
    for error in (tf.errors.InvalidArgumentError, ValueError):
        with pytest.raises(error, match="root_rank 1 is not in"):
            hvd.broadcast(tf.ones(1), 1, process_set=first)
    hvd.remove_process_set(first)


@alone
def test_rows_of_a_graph_that_ranks_cannot_share_evenly_are_an_invalid_argument() -> None:
    unknown = tf.function(hvd.alltoall, input_signature=[tf.TensorSpec([None], tf.float32)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="divisible by"):
        unknown(tf.ones(hvd.size() + 1))
    assert unknown(tf.ones(hvd.size())).shape == (hvd.size(),)


def test_splits_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits"):
        hvd.alltoall(tf.ones(2), splits=[1] * (hvd.size() + 1))
    assert works()


def test_a_scalar_has_no_rows_to_gather() -> None:
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.function(lambda: hvd.allgather(tf.constant(1.0)))()
    assert works()


def test_a_variable_without_gradient_on_one_rank_is_an_error_of_all() -> None:
    if hvd.size() < 2:
        pytest.skip("one rank cannot differ")
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = a * b if hvd.rank() == 0 else a * 2.0
    tape = hvd.DistributedGradientTape(tape)
    with pytest.raises(tf.errors.FailedPreconditionError, match="numbers of tensors"):
        tape.gradient(loss, [a, b])
    assert works()


def test_training_goes_on_after_an_error_within_a_function() -> None:
    @tf.function
    def step(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, name="step")

    if hvd.size() > 1:
        with pytest.raises(tf.errors.FailedPreconditionError):
            step(tf.ones(2 + hvd.rank()))
    np.testing.assert_array_equal(step(tf.ones(2)), [hvd.size()] * 2)


VERBS = {
    "allreduce": hvd.allreduce,
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([tf.ones(2), x]),
    "allgather": hvd.allgather,
    "grouped_allgather": lambda x: hvd.grouped_allgather([tf.ones(2), x]),
    "broadcast": lambda x: hvd.broadcast(x, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
}
every_verb = pytest.mark.parametrize("verb", VERBS)


@every_verb
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), r"would lose its mask: give x\.filled"),
        (lambda: [np.ma.array([1.0]), np.ma.array([2.0])], "would lose its mask"),
        (lambda: np.asmatrix([[1.0]]), "a matrix may give its elements another meaning"),
        (lambda: tf.sparse.eye(2), r"SparseTensor: give tf\.sparse\.to_dense"),
        (lambda: tf.ragged.constant([[1], [2, 3]]), r"RaggedTensor: give x\.to_tensor"),
        (lambda: tf.constant("text"), "string are not supported: send it with broadcast_object"),
        (lambda: tf.bitcast(tf.zeros(2, tf.int8), tf.qint8), r"qint8 .*: give tf\.bitcast"),
    ],
)
def test_what_is_no_dense_tensor_is_refused_by_name(
    make: Callable[[], Any], message: str, verb: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    with pytest.raises(TypeError, match=message):
        run(lambda: VERBS[verb](make()))


SMALL = [
    dtype
    for name in dir(dtypes)
    if isinstance(dtype := getattr(dtypes, name), tf.DType)
    and dtype.name in DTYPES
    and dtype.name not in REDUCED_DTYPES
]


@pytest.mark.parametrize("dtype", SMALL, ids=lambda dtype: dtype.name)
def test_small_types_travel_and_are_not_reduced(dtype: Any) -> None:
    mine = tf.constant(np.array([hvd.rank() % 2, 1] * hvd.size()).astype(dtype.as_numpy_dtype))
    expected = np.concatenate([np.array([r % 2, 1] * hvd.size()) for r in range(hvd.size())])
    for result, values in (
        (hvd.allgather(mine), expected),
        (hvd.broadcast(mine, 0), expected[: 2 * hvd.size()]),
    ):
        assert result.dtype == dtype
        assert result.numpy().astype(int).tolist() == values.tolist()
    with pytest.raises(ValueError, match=f"{dtype.name} cannot be reduced"):
        hvd.allreduce(mine)


@pytest.mark.parametrize("verb", ["allgather", "alltoall", "reducescatter"])
def test_parts_of_a_number_are_a_wrong_argument(
    verb: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    with pytest.raises(ValueError, match=f"{verb} needs rows"):
        run(lambda: VERBS[verb](tf.constant(1.0)))


@every_verb
def test_the_number_of_no_process_set_is_a_wrong_argument(
    verb: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    unknown = hvd.ProcessSet([0])
    unknown.process_set_id = 10
    options = {"process_set": unknown}
    arguments = [[tf.ones(2)] if "grouped" in verb else tf.ones(2)]
    if verb == "broadcast":
        arguments.append(0)
    with pytest.raises(ValueError, match="there is no process set 10"):
        run(lambda: getattr(hvd, verb)(*arguments, **options))
