#!/bin/sh
# PyTorch 2.13.0: of a group of three over Gloo only ranks 0 and 1 start. One would guess that after the timeout both errors name
# rank 2. Neither does: rank 0's only counts who came, and rank 1's names a key of rank 0, which is there and waits too.
# Seen: rank 0 "2/3 clients joined", rank 1 "wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0".
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/seen.py" <<'PYTHON'
import multiprocessing
import socket
from datetime import timedelta


def start(rank, port, told):
    import torch
    import torch.distributed as dist

    try:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3, timeout=timedelta(seconds=5)
        )
    except dist.DistStoreError as error:
        told.put((rank, torch.__version__, str(error).splitlines()[0]))


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    ranks = [spawn.Process(target=start, args=(rank, port, told)) for rank in (0, 1)]
    for each in ranks:
        each.start()
    errors = {}
    for _ in ranks:
        rank, version, error = told.get(timeout=120)
        errors[rank] = error
    for each in ranks:
        each.join()
    print("torch", version, errors)
    assert errors[0].endswith("2/3 clients joined."), errors
    assert errors[1] == "wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0", errors
PYTHON
"$folder/env/bin/python" "$folder/seen.py"
