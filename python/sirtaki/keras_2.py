"""Errors of scripts for Keras 2 and TensorFlow 1 today, and their remedies.

Keras and TensorFlow raise them, so only the last handler can add to them.
"""

from __future__ import annotations

import functools
import re
import sys
import traceback
from types import ModuleType, TracebackType

CURE = (
    "this is Keras 2's, and Keras 3 is in use: change the call, or pip install tf_keras, set "
    "TF_USE_LEGACY_KERAS=1 and take Keras from tf.keras or tf_keras"
)

TENSORFLOW_1 = (
    "this is TensorFlow 1's: begin the script with `import tensorflow.compat.v1 as tf` and "
    "`tf.disable_v2_behavior()`"
)
OLD_OPTIMIZERS = (
    "only the older optimizers of Keras 2 have it: take the optimizer from "
    "tf.keras.optimizers.legacy"
)
_SESSION = (
    "leave out the lines with tf.ConfigProto and set_session, which Keras no longer needs; "
    "tf.config.set_visible_devices chooses a GPU"
)
_IN_GRAPHS = (
    "in a graph of TensorFlow 1, take the optimizer from tf.keras.optimizers.legacy; or leave out "
    "tf.disable_v2_behavior()"
)
# Names that neither Keras 2 nor TensorFlow's compat.v1 has today, with their module if needed.
_GONE = {
    "_make_train_function": "call make_train_function instead",
    "contrib": "no TensorFlow 2 has tf.contrib: replace what the script takes from it",
    "estimator": (
        "TensorFlow has no tf.estimator from 2.16 on: write 'train', 'eval' and 'infer' for its "
        "ModeKeys, and train in a tf.compat.v1.train.MonitoredTrainingSession or a tf.keras.Model"
    ),
    "enable_eager_execution": "leave the call out: TensorFlow 2 executes eagerly",
    "enable_mixed_precision_graph_rewrite": (
        "call tf.keras.mixed_precision.set_global_policy('mixed_float16') instead"
    ),
    "layers.wrappers": "import the layer from keras.layers",
    "mixed_precision.experimental": "call tf.keras.mixed_precision.set_global_policy instead",
    "multi_gpu_model": "leave it out: each process of the job has one GPU",
    "np_utils": "use keras.utils.to_categorical",
    "predict_classes": "use model.predict(x).argmax(-1)",
    "predict_proba": "use model.predict(x)",
    "set_session": _SESSION,
    "scikit_learn": "pip install scikeras, and import scikeras.wrappers",
    "tutorials": "TensorFlow 2 has no tutorials: load the data by tf.keras.datasets",
}

_SAID = re.compile(
    r"(Trainer|Optimizer|TensorBoard|ModelCheckpoint)\.\w+\(\) got an unexpected keyword argument "
    r"'(experimental_run_tf_function|experimental_aggregate_gradients|workers|use_multiprocessing"
    r"|max_queue_size|write_grads|batch_size|period)'"
    r"|(Argument\(s\) not recognized|Unrecognized keyword arguments passed to \w+): \{.*"
    r"'(lr|decay|fused|input_dim|output_dim|renorm|virtual_batch_size|batch_input_shape)'"
    r"|must end in `\.(weights\.h5|keras)`"
    r"|is not available with Keras 3"
    r"|^(Invalid filepath extension for saving|File format not supported)"
)
# Attributes that only Keras 2's older optimizers have.
_OF_OLD_OPTIMIZERS = frozenset(
    (
        *("get_gradients", "get_updates", "get_weights", "set_weights", "weights", "_hyper"),
        *("_decayed_lr", "_get_hyper", "_set_hyper", "_create_all_weights", "_create_hypers"),
    )
)
# Attributes of models, optimizers and modules.
_NAMES = _OF_OLD_OPTIMIZERS | frozenset(
    (
        *("lr", "fit_generator", "evaluate_generator", "predict_generator", "minimize"),
        *("reset_states", "get_scaled_loss", "get_unscaled_gradients"),
        *("get_session", "learning_phase", "set_learning_phase", "function"),
        *("get_value", "set_value", "batch_get_value", "batch_set_value", "experimental"),
        *("CuDNNLSTM", "CuDNNGRU", "ImageDataGenerator"),
    )
)
# Former methods that are lists now.
_CALL = re.compile(r"\.(variables|weights)\(\)")


def add_cure(error: BaseException) -> None:
    """Add the remedy to an error of a script for Keras 2 or TensorFlow 1."""
    text, cure = str(error), _cure_of(error)
    if cure is not None and cure not in text and "TF_USE_LEGACY_KERAS" not in text:
        told = f"{text}; {cure}"
        error.args = (told, *error.args[1:])
        if isinstance(error, ImportError):
            error.msg = told


@functools.cache
def cure_uncaught() -> None:
    """Do the same from now on for errors that end the script."""
    previous = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        add_cure(error)
        previous(kind, error, trace)

    sys.excepthook = tell


def _cure_of(error: BaseException) -> str | None:
    if isinstance(error, NotImplementedError):
        frames = traceback.extract_tb(error.__traceback__)
        in_graph = any(frame.name == "_serialize_hyperparameter" for frame in frames)
        return _IN_GRAPHS if in_graph else None
    module, name, root = _missing(error)
    if name == "ConfigProto" and "sirtaki.keras" in sys.modules:
        return _SESSION
    if root in ("keras", "tensorflow", "tf_keras"):
        for gone in (name, f"{module}.{name}"):
            if gone in _GONE:
                return _GONE[gone]
        if _is_of_tensorflow_1(module, name):
            return TENSORFLOW_1
    if root == "tf_keras" and name in _OF_OLD_OPTIMIZERS:
        return OLD_OPTIMIZERS
    if not _uses_keras_3() or not _is_of_keras_2(error):
        return None
    return f"{CURE}; {OLD_OPTIMIZERS}" if name in _OF_OLD_OPTIMIZERS else CURE


def _missing(error: BaseException) -> tuple[str, str, str]:
    """Return the missing module (without its package), the missing name, and the package."""
    if isinstance(error, AttributeError):
        whole = error.obj.__name__ if isinstance(error.obj, ModuleType) else ""
        return whole.rpartition(".")[2], error.name or "", _root(error.obj)
    if isinstance(error, ImportError):
        whole, found = error.name or "", re.match(r"cannot import name '(\w+)'", str(error))
        name = found[1] if found else whole.rpartition(".")[2]
        return whole.rpartition(".")[2], name, whole.partition(".")[0]
    return "", "", ""


def _is_of_tensorflow_1(module: str, name: str) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    old = getattr(getattr(tensorflow, "compat", None), "v1", None)
    where = old if module == "tensorflow" else getattr(old, module or "-", None)
    return hasattr(where, name)


def _uses_keras_3() -> bool:
    version = getattr(sys.modules.get("keras"), "__version__", "")
    return version.startswith("3.")


def _is_of_keras_2(error: BaseException) -> bool:
    if isinstance(error, AttributeError) and error.name in _NAMES:
        return _root(error.obj) == "keras"
    if isinstance(error, ImportError):
        return (error.name or "").startswith("keras.")
    if not isinstance(error, AttributeError | TypeError | ValueError):
        return False
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    if str(error) == "'list' object is not callable":
        return any(_CALL.search(frame.line or "") is not None for frame in frames)
    return _SAID.search(str(error)) is not None


def _root(value: object) -> str:
    """Return the package of a module or an object; Keras for its subclasses."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0]
    roots = [cls.__module__.partition(".")[0] for cls in type(value).__mro__]
    return next((root for root in ("keras", "tf_keras") if root in roots), roots[0])
