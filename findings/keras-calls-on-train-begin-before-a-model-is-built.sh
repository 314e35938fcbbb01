#!/bin/sh
# Keras 3.15.1: `fit` of a model without an input shape calls the callbacks' `on_train_begin` when the model is
# not built yet on TensorFlow, and when it is built on JAX. A callback that broadcasts or counts weights there
# finds them on one backend only.
# Seen: 0 weights on TensorFlow, 2 on JAX.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet tensorflow-cpu==2.21.0 jax==0.10.2 keras==3.15.1
cat > "$folder/seen.py" <<'PYTHON'
import keras
import numpy as np

seen = []


class Noted(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        seen.append((self.model.built, len(self.model.weights)))


model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[Noted()])
print("keras", keras.__version__, keras.backend.backend(), "built, weights at on_train_begin:", seen)
expected = {"tensorflow": [(False, 0)], "jax": [(True, 2)]}
assert seen == expected[keras.backend.backend()]
PYTHON
for backend in tensorflow jax; do
  KERAS_BACKEND=$backend KERAS_HOME=$folder TF_CPP_MIN_LOG_LEVEL=3 "$folder/env/bin/python" "$folder/seen.py"
done
