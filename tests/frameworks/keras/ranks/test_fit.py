"""Training on all ranks is training of one process on the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    LEGACY,
    alone,
    assert_close,
    assert_equal_on_all_ranks,
    data,
    keras,
    layers,
    model,
    share,
    together,
    weights,
)

optimizers = keras.optimizers

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: optimizers.Adam(0.01),
    "AdamW": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "clipnorm": lambda: optimizers.Adam(0.01, clipnorm=0.01),
    "average of weights": lambda: optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3
    ),
}
if LEGACY:
    OPTIMIZERS["legacy SGD"] = lambda: optimizers.legacy.SGD(0.05, momentum=0.9)
    OPTIMIZERS["legacy Adam"] = lambda: optimizers.legacy.Adam(0.01)
else:
    OPTIMIZERS["accumulation of Keras"] = lambda: optimizers.Adam(
        0.01, gradient_accumulation_steps=4
    )


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_fit_equals_one_process_on_the_whole_batch(make: Callable[[], Any]) -> None:
    found = together(hvd.DistributedOptimizer(make()))
    assert_close(found, alone(make()))
    assert_equal_on_all_ranks(found)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": hvd.Compression.none, "num_groups": 3},
        {"gradient_predivide_factor": 4.0},
        {"groups": 2},
    ],
    ids=["num_groups", "predivide", "groups"],
)
def test_ways_of_sending_give_the_same_average(options: dict[str, Any]) -> None:
    found = together(hvd.DistributedOptimizer(optimizers.Adam(0.01), **options))
    assert_close(found, alone(optimizers.Adam(0.01)))


@pytest.mark.parametrize(
    ("compression", "tolerance"),
    [
        (hvd.Compression.fp16, 0.01),
        (hvd.Compression.bf16, 0.01),
        (hvd.Compression.int8, 0.01),
        (hvd.Compression.int4, 0.1),
    ],
)
def test_compressed_gradients_train_nearly_as_well(compression: Any, tolerance: float) -> None:
    found = together(hvd.DistributedOptimizer(optimizers.SGD(0.1), compression=compression))
    assert_equal_on_all_ranks(found)
    assert_close(found, alone(optimizers.SGD(0.1)), tolerance=tolerance)


def test_a_sum_takes_steps_that_are_as_many_times_longer() -> None:
    found = together(hvd.DistributedOptimizer(optimizers.SGD(0.1 / hvd.size()), op=hvd.Sum))
    assert_close(found, alone(optimizers.SGD(0.1)))


@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses it on PyTorch")
def test_several_steps_in_one_execution() -> None:
    options = {"compile_options": {"steps_per_execution": 4}}
    found = together(hvd.DistributedOptimizer(optimizers.Adam(0.01)), **options)
    assert_close(found, alone(optimizers.Adam(0.01)))


@pytest.mark.parametrize("average", [False, True])
def test_passes_are_added_up_and_then_reduced(average: bool) -> None:
    # Four batches of the same twelve samples: their sum is four times one's gradient.
    factor = 1 if average else 4
    x, y = (np.repeat(each.reshape(20, 12, -1), 4, axis=0).reshape(960, -1) for each in data())
    single = model()
    single.compile(optimizers.SGD(0.02 * factor), "mse")
    single.fit(*data(), batch_size=12, shuffle=False, verbose=0)
    optimizer = hvd.DistributedOptimizer(
        optimizers.SGD(0.02), backward_passes_per_step=4, average_aggregated_gradients=average
    )
    shared = model()
    shared.compile(optimizer, "mse")
    shared.fit(share(x), share(y), batch_size=12 // hvd.size(), shuffle=False, verbose=0)
    assert_close(weights(shared), weights(single))
    assert int(np.asarray(optimizer.iterations)) == 20


def test_an_embedding_is_trained_as_one_process_trains_it() -> None:
    def make() -> list[Any]:
        return [
            keras.layers.Lambda(lambda x: abs(x[:, :4]) * 3),
            keras.layers.Embedding(20, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]

    for sparse_as_dense in (False, True):
        optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), sparse_as_dense=sparse_as_dense)
        assert_close(together(optimizer, make), alone(optimizers.SGD(0.1), make))


def test_a_model_that_is_built_by_its_first_batch_becomes_equal_on_all_ranks() -> None:
    class Late(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = layers()

        def call(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return x

    keras.utils.set_random_seed(hvd.rank())
    for late in (Late(), keras.Sequential(layers())):
        late.compile(hvd.DistributedOptimizer(optimizers.Adam(0.01)), "mse")
        x, y = data()
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(hvd.size() - 1)
        late.fit(share(x), share(y), batch_size=4, verbose=0, callbacks=[callback])
        assert_equal_on_all_ranks(weights(late))
        assert_equal_on_all_ranks([np.asarray(each) for each in late.optimizer.variables])


def test_a_model_that_only_the_root_has_built_becomes_equal_on_all_ranks() -> None:
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(layers())
    x, y = data()
    if hvd.rank() == 0:
        model.build(x.shape)
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(share(x), share(y), batch_size=4, verbose=0, callbacks=[callback])
    assert_equal_on_all_ranks(weights(model))


def test_an_optimizer_is_distributed_after_compile() -> None:
    x, y = data()
    shared = model()
    shared.compile(optimizers.Adam(0.01), "mse")
    hvd.DistributedOptimizer(shared.optimizer)
    shared.fit(share(x), share(y), batch_size=12 // hvd.size(), shuffle=False, verbose=0)
    assert_close(weights(shared), alone(optimizers.Adam(0.01)))
