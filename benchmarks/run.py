"""Everything: the results of a quiet machine, as JSON and as a page.

make bench
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import allreduce
import hosts
import overheads
import train_step
from output import RESULTS
from summary import write_summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="folder of the results")
    args = parser.parse_args()
    output = [] if args.output is None else ["--output", args.output]
    for ranks in ("2", "4"):
        print(f"Allreduce, {ranks} ranks", flush=True)
        allreduce.main(["-np", ranks, *output])
        print(flush=True)
    train_step.main(output)
    overheads.main(output)
    if hosts.reason_to_skip() is None:
        hosts.main(output)
    print(write_summary(Path(args.output or RESULTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
