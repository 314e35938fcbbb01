"""Two classes of points in HDF5 files: data/hdf5_classification/{train,test}.{h5,txt}.

python make_hdf5_classification.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import h5py
import numpy as np
from writing import parser


def main(arguments: Sequence[str]) -> int:
    """Write both files, and the lists that name them."""
    from sklearn.datasets import make_classification
    from sklearn.model_selection import train_test_split

    args = parser(__doc__).parse_args(arguments)
    points, classes = make_classification(
        10_000,
        n_features=4,
        n_informative=2,
        n_redundant=0,
        n_clusters_per_class=2,
        hypercube=False,
        random_state=0,
    )
    train_points, test_points, train_classes, test_classes = train_test_split(
        points, classes, random_state=0
    )
    folder = args.root / "data/hdf5_classification"
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": (train_points, train_classes), "test": (test_points, test_classes)}
    for name, (rows, labels) in parts.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["data"] = rows.astype(np.float32)
            file["label"] = labels.astype(np.float32)
        (folder / f"{name}.txt").write_text(f"data/hdf5_classification/{name}.h5\n")
        print(f"{folder / name}.h5: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
