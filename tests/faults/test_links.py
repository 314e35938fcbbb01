"""What ranks of several hosts hear of links that break, or never come up. Hosts by name only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.faults.named_hosts import run_ranks

# Shorter than the start timeout, which ended these waits before anything else did.
LIMIT = 150.0
START_TIMEOUT = 300

PRELUDE = """
import os, signal, socket
import numpy as np
import sirtaki as hvd
from sirtaki.rendezvous.world import listener
hvd.init()
def grad():
    hvd.allreduce(np.ones(1 << 18, np.float32), name="grad")
"""


def errors_of(code: str, folder: Path, size: int, tls: bool = False) -> Sequence[str]:
    """Run ranks with a host each; return the error that ended each, causes included."""
    done = run_ranks(PRELUDE + code, folder, range(size), LIMIT, START_TIMEOUT, tls)
    return [rank.stderr.rpartition("Traceback")[2] for rank in done]


def test_a_rank_that_dies_before_its_link_is_up_is_named_at_once(tmp_path: Path) -> None:
    code = """
if hvd.rank() == 1:
    listener.RankListener._dial = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
grad()
"""
    waiting, _ = errors_of(code, tmp_path, 2)
    assert "lost peer rank 1 (" in waiting


# Rank 1's end of its link to rank 0 breaks; so it is rank 0 that is blamed.
BREAK = """
def connect(self, *arguments):
    descriptor, *keys = own_connect(self, *arguments)
    if arguments[:2] == (listener.DATA, 0) and hvd.rank() == 1:
        break_link(self, descriptor)
    return descriptor, *keys
own_connect, listener.RankListener._connect = listener.RankListener._connect, connect
while True:
    grad()
"""


def test_a_rank_whose_link_breaks_at_the_other_end_is_not_told_that_it_has_lost_itself(
    tmp_path: Path,
) -> None:
    code = """
def break_link(own_listener, descriptor):
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.shutdown(socket.SHUT_RD)
"""
    for rank, text in enumerate(errors_of(code + BREAK, tmp_path, 3)):
        assert f"rank {rank} (" in text
        assert f"lost peer rank {rank}" not in text
        assert "the connection between rank 1 (" in text
        assert ") and rank 0 (" in text


def test_what_tls_reports_is_the_reason_that_ranks_are_told(tmp_path: Path) -> None:
    code = """
def break_link(own_listener, descriptor):
    # A record that nobody has encrypted, on the way to rank 0.
    _, relay = own_listener._relays[-1]
    with socket.socket(fileno=os.dup(relay._secure.fileno())) as raw:
        raw.sendall(b"\\x17\\x03\\x03\\x00\\x20" + bytes(32))
"""
    told = errors_of(code + BREAK, tmp_path, 2, tls=True)
    assert all("broke\n  because " in text for text in told)
    # Rank 0 knows it from TLS; rank 1 may have been quicker to tell that it was hung up on.
    assert "broke\n  because TLS reports " in told[0]
