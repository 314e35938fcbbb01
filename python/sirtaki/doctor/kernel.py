"""The kernel features that ranks of one host need, and the cost of missing ones."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sirtaki.doctor.finding import ERROR, NOTE, OK, WARNING, Finding
from sirtaki.doctor.limits import fields
from sirtaki.rendezvous.host.control_groups import text_of

_OLDEST = (3, 17)
_LOADERS_BYTES = 1 << 30
_NEARLY_USED_BYTES = 1 << 29
_SIBLING_READ = Path(__file__).with_name("sibling_read.py")
_SECONDS = 30.0
_FILTERED = 2
_SLOWER = (
    "large messages between ranks of this host (send, recv) are copied twice, and take up to twice "
    "as long; collectives are as fast as ever"
)


def findings(proc: Path, sysfs: Path) -> list[Finding]:
    """Check the kernel. proc, sysfs: where /proc and /sys are."""
    pages = sysfs / "kernel/mm/transparent_hugepage"
    usage = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    return [
        age(os.uname().release),
        shared_memory(*((usage.total, usage.free) if usage else (0, 0))),
        single_copy(
            try_single_copy(),
            text_of(proc / "sys/kernel/yama/ptrace_scope").strip(),
            fields(text_of(proc / "self/status").replace(":", " ")).get("Seccomp", 0),
        ),
        huge_pages(
            text_of(pages / "enabled"), text_of(pages / "shmem_enabled"), text_of(proc / "meminfo")
        ),
    ]


def age(release: str) -> Finding:
    """Judge the kernel's version, such as "5.14.0-427.el9"."""
    version, oldest = version_of(release), ".".join(map(str, _OLDEST))
    if version is None:
        return Finding("kernel", NOTE, f"the kernel calls itself {release!r}, which is no version")
    if version >= _OLDEST:
        return Finding("kernel", OK, f"Linux {release}")
    return Finding(
        "kernel",
        ERROR,
        f"Linux {release} makes no files in memory (memfd_create), by which ranks share data",
        f"use Linux {oldest} or newer",
    )


def version_of(release: str) -> tuple[int, int] | None:
    """Parse the first two numbers of a release."""
    found = re.match(r"([0-9]{1,9})\.([0-9]{1,9})", release, re.ASCII)
    return None if found is None else (int(found[1]), int(found[2]))


def shared_memory(total: int, free: int) -> Finding:
    """Judge the size of /dev/shm in bytes."""
    check = "/dev/shm"
    what = f"{total >> 20} MiB, of which {free >> 20} MiB are free"
    if total >= _LOADERS_BYTES and free >= _NEARLY_USED_BYTES:
        return Finding(check, OK, f"{what} (data loaders use it, Sirtaki does not)")
    fix = "start the container with --shm-size=1g or more, or mount a larger tmpfs there"
    if total >= _LOADERS_BYTES:
        fix = "remove what ended programs have left in /dev/shm"
    return Finding(
        check,
        WARNING,
        f"{what}; workers of data loaders hand batches over there, and die of SIGBUS without room",
        fix,
    )


def try_single_copy() -> int:
    """Let one process read a sibling's memory; return the errno, -1 if unknown."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_SIBLING_READ)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return -1


def single_copy(error: int, scope: str, seccomp: int) -> Finding:
    """Explain what refuses process_vm_readv, and what that costs.

    error: errno of the call, 0 for none. scope: Yama's ptrace_scope, "" without Yama. seccomp: its
    mode in /proc/self/status, 2 with a filter.
    """
    check = "process_vm_readv"
    if error == 0:
        return Finding(check, OK, "ranks of this host may read each other's memory")
    if error == errno.ENOSYS:
        who, fix = "this kernel has no such call", "use one with CONFIG_CROSS_MEMORY_ATTACH"
    elif error == errno.EPERM and scope.isdecimal() and int(scope) > 0:
        who = f"Yama refuses it (kernel.yama.ptrace_scope is {scope})"
        fix = "as root: sysctl kernel.yama.ptrace_scope=0; in a container --cap-add=SYS_PTRACE"
    elif error == errno.EPERM and seccomp == _FILTERED:
        who = "a seccomp filter refuses it, as some containers have it"
        fix = "start the container with --cap-add=SYS_PTRACE"
    else:
        name = errno.errorcode.get(error, "an unknown error")
        who, fix = (
            f"the kernel refuses it ({name})",
            "start the container with --cap-add=SYS_PTRACE",
        )
    return Finding(check, NOTE, f"{who}: {_SLOWER}", fix)


def huge_pages(enabled: str, shared: str, meminfo: str) -> Finding:
    """Judge transparent huge pages, from their two files, and report reserved ones."""
    check, own, of_shared = "huge pages", chosen(enabled), chosen(shared)
    words = fields(meminfo.replace(":", " "))
    aside = words.get("HugePages_Total", 0)
    reserved = f"; {aside} are set aside for programs that ask for them" if aside else ""
    what = f"for own memory: {own or 'unknown'}, for shared memory: {of_shared or 'unknown'}"
    if own in ("always", "madvise"):
        return Finding(check, OK, what + reserved)
    if not own:
        return Finding(check, NOTE, "the kernel tells nothing of huge pages")
    return Finding(
        check,
        NOTE,
        f"{what}{reserved}; large tensors cost the processor more time to find their memory",
        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


def chosen(text: str) -> str:
    """Return the word in brackets of "always [madvise] never"."""
    found = re.search(r"\[([a-z_]+)\]", text)
    return "" if found is None else found[1]
