#!/bin/sh
# PyTorch 2.13.0: the reader of flight records (`torchfrtrace`, fr_trace) takes dumps in which no
# operation was recorded for those of a job that is well. It exits with 0 and prints nothing for
# both, so a dump that was taken too early, or of another process, looks like "no mismatch".
# Seen: two ranks, no entries, and two ranks, two completed allreduces: exit 0, no line of analysis.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy tabulate==0.9.0
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import pickle
import subprocess
import sys
from pathlib import Path

import torch


def allreduce(number: int) -> dict[str, object]:
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_created_ns": number,
        "time_discovered_started_ns": number,
        "time_discovered_completed_ns": number,
        "retired": True,
        "timeout_ms": 1000,
        "is_p2p": False,
        "frames": [],
    }


for name, operations in (("empty", 0), ("healthy", 2)):
    Path(name).mkdir()
    for rank in range(2):
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {},
            "entries": [allreduce(number) for number in range(1, operations + 1)],
        }
        Path(name, f"rank_{rank}").write_bytes(pickle.dumps(dump))
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print("torch", torch.__version__, name, repr(done.stdout + done.stderr))
    assert (done.stdout + done.stderr).strip() == ""
PYTHON
