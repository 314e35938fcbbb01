"""The callbacks do what they say, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
import sirtaki.tensorflow.keras as under_tensorflow
from sirtaki.keras.library import keras as library
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    LEGACY,
    assert_close,
    assert_equal_on_all_ranks,
    data,
    keras,
    model,
    share,
    weights,
)

callbacks = hvd.callbacks
optimizers = keras.optimizers


def compiled(optimizer: Any = None, seed: int = 3, **options: Any) -> Any:
    trained = model(seed=seed)
    trained.compile(hvd.DistributedOptimizer(optimizer or optimizers.SGD(0.1)), "mse", **options)
    return trained


def fit(trained: Any, *used: Any, epochs: int = 1, steps: int = 4, **options: Any) -> Any:
    x, y = data(steps)
    options = {"verbose": 0, **options}
    return trained.fit(
        share(x),
        share(y),
        batch_size=12 // hvd.size(),
        epochs=epochs,
        shuffle=False,
        callbacks=list(used),
        **options,
    )


class Seen(keras.callbacks.Callback):
    """Notes what `look` finds in the model after each batch."""

    def __init__(self, look: Any) -> None:
        super().__init__()
        self.look = look
        self.values: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.values.append(self.look(self.model))


def rate(trained: Any) -> float:
    if hasattr(trained, "jax_state_sync"):
        trained.jax_state_sync()
    return float(np.asarray(trained.optimizer.learning_rate))


def test_broadcast_makes_weights_and_optimizer_those_of_the_root() -> None:
    root = hvd.size() - 1
    trained = compiled(optimizers.Adam(0.01 * (hvd.rank() + 1)), seed=hvd.rank())
    fit(trained, callbacks.BroadcastGlobalVariablesCallback(root))
    assert_equal_on_all_ranks(weights(trained))
    assert rate(trained) == pytest.approx(0.01 * hvd.size())


def test_broadcast_leaves_local_variables_alone() -> None:
    trained = compiled(seed=hvd.rank())
    local = trained.weights[0]
    own = np.asarray(local).copy()
    callback = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[local])
    callback.set_model(trained)
    callback.on_train_begin()
    np.testing.assert_array_equal(np.asarray(local), own)
    assert_equal_on_all_ranks(weights(trained)[1:])


def test_models_are_made_equal_in_the_middle_of_an_epoch() -> None:
    class Equal(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                hvd.broadcast_global_variables(0, self.model)

    trained = compiled(optimizers.SGD(0.1, momentum=0.5), seed=hvd.rank())
    fit(trained, Equal())
    assert_equal_on_all_ranks(weights(trained))
    assert_equal_on_all_ranks([np.asarray(each) for each in trained.optimizer.variables])


def test_a_root_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Exception, match=f"{hvd.size()}"):
        hvd.broadcast_global_variables(hvd.size(), compiled())


def test_broadcast_needs_a_model_that_is_built() -> None:
    with pytest.raises(ValueError, match="Keras keeps no list of all variables: give the model"):
        hvd.broadcast_global_variables(0)
    late = keras.Sequential([keras.layers.Dense(1)], name="late")
    with pytest.raises(ValueError, match="the model late has no variables yet"):
        hvd.broadcast_global_variables(0, late)


def test_models_that_differ_are_an_error_on_all_ranks() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    other = model(lambda: [keras.layers.Dense(2 if hvd.rank() else 1)])
    with pytest.raises(hvd.MismatchError, match=r"only on rank 0: .*\(8, 1\); only on rank 1: .*"):
        hvd.broadcast_global_variables(0, other)


def test_metrics_are_averaged_before_others_see_them() -> None:
    seen: list[dict[str, Any]] = []

    class After(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(dict(logs))

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["mine"] = float(hvd.rank())
            logs["words"] = "kept"

    history = fit(compiled(), Before(), callbacks.MetricAverageCallback(), After())
    assert seen[0]["mine"] == (hvd.size() - 1) / 2
    assert seen[0]["words"] == "kept"
    assert history.history["mine"] == [(hvd.size() - 1) / 2]
    assert_equal_on_all_ranks([np.array(history.history["loss"])])


def test_a_metric_that_one_rank_lacks_is_named() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    callback = callbacks.MetricAverageCallback()
    logs = {"loss": 1.0, **({"val_loss": 2.0} if hvd.rank() == 0 else {})}
    with pytest.raises(
        hvd.MismatchError, match="only on rank 0: val_loss; only on rank 1: nothing"
    ):
        callback.on_epoch_end(0, logs)


def test_a_schedule_sets_the_rate_of_its_epochs() -> None:
    schedule = callbacks.LearningRateScheduleCallback(
        0.5, lambda epoch: 0.5**epoch, start_epoch=1, end_epoch=3
    )
    trained = compiled(optimizers.SGD(0.125))
    history = fit(trained, schedule, epochs=4)
    assert history.history["lr"] == [0.125, 0.25, 0.125, 0.125]
    assert rate(trained) == 0.125


def test_a_schedule_without_staircase_sets_the_rate_of_each_step() -> None:
    schedule = callbacks.LearningRateScheduleCallback(1.0, lambda e: e / 8, staircase=False)
    seen = Seen(rate)
    fit(compiled(), schedule, seen, epochs=2)
    assert seen.values == [i / 32 for i in range(8)]


def test_a_constant_multiplier() -> None:
    trained = compiled()
    fit(trained, callbacks.LearningRateScheduleCallback(0.5, 0.25, staircase=False))
    assert rate(trained) == 0.125


def test_warmup_rises_to_the_whole_rate() -> None:
    warmup = callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2)
    seen = Seen(rate)
    fit(compiled(), warmup, seen, epochs=3)
    n = hvd.size()
    expected = [0.5 / n + min(1, (i + 1) / 8) * (0.5 - 0.5 / n) for i in range(12)]
    np.testing.assert_allclose(seen.values, expected, rtol=1e-6)


def test_warmup_says_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    fit(compiled(), callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=1, verbose=1), epochs=2)
    said = "Epoch 1: finished gradual learning rate warmup to 0.5." in capsys.readouterr().out
    assert said == (hvd.rank() == 0)


@pytest.mark.parametrize("legacy", [False, True] if LEGACY else [False])
def test_momentum_is_corrected_with_the_rate(legacy: bool) -> None:
    def trained(correction: bool) -> list[np.ndarray]:
        kind = optimizers.legacy.SGD if legacy else optimizers.SGD
        used = compiled(kind(0.1, momentum=0.5))
        schedule = callbacks.LearningRateScheduleCallback(
            0.1, lambda epoch: 0.1**epoch, momentum_correction=correction
        )
        fit(used, schedule, epochs=2, steps=1)
        return weights(used)

    def by_hand(scale: float) -> list[np.ndarray]:
        """Two steps of a momentum that is scaled between them."""
        first, second = model(), model()
        for each, steps in ((first, 1), (second, 2)):
            x, y = data(1)
            each.compile(optimizers.SGD(0.1), "mse")
            each.fit(x, y, batch_size=12, shuffle=False, verbose=0)
            if steps == 2:
                each.optimizer.learning_rate = 0.01
                each.fit(x, y, batch_size=12, shuffle=False, verbose=0)
        start = weights(model())
        velocity = [scale * 0.5 * (a - b) for a, b in zip(weights(first), start, strict=True)]
        return [a + v for a, v in zip(weights(second), velocity, strict=True)]

    assert_close(trained(True), by_hand(0.1))
    assert_close(trained(False), by_hand(1.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: callbacks.LearningRateScheduleCallback(None, 1.0), "needs initial_lr"),
        (lambda: callbacks.LearningRateWarmupCallback(None), "needs initial_lr"),
    ],
)
def test_a_schedule_needs_a_rate(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_schedule_needs_the_number_of_steps() -> None:
    schedule = callbacks.LearningRateWarmupCallback(0.1)
    schedule.set_params({"steps": None})
    schedule.set_model(compiled())
    with pytest.raises(ValueError, match="LearningRateWarmupCallback needs steps_per_epoch"):
        schedule.on_train_begin()


def test_the_best_model_is_saved_by_rank_0(tmp_path: Any) -> None:
    best = callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = str(tmp_path / "best.keras")
    trained = compiled()
    fit(trained, callbacks.MetricAverageCallback(), best, epochs=2)
    assert (tmp_path / "best.keras").exists() == (hvd.rank() == 0)
    if hvd.rank() == 0:
        assert_close(weights(library.models.load_model(best.filepath)), weights(trained))


def test_the_best_model_needs_a_place() -> None:
    best = callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
    best.set_model(compiled())
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="set the filepath of BestModelCheckpoint"):
            best.on_train_begin()
    else:
        best.on_train_begin()


def test_the_progress_bar_is_rank_0s(capsys: pytest.CaptureFixture[str]) -> None:
    fit(compiled(), callbacks.ProgressBar(), epochs=2, verbose=1)
    shown = capsys.readouterr().out
    assert ("Epoch 2/2" in shown and "4/4" in shown) == (hvd.rank() == 0)
    assert (shown == "") == (hvd.rank() != 0)


def test_callbacks_of_elastic_training_keep_and_commit_the_state() -> None:
    model = compiled()
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    commits = []

    class Noting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            commits.append((state.epoch, state.batch, state._commits))

    elastic = (
        callbacks.UpdateBatchStateCallback(state),
        callbacks.UpdateEpochStateCallback(state),
        callbacks.CommitStateCallback(state, batches_per_commit=2),
    )
    fit(model, *elastic, Noting(), epochs=2)
    assert commits[:4] == [(0, 1, 0), (0, 2, 1), (0, 3, 1), (0, 4, 1)]
    assert commits[4:5] == [(1, 1, 2)], "the last batch is committed with its epoch"
    assert (state.epoch, state.batch) == (2, 0)
    saved = [np.array(weights) for weights in model.get_weights()]
    state.commit()
    fit(model, epochs=1)
    state.restore()
    for found, expected in zip(model.get_weights(), saved, strict=True):
        np.testing.assert_array_equal(found, expected)


class Committed(keras.callbacks.Callback):
    """Notes the batches of each epoch, and what the state has committed after each."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.epochs: list[int] = []
        self.committed: list[tuple[int, int]] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.epochs.append(0)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.epochs[-1] += 1
        self.note()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.note()

    def note(self) -> None:
        self.committed.append(tuple(self.state._saved_state[name] for name in ("epoch", "batch")))


