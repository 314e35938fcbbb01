"""Names of Horovod below `horovod.tensorflow`, and what they do on one process."""

from __future__ import annotations

import importlib
import inspect
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import gradient_aggregation, mpi_ops, sync_batch_norm, util
from horovod.tensorflow.data import compute_service, compute_worker

NAMES = """
    init shutdown is_initialized start_timeline stop_timeline is_homogeneous
    size local_size cross_size rank local_rank cross_rank
    mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built
    ccl_built cuda_built rocm_built
    Average Sum Adasum Min Max Product HorovodInternalError
    ProcessSet global_process_set add_process_set remove_process_set
    allgather grouped_allgather alltoall broadcast broadcast_ join
    size_op rank_op local_size_op local_rank_op process_set_included_op
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_mpi_ops_has_what_the_package_has(name: str) -> None:
    assert getattr(mpi_ops, name) is getattr(hvd, name)


def test_mpi_ops_has_the_basics_as_one_object() -> None:
    assert mpi_ops._basics.is_initialized() is False


def test_everything_that_is_exported_is_there_once() -> None:
    assert len(set(hvd.__all__)) == len(hvd.__all__)
    assert [name for name in hvd.__all__ if not hasattr(hvd, name)] == []


def test_the_layer_has_a_module_of_its_own() -> None:
    assert sync_batch_norm.SyncBatchNormalization is hvd.SyncBatchNormalization


def test_references_stand_for_variables_in_what_needs_hashes() -> None:
    variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
    references = util.vars_to_refs(variables)
    assert isinstance(hash(references), int)
    found = util.refs_to_vars(references)
    assert found[0] is variables[0]
    assert found[1][0] is variables[1][0]


def test_a_subgraph_is_traced_and_a_cache_remembers() -> None:
    assert util._executing_eagerly()
    assert not util._make_subgraph(util._executing_eagerly)()
    made: list[int] = []
    remembering = util._cache(lambda x: made.append(x))
    remembering(1), remembering(1)
    assert made == [1]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_a_compute_worker_is_started_by_its_arguments() -> None:
    on_spark = importlib.import_module("horovod.spark.tensorflow.compute_worker")
    for program in (compute_worker, on_spark):
        assert parameters(program.main) == [
            *("dispatchers", "dispatcher_side", "filename", "timeout")
        ]
    assert compute_service.compute_worker_fn is compute_worker.compute_worker_fn


@pytest.mark.parametrize("average", [False, True])
def test_gradients_are_added_up_and_reduced_once_in_several_passes(average: bool) -> None:
    reduced: list[list[float | None]] = []

    def reduce(gradients: list[tf.Tensor], variables: list[tf.Variable]) -> list[tf.Tensor]:
        reduced.append([None if each is None else float(each) for each in gradients])
        return [None if each is None else 10 * each for each in gradients]

    helper = gradient_aggregation.LocalGradientAggregationHelper(
        backward_passes_per_step=2,
        allreduce_func=reduce,
        sparse_as_dense=False,
        average_aggregated_gradients=average,
        rank=0,
        optimizer_type="optimizer_type_keras",
        scale_local_gradients=False,
    )
    variables = [tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)]
    helper.register_local_var(variables[2])
    applied = []
    for _ in range(2):
        gradients = helper.compute_gradients([tf.constant(2.0), None, tf.constant(6.0)], variables)
        helper.apply_gradients(lambda found=gradients: applied.append(found), None)
    total = 2.0 if average else 4.0
    assert reduced == [[total, None]]
    assert [None if each is None else float(each) for each in applied[0]] == [
        *(10 * total, None, 3 * total)
    ]
    assert len(applied) == 1


@pytest.mark.parametrize("module", ["mpi_ops", "util", "gradient_aggregation", "sync_batch_norm"])
def test_modules_of_both_names_are_the_same(module: str) -> None:
    one = importlib.import_module(f"horovod.tensorflow.{module}")
    assert one is importlib.import_module(f"sirtaki.tensorflow.{module}")


@pytest.mark.parametrize(("ranks", "is_power"), [(0, False), (1, True), (6, False), (8, True)])
def test_a_power_of_two_is_known(ranks: int, is_power: bool) -> None:
    assert hvd.check_num_rank_power_of_2(ranks) is is_power
