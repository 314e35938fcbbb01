"""The collectives as TensorFlow's operations, compiled or in Python."""