@pytest.mark.parametrize("commits_last", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        lambda state: {"steps_per_epoch": 4 - state.batch, "epochs": 3 - state.epoch},
        # As in Horovod's programs.
        lambda state: {"steps_per_epoch": 4, "epochs": 3 - state.epoch},
        lambda state: {"epochs": 3, "initial_epoch": state.epoch},
    ],
)
def test_after_a_loss_one_epoch_is_shorter_and_the_others_are_whole(
    given: Callable[[Any], dict[str, int]], commits_last: bool
) -> None:
    model = compiled()
    state = hvd.elastic.KerasState(model, batch=3, epoch=1)
    state.sync()  # as a world begins
    noted = Committed(state)
    counting = [
        callbacks.UpdateBatchStateCallback(state),
        callbacks.UpdateEpochStateCallback(state),
    ]
    commit = [callbacks.CommitStateCallback(state)]
    both = counting + commit if commits_last else commit + counting
    fit(model, *both, noted, **given(state))
    assert noted.epochs == [1, 4]
    # The last batch of an epoch is committed with it.
    assert noted.committed == [(1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (2, 3), (3, 0)]


def test_a_model_without_variables_is_no_state_yet() -> None:
    with pytest.raises(ValueError, match="the model has no variables yet"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="XLA compiles on the others")
@pytest.mark.parametrize("trained_before", [False, True])
def test_jit_is_switched_off_on_tensorflow_with_one_warning(trained_before: bool) -> None:
    trained = compiled(jit_compile=not trained_before)
    if trained_before:
        fit(trained)
        trained.jit_compile = True
    callback = callbacks.BroadcastGlobalVariablesCallback(0)
    if hvd.rank() == 0:
        with pytest.warns(RuntimeWarning, match="jit_compile is off: on TensorFlow, XLA does not"):
            fit(trained, callback)
    else:
        fit(trained, callback)
    assert not trained.jit_compile
    assert_equal_on_all_ranks(weights(trained))


@pytest.mark.skipif(BACKEND != "jax", reason="of JAX")
def test_jit_is_on_on_jax() -> None:
    trained = compiled(jit_compile=True)
    fit(trained, callbacks.BroadcastGlobalVariablesCallback(0))
    assert trained.jit_compile


def test_the_same_callbacks_are_under_horovod_tensorflow_keras() -> None:
    assert under_tensorflow.callbacks is callbacks
    assert under_tensorflow.DistributedOptimizer is hvd.DistributedOptimizer


class LogStandIn:
    """Has what the module `mlflow` has."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.names: set[str] = set()

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.steps.append(step)
        self.names |= set(metrics)


def test_rank_0_logs_how_fast_ranks_are() -> None:
    log = LogStandIn()
    fit(compiled(), callbacks.RateLogCallback(log, every=2), epochs=2)
    assert log.steps == ([2, 4, 6, 8] if hvd.rank() == 0 else [])
    if hvd.rank() == 0:
        assert {name.split("/")[1] for name in log.names} == {
            f"rank{rank}" for rank in range(hvd.size())
        }
