"""Errors of scripts for Keras 2, which Keras 3 raises, say what helps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras
import pytest

import sirtaki.keras as hvd
from sirtaki import keras_2
from tests.frameworks.keras.ranks.training import LEGACY

FAILS = (AttributeError, ImportError, TypeError, ValueError)
pytestmark = pytest.mark.skipif(LEGACY, reason="here is Keras 2")


def model() -> Any:
    built = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    built.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    return built


def np_utils() -> None:
    from keras.utils import np_utils  # noqa: F401


def image() -> None:
    from keras.preprocessing.image import ImageDataGenerator  # noqa: F401


CALLS: dict[str, Callable[[], Any]] = {
    "compile": lambda: model().compile("sgd", "mse", experimental_run_tf_function=False),
    "fit": lambda: model().fit([], workers=2),
    "lr=": lambda: keras.optimizers.Adam(lr=0.1),
    "lr": lambda: model().optimizer.lr,
    "backend": lambda: keras.backend.set_value(model().optimizer.learning_rate, 0.1),
    "variables": lambda: model().optimizer.variables(),
    "fit_generator": lambda: model().fit_generator([]),
    "weights": lambda: keras.callbacks.ModelCheckpoint("a-{epoch}.h5", save_weights_only=True),
    "folder": lambda: keras.callbacks.ModelCheckpoint("a-{epoch}"),
    "save": lambda: model().save("a"),
    "fused": lambda: keras.layers.BatchNormalization(fused=True),
    "import": image,
    "image": lambda: keras.preprocessing.image.ImageDataGenerator(),
    "reset": lambda: model().reset_states(),
    "shape": lambda: keras.layers.Dense(1, batch_input_shape=(2, 2)),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_only_keras_2_has_is_named_with_the_cure(call: str) -> None:
    with pytest.raises(FAILS) as caught:
        CALLS[call]()
    said = str(caught.value)
    keras_2.add_cure(caught.value)
    assert str(caught.value) == f"{said}; {keras_2.CURE}"


@pytest.mark.parametrize("name", ["get_gradients", "weights", "_hyper"])
def test_what_only_old_optimizers_have_is_named_with_where_they_are(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(model().optimizer, name)
    keras_2.add_cure(caught.value)
    assert str(caught.value).endswith(f"; {keras_2.CURE}; {keras_2.OLD_OPTIMIZERS}")


GONE: dict[str, Callable[[], Any]] = {
    "keras.utils.to_categorical": np_utils,
    "argmax": lambda: model().predict_classes([]),
    "set_global_policy": lambda: keras.mixed_precision.experimental,
    "set_visible_devices": lambda: keras.backend.set_session(None),
}


@pytest.mark.parametrize("cure", GONE)
def test_what_keras_2_has_no_more_is_named_with_what_replaces_it(cure: str) -> None:
    with pytest.raises(FAILS) as caught:
        GONE[cure]()
    keras_2.add_cure(caught.value)
    assert cure in str(caught.value)
    assert "TF_USE_LEGACY_KERAS" not in str(caught.value)


def test_the_session_of_a_script_for_keras_is_left_out() -> None:
    error = AttributeError("no ConfigProto", name="ConfigProto", obj=ModuleType("tensorflow"))
    keras_2.add_cure(error)
    assert "leave out the lines with tf.ConfigProto and set_session" in str(error)


def test_an_optimizer_in_a_graph_is_named_with_where_older_ones_are() -> None:
    def _serialize_hyperparameter() -> None:
        raise NotImplementedError("numpy() is only available when eager execution is enabled.")

    with pytest.raises(NotImplementedError) as caught:
        _serialize_hyperparameter()
    keras_2.add_cure(caught.value)
    assert "tf.keras.optimizers.legacy" in str(caught.value)


OTHERS: dict[str, Callable[[], Any]] = {
    "attribute": lambda: object().lr,  # type: ignore[attr-defined]
    "list": lambda: list(range(1))(),  # type: ignore[operator]
    "argument": lambda: print(workers=1),  # type: ignore[call-overload]
    "layer": lambda: keras.layers.Dropout(2.0),
    "module": lambda: __import__("keras_of_the_user"),
}


@pytest.mark.parametrize("call", OTHERS)
def test_other_errors_stay_as_they_are(call: str) -> None:
    with pytest.raises(FAILS) as caught:
        OTHERS[call]()
    said = str(caught.value)
    keras_2.add_cure(caught.value)
    assert str(caught.value) == said


def test_an_error_that_ends_the_script_has_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AttributeError) as caught:
        CALLS["fit_generator"]()
    sys.excepthook(AttributeError, caught.value, caught.tb)
    assert capsys.readouterr().err.splitlines()[-1].endswith(keras_2.CURE)
