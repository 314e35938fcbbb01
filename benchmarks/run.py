"""Everything: the results of a quiet machine, as JSON and as a page.

make bench
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import allreduce
import balance
import compressed_step
import control_plane
import hosts
import overheads
import pairs
import predict
import reproducible
import start
import torch_distributed
import train_step
from output import RESULTS
from summary import write_summary

_PATIENCE_SECONDS = 300.0


def wait_until_quiet() -> None:
    """Wait, but not for ever, until the load is what an idle machine has."""
    limit = time.monotonic() + _PATIENCE_SECONDS
    while os.getloadavg()[0] > 0.25 * (os.cpu_count() or 1):
        if time.monotonic() > limit:
            print(f"The machine is busy: load {os.getloadavg()[0]:.2f}", flush=True)
            return
        time.sleep(5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="folder of the results")
    args = parser.parse_args()
    output = [] if args.output is None else ["--output", args.output]
    for ranks in ("2", "4"):
        wait_until_quiet()
        print(f"Allreduce, {ranks} ranks", flush=True)
        allreduce.main(["-np", ranks, *output])
        print(flush=True)
    wait_until_quiet()
    pairs.main(output)
    wait_until_quiet()
    train_step.main(output)
    wait_until_quiet()
    torch_distributed.main(output)
    wait_until_quiet()
    overheads.main(output)
    wait_until_quiet()
    reproducible.main(output)
    if balance.reason_to_skip() is None:
        balance.main(output)
    wait_until_quiet()
    start.main(output)
    control_plane.main(output)
    if hosts.reason_to_skip() is None:
        wait_until_quiet()
        hosts.main(output)
        wait_until_quiet()
        compressed_step.main(output)
        wait_until_quiet()
        predict.main(output)
    print(write_summary(Path(args.output or RESULTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
