"""What is raised for arguments that are wrong on this rank."""

from __future__ import annotations

import tensorflow as tf


class InvalidArgument(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """An argument is wrong, and nothing was sent: TensorFlow's error, and Python's."""


def invalid(message: str) -> InvalidArgument:
    """Return an error to raise."""
    return InvalidArgument(None, None, message)
