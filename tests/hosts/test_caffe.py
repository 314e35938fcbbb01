"""A PBS script for Intel Caffe, as it is but for its `module` lines, on virtual hosts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from caffe_tests import places
from tests.hosts.bed import Bed
from tests.hosts.test_pbs_lsf import Allocation

SCRIPT = """#!/bin/bash
#PBS -l select=3
cd "$PBS_O_WORKDIR"
run_intelcaffe.sh --hostfile $PBS_NODEFILE --solver lenet_solver.prototxt \\
  --network opa --ppn 1 --num_omp_threads 60
"""


def test_a_pbs_script_with_run_intelcaffe_trains_on_all_hosts(bed: Bed, tmp_path: Path) -> None:
    places.make_data(tmp_path)
    places.write_net(tmp_path, "lenet", places.LENET, 6, "max_iter: 3")
    allocation = Allocation(bed, tmp_path)
    names = [host.name for host in bed.hosts]
    # PBS lists a host once for each of its cores.
    allocation.pbs([name for name in names for _ in range(2)], pbsdsh=True)
    programs = Path(sys.executable).parent
    variables = {
        **allocation.variables,
        "PBS_O_WORKDIR": str(tmp_path),
        "PATH": f"{allocation.variables['PATH']}:{programs}",
    }
    (tmp_path / "job.sh").write_text(SCRIPT)
    done = bed.hosts[0].run("bash", str(tmp_path / "job.sh"), env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"Number of processes: (\d+)", done.stdout) == ["3"]
    assert (tmp_path / "lenet_iter_3.caffemodel").exists()
