#!/bin/sh
# Keras 3.15.1: `ReduceLROnPlateau` forgets in each `fit` what it has seen. A program that calls `fit` for one
# epoch at a time with `initial_epoch`, for example to save between epochs, never lowers the rate, though the
# callback object, the model and the numbers of the epochs are those of one long `fit`.
# Seen: six epochs in one `fit` lower the rate from 1 to 0.03125; in six calls it stays 1.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet jax==0.10.2 keras==3.15.1
cat > "$folder/seen.py" <<'PYTHON'
import keras
import numpy as np


def rate_after(*fits):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)
    for first, last in fits:
        model.fit(np.zeros((8, 1)), np.zeros((8, 1)), initial_epoch=first, epochs=last, verbose=0, callbacks=[plateau])
    return float(np.asarray(model.optimizer.learning_rate))


at_once = rate_after((0, 6))
by_epoch = rate_after(*((epoch, epoch + 1) for epoch in range(6)))
print("keras", keras.__version__, "rate after one fit of six epochs:", at_once, "after six fits of one:", by_epoch)
assert (at_once, by_epoch) == (0.03125, 1.0)
PYTHON
KERAS_BACKEND=jax KERAS_HOME=$folder "$folder/env/bin/python" "$folder/seen.py"
