"""Handwritten digits as tensors: MNIST's own files, or the digits that come with scikit-learn."""

from __future__ import annotations

import torch
from mnist_arrays import load_arrays
from torch.utils.data import TensorDataset


def load_digits(data_dir: str | None) -> tuple[TensorDataset, TensorDataset, str]:
    """Return (training set, test set, what they are); images are float32 of 1x28x28.

    Arguments and errors as `load_arrays`.
    """
    train, test, source = load_arrays(data_dir)
    sets = [
        TensorDataset(torch.tensor(images).unsqueeze(1), torch.tensor(labels))
        for images, labels in (train, test)
    ]
    return sets[0], sets[1], source
