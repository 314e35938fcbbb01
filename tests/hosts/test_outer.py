"""Training with rare exchanges outlives the loss of a host, which comes back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from tests.faults.elastic.test_jobs import QUICK
from tests.faults.elastic.test_outer import PROGRAM, went_where_the_oracle_goes
from tests.hosts.bed import SSH_PORT, Bed, VirtualHost
from tests.hosts.jobs import GRACE, RUN


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("lose", "bring_back"),
    [
        pytest.param(
            VirtualHost.cut_off, VirtualHost.reconnect, id="cut_off", marks=pytest.mark.nightly
        ),
        pytest.param(VirtualHost.stop, VirtualHost.resume, id="stopped", marks=pytest.mark.slow),
    ],
)
def test_a_host_is_lost_and_comes_back_with_the_outer_parameters(
    bed: Bed, lose: Callable[[VirtualHost], None], bring_back: Callable[[VirtualHost], None]
) -> None:
    first, second, third = (host.address for host in bed.hosts)
    hosts = f"{first}:1,{second}:2,{third}:1"
    flags = ["-np", "4", "--min-np", "1", "-H", hosts, "-p", str(SSH_PORT), *QUICK, *GRACE]
    env = {"STEPS": "40", "KILL": "7", "CUT": "1", "COMPANY": "4", "OMP_NUM_THREADS": "1"}
    lines = []
    with bed.hosts[0].running(*RUN, *flags, *PROGRAM, env={**os.environ, **env}) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            if "<stdout>:here" in line:  # a rank of the second host waits; the others for it
                lose(bed.hosts[1])
            elif "<stdout>:world" in line:
                bring_back(bed.hosts[1])
    output = "".join(lines)
    sys.stdout.write(output)
    worlds = went_where_the_oracle_goes(output)
    assert worlds[0] == (0, [0, 1, 2, 3])
    assert worlds[1][1] == [0, 3]
    assert len(worlds[-1][1]) == 4
