"""Two ranks on two hosts, and somebody who alters what goes between them."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer

pytestmark = pytest.mark.job

HOST = socket.gethostname()


def run_two(tmp_path: pathlib.Path, alter: str, code: str) -> list[tuple[int, str]]:
    """Run `code` as two ranks and return exit code and output of each.

    alter: the body of a function of `data`, for what rank 1 receives.
    """
    secret = os.urandom(32)
    file = tmp_path / "secret"
    file.write_bytes(secret)
    file.chmod(0o600)
    between = (
        "from tests.single.in_between import stand_between\n"
        f"def alter(data):\n    {alter}\n    return data\n"
        "stand_between(alter)\n"
    )
    foreign = ("HOROVOD_", "SIRTAKI_", "OMPI_", "PMI", "SLURM_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    with TcpStoreServer(["127.0.0.1"], secret) as server:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", (between if rank == 1 else "") + code],
                env=clean
                | {
                    "HOROVOD_RANK": str(rank),
                    "HOROVOD_SIZE": "2",
                    "HOROVOD_LOCAL_RANK": "0",
                    "HOROVOD_LOCAL_SIZE": "1",
                    "HOROVOD_CROSS_RANK": str(rank),
                    "HOROVOD_CROSS_SIZE": "2",
                    "HOROVOD_START_TIMEOUT": "10" if "ranks" in alter else "30",
                    "SIRTAKI_HOST_ID": f"host-{rank}",
                    "SIRTAKI_IFACE": "lo",
                    "SIRTAKI_RENDEZVOUS": server.address,
                    "SIRTAKI_SECRET_FILE": str(file),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


def test_who_alters_nothing_disturbs_nothing(tmp_path: pathlib.Path) -> None:
    code = """
import sirtaki as hvd
hvd.init()
for i in range(3):
    assert hvd.broadcast_object(["object", i], 0) == ["object", i]
    assert hvd.allgather_object(hvd.rank() * i) == [0, i]
"""
    assert [status for status, _ in run_two(tmp_path, "pass", code)] == [0, 0]


def test_altered_records_of_the_ranks_are_refused(tmp_path: pathlib.Path) -> None:
    alter = """data = data.replace(b'"ranks": [{"rank": 0', b'"ranks": [{"rank": 1')"""
    _, (status, output) = run_two(tmp_path, alter, "import sirtaki as hvd; hvd.init()")
    assert status == 1
    assert re.search("to the question for 'world/.*/1/world' was altered on its way", output)


def test_one_altered_byte_of_a_control_message_ends_the_world_with_an_error(
    tmp_path: pathlib.Path,
) -> None:
    code = """
import numpy as np, sirtaki as hvd
hvd.init()
hvd.allgather(np.ones((2, 2), np.float32), name="connects")
for i in range(20): hvd.allgather(np.ones((hvd.rank() + 1, 2), np.float32), name="the.name")
"""
    results = run_two(tmp_path, 'data = data.replace(b"the.name", b"The.name")', code)
    assert_broken(results, "a control message was altered")


def assert_broken(results: list[tuple[int, str]], reason: str) -> None:
    """Both ranks were told that their connection broke, and why."""
    for status, output in results:
        ends = [f"rank {number} ({HOST})" for number in (0, 1)]
        assert status == 1, output
        assert any(
            f"the connection between {one} and {other} broke\n  because {reason}" in output
            for one, other in (ends, reversed(ends))
        ), output


@pytest.mark.parametrize(
    ("call", "number"),
    [
        pytest.param(
            "hvd.send(data, 1, tag=0x1122334455667788) if hvd.rank() == 0 else "
            "hvd.recv(data, 0, tag=0x1122334455667788)",
            0x1122334455667788,
            id="the tag of a message",
        ),
        pytest.param("hvd.broadcast(data, 0)", 4 * 493_827, id="the size of a collective"),
    ],
)
def test_one_altered_byte_beside_the_data_ends_the_world_with_an_error(
    tmp_path: pathlib.Path, call: str, number: int
) -> None:
    code = f"""
import numpy as np, sirtaki as hvd
hvd.init()
data = np.zeros(493_827, np.float32)
{call}
hvd.barrier()
"""
    true, false = (each.to_bytes(8, "little") for each in (number, number + 1))
    results = run_two(tmp_path, f"data = data.replace({true!r}, {false!r})", code)
    assert_broken(results, "a message was altered on its way")


EVIL = """
    at = data.find(b"HARMLESS")
    start = data.rfind(b"\\x80\\x05\\x95", 0, at) if at >= 0 else -1
    if start >= 0:
        size = int.from_bytes(data[start + 3 : start + 11], "little") + 11
        evil = b"cos\\nsystem\\n(S'touch PROOF'\\ntR."
        data = data[:start] + evil.ljust(size, b"\\0") + data[start + size :]
"""


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("broadcast_object", 'hvd.broadcast_object("HARMLESS" + "x" * 400, 0)'),
        ("allgather_object", 'hvd.allgather_object("HARMLESS" + "x" * 400)'),
    ],
)
def test_an_altered_object_is_not_unpickled_and_its_sender_is_named(
    tmp_path: pathlib.Path, operation: str, call: str
) -> None:
    proof = tmp_path / "code_ran"
    evil = EVIL.replace("PROOF", str(proof))
    code = f"import sirtaki as hvd\nhvd.init()\n{call}\n"
    _, (status, output) = run_two(tmp_path, evil, code)
    assert not proof.exists()
    assert status == 1, output
    assert f"the object that rank 0 ({HOST}) sent for {operation}" in output
    assert "was altered on its way and has not been unpickled" in output
