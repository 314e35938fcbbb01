#!/bin/sh
# Keras 3.15.1 on TensorFlow: `keras.distribution.set_distribution(DataParallel())` is accepted, and
# `fit` does not use it: with two devices every variable is on the first one, and a batch is not divided.
# Seen: one device, the whole batch of 8 rows, the same on the nightly build 3.16.0.dev2026102704.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet tensorflow-cpu==2.21.0 keras==3.15.1
KERAS_BACKEND=tensorflow KERAS_HOME=$folder TF_CPP_MIN_LOG_LEVEL=3 "$folder/env/bin/python" - <<'PYTHON'
import keras
import numpy as np
import tensorflow as tf

two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
distribution = keras.distribution.DataParallel()
keras.distribution.set_distribution(distribution)
rows = []


class Noted(keras.layers.Layer):
    def call(self, inputs):
        rows.append(inputs.shape[0])
        return inputs


model = keras.Sequential([keras.Input((4,), batch_size=8), Noted(), keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
rows.clear()
model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
devices = {variable.value.device for variable in model.variables}
print("keras", keras.__version__, distribution, "devices", devices, "rows of each call", rows)
assert len(devices) == 1
assert rows == [8]
PYTHON
