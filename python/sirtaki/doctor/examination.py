"""All checks of the doctor on one host, with their results as JSON."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sirtaki
from sirtaki.doctor import kernel, limits, network, probe
from sirtaki.doctor.finding import ERROR, NOTE, OK, WARNING, Finding, plain
from sirtaki.doctor.probe import Probed
from sirtaki.launch.cores import binding
from sirtaki.rendezvous.host.control_groups import text_of


def examine(quick: bool = False) -> dict[str, Any]:
    """Run all checks; returns what `--json` prints. quick: import no frameworks."""
    if quick:
        found = {name: probe.installed(name) for name in probe.FRAMEWORKS}
        found |= probe.probe_modules([probe.CORE_MODULE])
    else:
        found = probe.probe_modules([probe.CORE_MODULE, *probe.FRAMEWORKS])
    core = found[probe.CORE_MODULE]
    model, features = probe.cpu()
    backends = {each.name: each for each in probe.backends(core, quick)}
    groups = probe.torch_distributed(quick)
    system = probe.system()
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
            finding.on(host) for finding in (*probed, *findings(backends.get("nccl")))
        ),
    }


def _judged(probed: Probed, level: str) -> Finding:
    """Return the finding for a probe; a package that is not installed counts as not needed."""
    if probed.works:
        return Finding(probed.name, OK, probed.detail)
    level = NOTE if probed.detail == "not installed" else level
    return Finding(probed.name, level, probed.detail, probed.fix)


def _cores() -> dict[str, Any]:
    """Return the cores that ranks on this machine share, and the shares of two ranks."""
    found = binding.own_processors()
    shares = binding.shares_here(2, None, os.environ)
    return {
        "physical_cores": len(found.cores),
        "numa_nodes": len({core.node for core in found.cores}),
        "packages": len({core.package for core in found.cores}),
        "quota": found.quota,
        "two_ranks": [binding.describe_share(share, os.environ) for share in shares],
    }


_PROC, _SYS, _DEV = Path("/proc"), Path("/sys"), Path("/dev")


def findings(nccl: Probed | None) -> list[Finding]:
    """Check limits, the kernel, the network and GPUs.

    nccl: the probe of PyTorch's NCCL, None if it was not probed.
    """
    return [
        *_safely("limits", lambda: limits.findings(_PROC, _SYS)),
        *_safely("kernel", lambda: kernel.findings(_PROC, _SYS)),
        *_safely("network", lambda: network.findings(_PROC, _SYS)),
        *_safely("gpu", lambda: gpu_findings(_PROC, _DEV, nccl)),
    ]


def _safely(check: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check; an unexpected format of a kernel file must not hide all other findings."""
    try:
        return look()
    except (OSError, ValueError) as error:
        return [Finding(check, NOTE, f"could not be looked at: {error}")]


def gpu_findings(proc: Path, devices: Path, nccl: Probed | None) -> list[Finding]:
    """Check GPUs and NCCL.

    proc, devices: where /proc and /dev are. nccl: the probe of PyTorch's NCCL, or None.
    """
    driver = driver_of(text_of(proc / "driver/nvidia/version"))
    cards = sorted(file.name for file in devices.glob("nvidia[0-9]*"))
    found = [_cards(driver, cards)]
    return found if nccl is None else [*found, _nccl(bool(cards), nccl)]


def _cards(driver: str, cards: list[str]) -> Finding:
    if cards and driver:
        return Finding("gpu", OK, f"{len(cards)} NVIDIA GPUs, driver {driver}")
    if driver:
        return Finding(
            "gpu",
            WARNING,
            f"the NVIDIA driver {driver} is loaded, but /dev/nvidia0 does not exist",
            "start the container with --gpus all, or ask the scheduler for a GPU",
        )
    if cards:
        what = f"/dev/{cards[0]} exists, but the NVIDIA driver is not loaded"
        return Finding("gpu", WARNING, what, "install the driver, and see what nvidia-smi says")
    return Finding("gpu", OK, "no NVIDIA GPU: tensors are in CPU memory")


def _nccl(cards: bool, nccl: Probed) -> Finding:
    if nccl.works:
        return Finding("nccl", OK, nccl.detail)
    if not cards:
        return Finding("nccl", OK, "not needed without a GPU")
    return Finding(
        "nccl",
        WARNING,
        nccl.detail,
        "install the PyTorch that was built for this driver's CUDA: see pytorch.org",
    )


def driver_of(text: str) -> str:
    """Parse the version from /proc/driver/nvidia/version, "" if there is none."""
    for line in text.splitlines():
        if line.startswith("NVRM version:"):
            words = [word for word in line.split() if word[0].isdigit() and "." in word]
            return words[0] if words else ""
    return ""
