"""What a listener on the network gets to see of a job."""

from __future__ import annotations

import signal
import sys

from tests.hosts.bed import SSH_PORT, Bed, signal_to
from tests.hosts.jobs import python, run

LIMIT = 30.0
NAME = b"a-telling-name-of-a-tensor"
CONTENT = b"what-is-in-the-tensor-for-all!!!"

LISTENER = f"""
import signal, socket, sys
def tell(*_):
    print(*sorted(seen), flush=True)
    sys.exit()
seen = set()
signal.signal(signal.SIGTERM, tell)
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as wire:
    wire.bind(("eth0", 0))
    print("listening", flush=True)
    while True:
        packet = wire.recv(1 << 17)
        seen |= {{word.decode() for word in ({NAME!r}, {CONTENT!r}) if word in packet}}
"""

# Twice, since only the first time the name itself is sent.
JOB = f"""
import numpy as np, sirtaki as hvd
hvd.init()
data = np.frombuffer({CONTENT!r} * 20000, np.uint8)
for _ in range(2):
    assert hvd.broadcast(data, 0, name={NAME.decode()!r})[-1] == data[-1]
hvd.shutdown()
"""


LISTENS = """
import subprocess
hvd.init()
hvd.barrier()
for line in subprocess.run(["ss", "-lntH"], capture_output=True, text=True).stdout.splitlines():
    print("listens:", line.split()[3])
hvd.barrier()
"""


def heard(bed: Bed, code: str, *flags: str) -> tuple[list[str], str]:
    """Run a job; what of it was heard on the second host's network, and what it has printed."""
    with bed.hosts[1].running(sys.executable, "-c", LISTENER) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        done = run(bed, *flags, *python(code))
        assert done.returncode == 0, done.stderr
        signal_to(listener, signal.SIGTERM)
        output, _ = listener.communicate(timeout=LIMIT)
        return output.split(), done.stdout


def test_a_listener_gets_nothing_of_an_encrypted_job(bed: Bed) -> None:
    assert heard(bed, JOB, "--tls")[0] == []


def test_without_encryption_names_and_contents_can_be_read_by_who_is_in_between(bed: Bed) -> None:
    words, printed = heard(bed, JOB + LISTENS)
    assert words == sorted([NAME.decode(), CONTENT.decode()])
    # It listens only on the addresses that lead to its hosts, which have others of IPv6.
    found = [line.split("listens: ")[1] for line in printed.splitlines() if "listens: " in line]
    ours = {address for address in found if not address.endswith(f":{SSH_PORT}")}
    assert {address.rpartition(":")[0] for address in ours} == {host.address for host in bed.hosts}
