"""What the doctor says of limits, the kernel, the network and GPUs, each with its fix."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.refused import WITHIN
from sirtaki.doctor import examination, kernel, limits, network
from sirtaki.doctor.finding import LEVELS, Finding, plain
from sirtaki.doctor.probe import Probed

NONE = resource.RLIM_INFINITY
V1 = "4:memory:/job/step\n2:cpu,cpuacct:/job\n3:pids:/job\n0::/\n"
V2 = "0::/job/step\n"


def write(root: Path, **files: str) -> Path:
    """Make files of a group, with "__" for dots."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("soft", "hard", "level", "fix"),
    [
        (NONE, NONE, "ok", ""),
        (4096, 4096, "ok", ""),
        (1024, 524288, "note", "ulimit -n 4096"),
        (256, NONE, "warning", "ulimit -n 4096"),
        (256, 512, "warning", "raise nofile in /etc/security/limits.conf"),
    ],
)
def test_few_open_files_are_raised_as_far_as_one_may(
    soft: int, hard: int, level: str, fix: str
) -> None:
    found = limits.open_files(soft, hard)
    assert (found.check, found.level) == ("ulimit nofile", level)
    assert found.fix.startswith(fix)
    assert bool(found.fix) == bool(fix)


@pytest.mark.parametrize(
    ("soft", "infiniband", "level"),
    [(8 << 20, False, "ok"), (NONE, True, "ok"), (8 << 20, True, "warning")],
)
def test_locked_memory_matters_with_infiniband(soft: int, infiniband: bool, level: str) -> None:
    found = limits.locked_memory(soft, infiniband)
    assert found.level == level
    assert ("unlimited" in found.fix) == (level == "warning")


def test_a_user_or_a_control_group_with_few_threads_left_is_warned(tmp_path: Path) -> None:
    plenty = limits.processes(4096, 100, "", tmp_path, root=False)
    assert plenty == Finding(
        "ulimit nproc", "ok", "3996 more threads may be started, of 4096 a user (ulimit -u)"
    )
    few = limits.processes(1100, 100, "", tmp_path, root=False)
    assert (few.level, "raise nproc" in few.fix) == ("warning", True)
    assert limits.processes(1100, 100, "", tmp_path, root=True).level == "ok"
    write(tmp_path / "pids/job", pids__max="500", pids__current="90")
    grouped = limits.processes(NONE, 100, V1, tmp_path, root=True)
    assert grouped.level == "warning"
    assert grouped.what.startswith("410 more threads may be started, of 500 in the control group")


def test_nearly_all_descriptors_in_use_is_a_warning() -> None:
    assert limits.descriptors("900\t0\t1000\n").level == "ok"
    full = limits.descriptors("1000\t50\t1000\n")
    assert full.what == "950 files are open on this machine, of 1000"
    assert (full.level, "fs.file-max" in full.fix) == ("warning", True)
    assert limits.descriptors("").level == "note"


