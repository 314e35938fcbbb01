"""All that the doctor looks at on one host, as JSON has it."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import sirtaki
from sirtaki.launch.cores import binding
from sirtaki.launch.doctor import local, probe
from sirtaki.launch.doctor.finding import ERROR, NOTE, OK, WARNING, Finding, plain
from sirtaki.launch.doctor.probe import Probed
from sirtaki.records import asdict


def examine(quick: bool = False) -> dict[str, Any]:
    """Look at everything; returns what `--json` prints. quick: import no frameworks."""
    if quick:
        found = {name: probe.installed(name) for name in probe.FRAMEWORKS}
        found |= probe.probe_modules([probe.CORE_MODULE])
    else:
        found = probe.probe_modules([probe.CORE_MODULE, *probe.FRAMEWORKS])
    core = found[probe.CORE_MODULE]
    model, features = probe.cpu()
    backends = {each.name: each for each in probe.backends(core, quick)}
    groups = probe.torch_distributed(quick)
    system = [*probe.system(), probe.shared_heap(core)]
    host = platform.node()
    probed = [
        _judged(core, ERROR),
        *(_judged(found[name], WARNING) for name in probe.FRAMEWORKS),
        *(_judged(each, NOTE) for name, each in backends.items() if name != "nccl"),
        _judged(groups, NOTE),
        *(_judged(each, WARNING) for each in system),
    ]
    return {
        "version": sirtaki.__version__,
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "platform": platform.platform(),
        "cpu": {
            "model": model,
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "features": features,
            **_cores(),
        },
        "core": asdict(core),
        "frameworks": [asdict(found[name]) for name in probe.FRAMEWORKS],
        "backends": [asdict(each) for each in backends.values()],
        "torch_distributed": asdict(groups),
        "scheduler": probe.schedulers(),
        "system": [asdict(each) for each in system],
        "findings": plain(
            finding.on(host) for finding in (*probed, *local.findings(backends.get("nccl")))
        ),
    }


def _judged(probed: Probed, level: str) -> Finding:
    """Say how grave it is that something does not work; what is not installed is not needed."""
    if probed.works:
        return Finding(probed.name, OK, probed.detail)
    level = NOTE if probed.detail == "not installed" else level
    return Finding(probed.name, level, probed.detail, probed.fix)


def _cores() -> dict[str, Any]:
    """What the ranks of a job on this machine share, and how two would."""
    found = binding.own_processors()
    shares = binding.shares_here(2, None, os.environ)
    return {
        "physical_cores": len(found.cores),
        "numa_nodes": len({core.node for core in found.cores}),
        "packages": len({core.package for core in found.cores}),
        "quota": found.quota,
        "two_ranks": [binding.describe_share(share, os.environ) for share in shares],
    }
