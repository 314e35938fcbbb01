"""Run a tier: python -m tools.stages [--cores 2] [--complete] TIER [STAGE …], as in table.py."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tools.stages.runner import main
from tools.stages.table import TIERS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2, help="how many stages run side by side")
    parser.add_argument(
        "--complete",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="fail when tests were skipped for want of what a machine could have",
    )
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("stages", nargs="*", help="which of its stages; all of them by default")
    given = parser.parse_args()
    names = [stage.name for stage in TIERS[given.tier]]
    if unknown := [name for name in given.stages if name not in names]:
        parser.error(f"{given.tier} has no stage {unknown[0]!r}; its stages are {', '.join(names)}")
    stages = [
        stage for stage in TIERS[given.tier] if stage.name in given.stages or not given.stages
    ]
    sys.exit(main(stages, Path("build/logs"), given.cores, given.complete))
