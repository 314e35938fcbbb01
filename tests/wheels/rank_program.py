"""What every wheel must do: reductions of all types, messages. Rank 0 prints the digests.

horovodrun -np 2 python rank_program.py
"""

import hashlib
import json

import numpy as np

import sirtaki as hvd

COUNT = 1003  # not a multiple of any block
TYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "uint16",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
]
FACTORS = ((1.0, 1.0), (0.3, 1.0), (1.0, 1.7))
REDUCTIONS = {"Sum": hvd.Sum, "Average": hvd.Average, "Adasum": hvd.Adasum, "Min": hvd.Min}
REDUCTIONS |= {"Max": hvd.Max, "Product": hvd.Product}


def numbers(name: str, rank: int) -> np.ndarray:
    draw = np.random.RandomState(rank + 1)
    if name == "bool":
        return draw.randint(0, 2, COUNT).astype(bool)
    if "int" in name:
        # Small, so that no version of NumPy minds what does not fit.
        return draw.randint(0, 100, COUNT).astype(name)
    real = draw.standard_normal(COUNT)
    return (real + 1j * draw.standard_normal(COUNT) if "complex" in name else real).astype(name)


def has_meaning(name: str, reduction: str) -> bool:
    if reduction == "Adasum":
        return "float" in name
    return reduction not in ("Min", "Max") or "complex" not in name


def reduce_everything() -> dict[str, str]:
    """Digests of the results by type; a plain sum is compared with NumPy's."""
    digests = {}
    for name in TYPES:
        mine = numbers(name, hvd.rank())
        digest = hashlib.sha256()
        for reduction, number in REDUCTIONS.items():
            for before, after in FACTORS if has_meaning(name, reduction) else ():
                result = hvd.allreduce(
                    mine, op=number, prescale_factor=before, postscale_factor=after
                )
                assert result.dtype == mine.dtype
                digest.update(result.tobytes())
        # Of two ranks, there is one order in which to add.
        total = sum((numbers(name, rank) for rank in range(1, hvd.size())), numbers(name, 0))
        if hvd.size() == 2 and name != "float16":
            np.testing.assert_array_equal(hvd.allreduce(mine, op=hvd.Sum), total)
        digests[name] = digest.hexdigest()
    return digests


def exchange() -> None:
    """Small and large messages, in both directions at once, and around."""
    other = (hvd.rank() + 1) % hvd.size()
    before = (hvd.rank() - 1) % hvd.size()
    for count in (1, 1000, 1 << 20):
        received = np.zeros(count)
        waiting = hvd.irecv(received, before, tag=count)
        hvd.send(np.full(count, hvd.rank() + 0.5), other, tag=count)
        hvd.synchronize(waiting)
        assert (received == before + 0.5).all()


def main() -> None:
    hvd.init()
    digests = reduce_everything()
    exchange()
    rows = hvd.allgather(np.full((hvd.rank() + 1, 2), hvd.rank()))
    assert rows.shape == (sum(range(1, hvd.size() + 1)), 2)
    assert hvd.broadcast_object({"of": hvd.rank()}, 0) == {"of": 0}
    hvd.barrier()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps({"ranks": hvd.size(), "digests": digests}), flush=True)


if __name__ == "__main__":
    main()