@pytest.mark.parametrize("version", [1, 2])
def test_cpu_time_that_a_group_grants_and_runs_out_of(tmp_path: Path, version: int) -> None:
    folder = tmp_path / ("cpu/job" if version == 1 else "job/step")
    if version == 1:
        write(folder, cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    else:
        write(folder, cpu__max="150000 100000")
    membership = V1 if version == 1 else V2
    assert limits.cpu_group(tmp_path, membership, 1).level == "ok"
    granted = limits.cpu_group(tmp_path, membership, 4)
    assert granted.level == "note"
    assert granted.what.startswith("the control group grants 1.5 of 4 CPUs")
    write(folder, cpu__stat="nr_periods 200\nnr_throttled 50\nthrottled_time 12")
    throttled = limits.cpu_group(tmp_path, membership, 4)
    assert throttled.level == "warning"
    assert "in 25% of the periods" in throttled.what
    assert "--cpus" in throttled.fix


@pytest.mark.parametrize("version", [1, 2])
def test_memory_that_a_group_grants_and_has_used(tmp_path: Path, version: int) -> None:
    assert limits.memory_group(tmp_path, V1).what == "no control group limits memory"
    if version == 1:
        membership, folder, kept = V1, tmp_path / "memory/job/step", "total_inactive_file"
        names = {"limit": "memory__limit_in_bytes", "used": "memory__usage_in_bytes"}
        events = "memory__oom_control"
        write(tmp_path / "memory", memory__limit_in_bytes=str((1 << 63) - 4096))
    else:
        membership, folder, kept = V2, tmp_path / "job/step", "inactive_file"
        names = {"limit": "memory__max", "used": "memory__current"}
        events = "memory__events"
        write(tmp_path / "job", memory__max="max")
    write(folder, **{names["limit"]: str(1 << 30), names["used"]: str(1000 << 20)})
    write(folder, memory__stat=f"{kept} {600 << 20}", **{events: "oom_kill 0"})
    roomy = limits.memory_group(tmp_path, membership)
    # Files that the kernel merely keeps do not count.
    assert roomy.what == "the control group may have 1024 MiB, of which 400 MiB are in use"
    assert (roomy.level, roomy.fix) == ("note", "")
    write(folder, memory__stat=f"{kept} 0")
    full = limits.memory_group(tmp_path, membership)
    assert (full.level, "--memory" in full.fix) == ("warning", True)
    write(folder, memory__stat=f"{kept} {600 << 20}", **{events: "oom_kill 2"})
    killed = limits.memory_group(tmp_path, membership)
    assert killed.level == "warning"
    assert "has killed 2 of its processes" in killed.what


def test_little_shared_memory_says_how_to_get_more() -> None:
    found = kernel.shared_memory(64 << 20, 64 << 20)
    assert found.level == "warning"
    assert found.what.startswith("64 MiB, of which 64 MiB are free")
    assert "--shm-size=1g" in found.fix
    used_up = kernel.shared_memory(4 << 30, 64 << 20)
    assert (used_up.level, "remove what ended programs have left" in used_up.fix) == (
        "warning",
        True,
    )
    assert kernel.shared_memory(1 << 30, 1 << 30).level == "ok"


@pytest.mark.parametrize(
    ("error", "scope", "seccomp", "who", "fix"),
    [
        (errno.EPERM, "1", 0, "Yama refuses it", "kernel.yama.ptrace_scope=0"),
        (errno.EPERM, "0", 2, "a seccomp filter refuses it", "--cap-add=SYS_PTRACE"),
        (errno.ENOSYS, "", 0, "this kernel has no such call", "CONFIG_CROSS_MEMORY_ATTACH"),
        (errno.EACCES, "", 0, "the kernel refuses it (EACCES)", "--cap-add=SYS_PTRACE"),
        (-1, "", 0, "the kernel refuses it (an unknown error)", "--cap-add=SYS_PTRACE"),
    ],
)
def test_who_refuses_single_copies_and_what_that_costs(
    error: int, scope: str, seccomp: int, who: str, fix: str
) -> None:
    found = kernel.single_copy(error, scope, seccomp)
    assert found.level == "note"
    assert found.what.startswith(who)
    assert "copied twice" in found.what
    assert fix in found.fix


@pytest.mark.job
def test_a_seccomp_filter_of_this_machine_is_found() -> None:
    code = """
from pathlib import Path
from sirtaki.doctor import kernel
found = {each.check: each for each in kernel.findings(Path("/proc"), Path("/sys"))}
print(found["process_vm_readv"].what.partition(":")[0])
"""
    said = [
        subprocess.run(
            [*before, sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        for before in ([], WITHIN)
    ]
    assert said[0] == "ranks of this host may read each other's memory"
    assert said[1] == "a seccomp filter refuses it, as some containers have it"


def test_kernels_without_files_in_memory_are_errors() -> None:
    old = kernel.age("3.10.0-1160.el7.x86_64")
    assert (old.level, old.fix) == ("error", "use Linux 3.17 or newer")
    assert kernel.age("3.17.0").level == kernel.age("6.1").level == "ok"
    assert kernel.age("strange").level == "note"


def test_huge_pages_that_are_off_are_named() -> None:
    on = kernel.huge_pages("always [madvise] never\n", "always [never] deny\n", "")
    assert on.what == "for own memory: madvise, for shared memory: never"
    off = kernel.huge_pages("always madvise [never]\n", "", "HugePages_Total:      64\n")
    assert (off.level, "64 are set aside" in off.what) == ("note", True)
    assert "echo madvise" in off.fix
    assert kernel.huge_pages("", "", "").what == "the kernel tells nothing of huge pages"


def test_packets_that_are_small_for_the_link() -> None:
    assert network.mtu(network.Link("eth0", (), 1500, 1000)).level == "ok"
    assert network.mtu(network.Link("ib0", (), 4092, 100_000)).level == "ok"
    tunnel = network.mtu(network.Link("wg0", (), 1420))
    assert (tunnel.check, tunnel.level) == ("mtu wg0", "note")
    assert "less than Ethernet's 1500" in tunnel.what
    fast = network.mtu(network.Link("eth1", (), 1500, 25_000))
    assert fast.what.startswith("packets of 1500 bytes at 25 Gbit/s")
    assert fast.fix.startswith("ip link set eth1 mtu 9000")


def test_signs_of_a_firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    proc = write(tmp_path / "proc", modules="nft_reject 16384 1 - Live\nveth 4 0 - Live")
    (clear,) = network.firewall(tmp_path, tmp_path)
    assert clear.level == "ok"
    write(tmp_path / "etc/ufw", ufw__conf="# ufw\nENABLED=yes")
    (tmp_path / "run/firewalld").mkdir(parents=True)
    (found,) = network.firewall(proc, tmp_path)
    assert found.what == "ufw is enabled; firewalld runs; the kernel has loaded nft_reject"
    assert "ufw allow from" in found.fix


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT", False),
        ("-P INPUT DROP", True),
        ("-P INPUT ACCEPT\n-A INPUT -p tcp -j REJECT --reject-with tcp-reset", True),
        ("table inet f {\nchain in {\ntype filter hook input priority 0; policy drop;\n}\n}", True),
        ("chain in {\ntype filter hook input priority 0; policy accept;\ntcp dport 9 drop", True),
        ("chain f {\ntype filter hook forward priority 0; policy drop;\ntcp dport 9 drop", False),
    ],
)
def test_rules_that_drop_what_comes_in(rules: str, expected: bool) -> None:
    assert network.drops(rules) is expected


@pytest.mark.parametrize(
    ("driver", "cards", "nccl", "levels", "fix"),
    [
        ("", 0, False, ["ok", "ok"], ""),
        ("535.104.05", 2, True, ["ok", "ok"], ""),
        ("535.104.05", 0, False, ["warning", "ok"], "--gpus all"),
        ("", 1, True, ["warning", "ok"], "nvidia-smi"),
        ("535.104.05", 1, False, ["ok", "warning"], "pytorch.org"),
    ],
)
def test_gpus_that_nobody_can_use(
    tmp_path: Path, driver: str, cards: int, nccl: bool, levels: list[str], fix: str
) -> None:
    text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Sat Aug 19 2023"
    write(tmp_path / "driver/nvidia", version=text if driver else "")
    write(tmp_path / "dev", **{f"nvidia{number}": "" for number in range(cards)}, nvidiactl="")
    found = examination.gpu_findings(
        tmp_path, tmp_path / "dev", Probed("nccl", nccl, "this PyTorch has no NCCL")
    )
    assert [each.level for each in found] == levels
    assert fix in "".join(each.fix for each in found)


def test_a_file_of_the_kernel_that_cannot_be_read_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Path) -> list[Finding]:
        raise ValueError("'x' is no number")

    monkeypatch.setattr(limits, "findings", broken)
    found = {each.check: each for each in examination.findings(Probed("nccl", False, "none"))}
    assert found["limits"].what == "could not be looked at: 'x' is no number"
    assert {"kernel", "/dev/shm", "firewall", "gpu"} <= found.keys()


def test_all_of_this_machine_has_a_level_and_whatever_is_wrong_a_fix() -> None:
    found = examination.findings(Probed("nccl", False, "none"))
    checks = [each.check for each in found]
    assert len(set(checks)) == len(checks)
    assert {each.level for each in found} <= set(LEVELS)
    assert [each for each in found if each.level in ("warning", "error") and not each.fix] == []
    told = json.loads(json.dumps(plain(found)))
    assert all(set(each) == {"check", "level", "what", "fix", "host"} for each in told)
