#!/bin/sh
# torchft 0.2.0 with PyTorch 2.13.0: ProcessGroupGloo.set_timeout() does nothing for a group that
# is configured. What waits for another rank still waits for as long as the group was made with.
# Seen: made with 4 s, then set_timeout(1 s): an allreduce that the other rank does not join fails
# after 4 s.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 torchft==0.2.0 numpy
"$folder/env/bin/python" - <<'PYTHON'
import importlib.metadata
import threading
import time
from datetime import timedelta

import torch
from torch.distributed import AllreduceOptions, TCPStore
from torchft.process_group import ProcessGroupGloo

store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
groups = [ProcessGroupGloo(timeout=timedelta(seconds=4)) for _ in range(2)]


def configure(rank: int) -> None:
    groups[rank].configure(f"localhost:{store.port}/meeting", "replica", rank, 2)


threads = [threading.Thread(target=configure, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
groups[0].set_timeout(timedelta(seconds=1))
began = time.monotonic()
try:
    groups[0].allreduce([torch.ones(1)], AllreduceOptions()).wait()
except RuntimeError as error:
    waited = time.monotonic() - began
    print("torchft", importlib.metadata.version("torchft"), f"waited {waited:.1f} s:", str(error)[-60:])
assert waited > 3
PYTHON
