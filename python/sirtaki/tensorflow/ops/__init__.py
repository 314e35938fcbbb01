"""The collectives as TensorFlow operations, compiled or in Python."""
