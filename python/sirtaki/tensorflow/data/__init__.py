"""Preparing data outside of the training processes, by TensorFlow's tf.data service."""
