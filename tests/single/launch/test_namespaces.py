"""Ranks in namespaces of their own, as containers make them, and what else stands between."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests import needs
from tests.single.launching import Job, python

USER = ("unshare", "-U", "--map-current-user")
USER_AND_PID = (*USER, "--pid", "--fork")
CLOSING = python("import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], close_fds=True))")
SHELL = ("sh", "-c", 'exec 3>/dev/null; "$@"; exit $?', "sh")
NAMESPACES = pytest.mark.skipif(
    subprocess.run([*USER_AND_PID, "true"], capture_output=True, check=False).returncode != 0,
    reason=needs.missing("user namespaces"),
)
JOIN = python("import sirtaki; sirtaki.init(); print(sirtaki.size(), 'joined')")
READ = python(
    "import os\n"
    "from sirtaki.rendezvous.trust.secret import read_secret\n"
    "print(len(read_secret(os.environ['SIRTAKI_SECRET_FILE'])), 'bytes')"
)


@NAMESPACES
@pytest.mark.parametrize("inside", [USER, USER_AND_PID, (*CLOSING, *USER_AND_PID)])
def test_ranks_of_one_host_join_from_namespaces_of_their_own(
    job: Job, inside: tuple[str, ...]
) -> None:
    done = job.run("-np", "2", *inside, *JOIN)
    assert done.stdout.count("2 joined") == 2, done.stderr


@pytest.mark.parametrize(
    "between",
    [
        (),
        SHELL,
        CLOSING,
        pytest.param(USER, marks=NAMESPACES),
        pytest.param(USER_AND_PID, marks=NAMESPACES),
        pytest.param((*SHELL, *USER_AND_PID, *SHELL), marks=NAMESPACES),
    ],
)
def test_the_secret_reaches_ranks_through_what_stands_between(
    job: Job, between: tuple[str, ...]
) -> None:
    done = job.run("-np", "1", *between, *READ)
    assert "32 bytes" in done.stdout, done.stderr


@NAMESPACES
@pytest.mark.parametrize("inside", [USER, USER_AND_PID])
def test_a_secret_that_cannot_be_reached_says_what_was_tried_and_what_to_do(
    job: Job, inside: tuple[str, ...]
) -> None:
    done = job.run("-np", "1", *CLOSING, *inside, *READ)
    assert re.search(
        r"descriptor (\d+) was not inherited, and /proc/\d+/fd/\1 cannot be opened .*"
        r"--preserve-fd=\1.*horovodrun inside the container",
        done.stderr,
    )


def test_a_rank_of_several_hosts_that_cannot_read_the_secret_is_named() -> None:
    place = {"RANK": "1", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "CROSS_RANK": "1"}
    variables = {f"HOROVOD_{name}": value for name, value in {**place, "CROSS_SIZE": "2"}.items()}
    variables["SIRTAKI_RENDEZVOUS"] = "tcp:127.0.0.1:9"
    variables["SIRTAKI_SECRET_FILE"] = f"/proc/{os.getpid()}/fd/99999"
    done = subprocess.run(
        [sys.executable, "-c", "import sirtaki; sirtaki.init()"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
        check=False,
    )
    assert re.search(r"rank 1 \(\S+\): cannot read the job's secret", done.stderr)


def test_another_file_that_got_the_number_of_the_secret_is_not_believed() -> None:
    ours = os.memfd_create("ours")
    os.write(ours, b"\1" * 32)
    code = (
        "import os, sys; from sirtaki.rendezvous.trust.secret import read_secret\n"
        f"os.dup2(os.memfd_create('another'), {ours}); os.write({ours}, bytes(32))\n"
        "print(read_secret(sys.argv[1]).hex())"
    )
    path = f"/proc/{os.getpid()}/fd/{ours}"
    done = subprocess.run(
        [*python(code), path], capture_output=True, text=True, timeout=60, check=False
    )
    os.close(ours)
    assert done.stdout.strip() == "01" * 32, done.stderr
