"""Databases of pairs of digits, in two channels; the label is 1 where they are the same digit.

python make_siamese_pairs.py [--backend lmdb]     data/siamese_train_leveldb, …_test_leveldb
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from writing import digits, parser, write


def main(arguments: Sequence[str]) -> int:
    """Write both."""
    command = parser(__doc__)
    command.add_argument("--backend", choices=("leveldb", "lmdb"), default="leveldb")
    command.add_argument("--count", type=int, default=3000, help="pairs to train on (3000)")
    args = command.parse_args(arguments)
    train, test = digits()
    for name, shown, count in (("train", train, args.count), ("test", test, args.count // 5)):
        path = args.root / f"data/siamese_{name}_{args.backend}"
        write(path, pairs(shown, count), args.backend)
    return 0


def pairs(shown: Sequence[tuple[np.ndarray, int]], count: int) -> Iterator[tuple[np.ndarray, int]]:
    """Pairs of digits, by turns of the same class and of any two."""
    random = np.random.default_rng(0)
    classes = [[image for image, label in shown if label == wanted] for wanted in range(10)]
    for number in range(count):
        first = int(random.integers(10))
        second = first if number % 2 else int(random.integers(10))
        drawn = [classes[c][random.integers(len(classes[c]))] for c in (first, second)]
        yield np.concatenate(drawn), int(first == second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
