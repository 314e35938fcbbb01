"""The compiled engine, driven by hand: two ranks in one process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from sirtaki import _core
from sirtaki.core.errors import HorovodInternalError
from tests.single.launching import LIMIT

# In a process of its own: a deadlock would hold the GIL, and with it every timeout of the tests.
TWO_RANKS = """
import fcntl, os, socket, threading, time
from sirtaki import _core

class Backend:
    name = "slow"
    def run(self, *operation):
        begun.set()
        time.sleep(0.2)  # without the GIL, which it then needs again
        done.append("run")

done: list[str] = []
begun = threading.Event()
memfd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
os.ftruncate(memfd, _core.region_bytes(2))
fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
ends = [end.detach() for end in socket.socketpair()]
engines = [
    _core.Engine(
        _core.Links(
            rank=rank, host_of=[0, 0], memfd=os.dup(memfd), event_descriptors=[],
            local_links=[(1 - rank, ends[rank])], host_links=[], connect=None, why_broken=None,
        ),
        options=_core.EngineOptions(), backend=Backend(),
    )
    for rank in range(2)
]
for engine in engines:
    engine.submit(_core.Request(_core.KINDS["barrier"], name="b"), None)
begun.wait()
del engine
engines.clear()
print(*done, "gone")
"""

# Daemon threads drop engines while the interpreter ends. Before Python 3.14, it then makes each
# thread that wants its lock exit.
DROPPED_AT_THE_END = """
import sys, threading, time
from sirtaki import _core

def drop_engines():
    while True:
        links = _core.Links(
            rank=0, host_of=[0], memfd=-1, event_descriptors=[], local_links=[], host_links=[],
            connect=None, why_broken=None,
        )
        _core.Engine(links, options=_core.EngineOptions())

sys.setswitchinterval(1e-6)  # so that some want the lock in the midst of it
for _ in range(32):
    threading.Thread(target=drop_engines, daemon=True).start()
time.sleep(0.1)
print("ends")
"""


def printed_by(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_engine_that_is_just_dropped_lets_what_runs_in_python_end() -> None:
    assert printed_by(TWO_RANKS) == ["run", "run", "gone"]


def test_a_thread_may_drop_an_engine_while_the_interpreter_ends() -> None:
    assert printed_by(DROPPED_AT_THE_END) == ["ends"]


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW])
def test_memory_that_another_process_could_cut_off_is_refused(seals: int) -> None:
    memfd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, _core.region_bytes(2))
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(HorovodInternalError, match="shared memory is not sealed"):
        _core.Links(
            rank=0,
            host_of=[0, 0],
            memfd=memfd,  # they close it
            event_descriptors=[],
            local_links=[],
            host_links=[],
            connect=None,
            why_broken=None,
        )
