"""Images in folders named after their classes: read them, or make some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

_MEAN, _DEVIATION = 0.45, 0.25  # of the pixels of photographs, from 0 to 1


class ImageFolder(Dataset):
    """The images of `folder`/<class>/, as (float32 of 3 x `pixels` x `pixels`, class number).

    Files are .npy arrays (uint8 of height x width x 3), or anything Pillow reads where that is
    installed. Raises FileNotFoundError when there are none.
    """

    def __init__(self, folder: Path, pixels: int) -> None:
        self.classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        self.files = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
        ]
        if not self.files:
            raise FileNotFoundError(f"no folders with images in {str(folder)!r}")
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, number = self.files[index]
        image = torch.from_numpy(read_image(path)).permute(2, 0, 1) / 255
        size = (self.pixels, self.pixels)
        if image.shape[1:] != size:
            image = torch.nn.functional.interpolate(image[None], size, mode="bilinear")[0]
        return (image - _MEAN) / _DEVIATION, number


def read_image(path: Path) -> np.ndarray:
    """Return an image as uint8 of height x width x 3."""
    if path.suffix == ".npy":
        return np.load(path)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"{path.name}: only .npy can be read without Pillow") from error
    return np.array(Image.open(path).convert("RGB"))


def generate(folder: Path, classes: int, images: int, pixels: int) -> None:
    """Make `folder`/train and /val with `images` (a quarter of that) per class.

    An image is noise with one bright square; where that is says the class.
    """
    generator = np.random.default_rng(0)
    columns = int(np.ceil(np.sqrt(classes)))
    side = pixels // columns
    for part, count in (("train", images), ("val", max(1, images // 4))):
        for number in range(classes):
            here = folder / part / f"class{number:03d}"
            here.mkdir(parents=True, exist_ok=True)
            top, left = number // columns * side, number % columns * side
            for i in range(count):
                image = generator.integers(0, 160, (pixels, pixels, 3), dtype=np.uint8)
                image[top : top + side, left : left + side] += 90
                np.save(here / f"{i:05d}.npy", image)
