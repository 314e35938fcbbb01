"""Data preparation outside of the training processes, through TensorFlow's tf.data service."""
