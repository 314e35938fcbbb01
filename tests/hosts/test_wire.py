"""What a listener on the network gets to see of a job."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.hosts.bed import SSH_PORT, Bed, signal_to
from tests.hosts.jobs import python, run

pytestmark = pytest.mark.timeout(120)

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


def heard(bed: Bed, *flags: str) -> list[str]:
    """Run a job and return what of it was heard on the second host's network."""
    with bed.hosts[1].running(sys.executable, "-c", LISTENER) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        done = run(bed, *flags, *python(JOB))
        assert done.returncode == 0, done.stderr
        signal_to(listener, signal.SIGTERM)
        output, _ = listener.communicate(timeout=LIMIT)
        return output.split()


def test_a_listener_gets_nothing_of_an_encrypted_job(bed: Bed) -> None:
    assert heard(bed, "--tls") == []


def test_without_encryption_names_and_contents_can_be_read(bed: Bed) -> None:
    assert heard(bed) == sorted([NAME.decode(), CONTENT.decode()])


def test_a_job_listens_only_on_the_addresses_that_lead_to_its_hosts(bed: Bed) -> None:
    code = """
import subprocess
import sirtaki as hvd
hvd.init()
hvd.barrier()
for line in subprocess.run(["ss", "-lntH"], capture_output=True, text=True).stdout.splitlines():
    print("listens:", line.split()[3])
hvd.barrier()
"""
    # Each host has an IPv6 address beside the one that is named.
    done = run(bed, *python(code))
    assert done.returncode == 0, done.stderr
    found = [line.split("listens: ")[1] for line in done.stdout.splitlines() if "listens: " in line]
    ours = {address for address in found if not address.endswith(f":{SSH_PORT}")}
    assert {address.rpartition(":")[0] for address in ours} == {host.address for host in bed.hosts}
