"""LMDBs of handwritten digits, as MNIST's: data/mnist_train_lmdb and data/mnist_test_lmdb.

python make_digits_lmdb.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from writing import digits, parser, write


def main(arguments: Sequence[str]) -> int:
    """Write both."""
    args = parser(__doc__).parse_args(arguments)
    train, test = digits()
    write(args.root / "data/mnist_train_lmdb", train)
    write(args.root / "data/mnist_test_lmdb", test)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
