"""All that is looked at on one host besides what can be imported there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sirtaki.launch.doctor import gpu, kernel, limits, network
from sirtaki.launch.doctor.finding import NOTE, Finding
from sirtaki.launch.doctor.probe import Probed

_PROC, _SYS, _DEV = Path("/proc"), Path("/sys"), Path("/dev")


def findings(nccl: Probed | None) -> list[Finding]:
    """Look at limits, the kernel, the network and GPUs.

    nccl: what was found of PyTorch's NCCL, None where it was not looked for.
    """
    return [
        *_safely("limits", lambda: limits.findings(_PROC, _SYS)),
        *_safely("kernel", lambda: kernel.findings(_PROC, _SYS)),
        *_safely("network", lambda: network.findings(_PROC, _SYS)),
        *_safely("gpu", lambda: gpu.findings(_PROC, _DEV, nccl)),
    ]


def _safely(check: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """A file of the kernel that reads as none before must not hide all other findings."""
    try:
        return look()
    except (OSError, ValueError) as error:
        return [Finding(check, NOTE, f"could not be looked at: {error}")]
