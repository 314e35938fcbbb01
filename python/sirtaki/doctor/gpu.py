"""The machine's GPUs, compared with those that frameworks can use."""

from __future__ import annotations

from pathlib import Path

from sirtaki.doctor.finding import OK, WARNING, Finding
from sirtaki.doctor.probe import Probed
from sirtaki.rendezvous.host.control_groups import text_of


def findings(proc: Path, devices: Path, nccl: Probed | None) -> list[Finding]:
    """Check GPUs and NCCL.

    proc, devices: where /proc and /dev are. nccl: the probe of PyTorch's NCCL, or None.
    """
    driver = driver_of(text_of(proc / "driver/nvidia/version"))
    cards = sorted(file.name for file in devices.glob("nvidia[0-9]*"))
    found = [_gpu(driver, cards)]
    return found if nccl is None else [*found, _nccl(bool(cards), nccl)]


def _gpu(driver: str, cards: list[str]) -> Finding:
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
