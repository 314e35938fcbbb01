"""What becomes of threads and operations when a world or the process ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.operations import handles
from sirtaki.rendezvous.threads import Living

# Late's destructor runs when the interpreter has begun to end; then the call of the thread returns.
THREAD_IN_A_CALL = """
import threading, time
from sirtaki import _core

completions = _core.Completions()
threading.Thread(target=completions.take, daemon=True).start()

class Late:
    def __del__(self, completions=completions, sleep=time.sleep):
        completions.close()
        sleep(0.2)

late = Late()
"""


def test_a_daemon_thread_in_a_call_does_not_abort_the_process_that_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREAD_IN_A_CALL], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("grouped", [False, True])
def test_a_world_that_ends_keeps_nothing_of_operations_that_nobody_has_waited_for(
    grouped: bool,
) -> None:
    hvd.init()
    array = np.ones(1000)
    gone = weakref.ref(array)
    if grouped:
        handle = hvd.grouped_allreduce_async([array, np.ones(3, np.float32)])
    else:
        handle = hvd.allreduce_async(array)
    del array
    hvd.shutdown()
    gc.collect()
    assert gone() is None
    assert not handles._pending
    with pytest.raises(hvd.HorovodInternalError, match=r"before shutdown\(\)"):
        hvd.synchronize(handle)
    with pytest.raises(ValueError, match="was synchronized already"):
        hvd.synchronize(handle)


def test_objects_can_be_added_while_others_list_them() -> None:
    objects: Living[threading.Event] = Living()
    kept = [threading.Event() for _ in range(3)]
    for each in kept:
        objects.add(each)
    seen = []
    for each in objects:
        objects.add(threading.Event())  # which nobody keeps
        objects.discard(kept[2])
        seen.append(each)
    assert seen == kept
    assert list(objects) == kept[:2]
