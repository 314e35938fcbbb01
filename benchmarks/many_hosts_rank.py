"""One rank of many hosts, of hosts.py: sums as is chosen for so many hosts, and all with all.

python benchmarks/many_hosts_rank.py FOLDER ROUNDS      (rank 0 writes result.json into the folder)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

import sirtaki as hvd
from sirtaki.observe.contenders import own_contenders
from sirtaki.observe.measure import Quantiles, interleave

CHOSEN = "chosen"
DIRECT = "direct"
_DIRECT_HOSTS = {CHOSEN: "8", DIRECT: "1000"}
_REPEATS = {4: 100, 64 << 10: 10, 16 << 20: 1}


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    rank = int(os.environ["HOROVOD_RANK"])
    sums: dict[str, dict[str, Quantiles]] = {str(size): {} for size in _REPEATS}
    for name in (CHOSEN, DIRECT) * 2:
        os.environ["SIRTAKI_DIRECT_HOSTS"] = _DIRECT_HOSTS[name]
        hvd.init()
        for size, repeats in _REPEATS.items():
            data = np.zeros(size // 4, np.float32)
            runs = {name: own_contenders()["core"](data)}
            taken = interleave(runs, {name: repeats}, rounds)[name]
            best = sums[str(size)].setdefault(name, taken)
            if taken["median"] < best["median"]:
                sums[str(size)][name] = taken
        hvd.shutdown()
    if rank == 0:
        (folder / "result.json").write_text(json.dumps({"sums": sums}))


if __name__ == "__main__":
    main()
