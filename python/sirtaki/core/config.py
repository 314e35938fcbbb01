"""Settings of a rank; the only module that reads environment variables in a training process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sirtaki.rendezvous.trust.auth import repr_without
from sirtaki.rendezvous.words import refuse_shared_heap, truth
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.schedulers.start import Start
from sirtaki.schedulers.table import find_start, start_seconds

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.placement import Placement

__all__ = ["Autotune", "Config", "Topology", "stall_seconds"]

_TOPOLOGY = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
_DEFAULT_STALL_WARNING_SECONDS = 10.0
_CPU_OPERATIONS = ("native", "gloo", "mpi", "ccl")
_GPU_OPERATIONS = ("nccl", "host", "mpi", "ddl")
_DEVICE_OPERATIONS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
# Linux has real-time signals; no other system serves stack requests.
_FIRST_SIGNAL: int = getattr(signal, "SIGRTMIN", 0)
_LAST_SIGNAL: int = getattr(signal, "SIGRTMAX", 0)
_STACKS_SIGNAL = max(0, _LAST_SIGNAL - 4)
_LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


class Autotune(NamedTuple):
    """The engine's search for good settings; values that the user set stay fixed."""

    enabled: bool = False
    log: str = ""
    warmup_samples: int = 3
    steps_per_sample: int = 10
    max_samples: int = 20
    chunk_fixed: bool = False
    fusion_fixed: bool = False


class Config(NamedTuple):
    """All settings from the environment, validated.

    Sizes are in bytes, times in seconds.  ``SIRTAKI_X`` is read before ``HOROVOD_X``.
    """

    topology: Topology = Topology()
    epoch: int = 0
    hostname: str = "localhost"
    rendezvous: str = ""
    start: Start = Start(Topology())
    secret_file: str = ""
    secret: bytes | None = None
    interfaces: tuple[str, ...] = ()
    shared_folder: str = "~/.sirtaki/jobs"
    host_id: str = ""
    tls: bool = False
    host_timeout: float = 5.0
    data_timeout: float = 0.0
    deadlock_timeout: float = 60.0
    direct_hosts: int = 8
    single_copy: bool = True
    start_timeout: float = 30.0
    fusion_threshold: int = 128 << 20
    chunk_bytes: int = 96 << 10
    cache_capacity: int = 1024
    stall_warning_seconds: float = _DEFAULT_STALL_WARNING_SECONDS
    stall_shutdown_seconds: float = 0.0
    timeline: str = ""
    timeline_mark_cycles: bool = False
    dynamic_process_sets: bool = False
    elastic: bool = False
    process_id: int = -1
    heartbeat_file: str = ""
    log_level: int = _LOG_LEVELS.index("warning")
    log_time: bool = True
    autotune: Autotune = Autotune()
    backend: str = "native"
    mpi_threads: bool = True
    staged: frozenset[str] = frozenset()
    thread_affinity: tuple[int, ...] = ()
    keep_memory: bool = True
    malloc_settings: tuple[str, ...] = ()
    stacks_signal: int = _STACKS_SIGNAL
    watched: bool = False
    advice: bool = True
    keep_step: str = ""
    replay: str = ""

    def __repr__(self) -> str:
        return repr_without(self, "secret")

    @property
    def membership(self) -> Membership:
        """All processes of this start."""
        size = self.topology.size
        hosts = [0] * size if self.topology.local_size == size else None
        return Membership.of(self.epoch, range(size), hosts)

    @staticmethod
    def from_env(
        environ: Mapping[str, str] | None = None, placement: Placement | None = None
    ) -> Config:
        """Read the settings of this process.

        Args:
            environ: Variables to read; default ``os.environ``.
            placement: This process's place, which overrides the variables.

        Raises:
            ValueError: A value cannot be parsed, or the description of the world is incomplete or
                contradicts itself; the message lists the values found.
        """
        # A copy: os.environ encodes and decodes at each of about a hundred look-ups.
        variables = dict(os.environ if environ is None else environ)
        refuse_shared_heap(variables)
        env = _Reader(variables)
        start = _read_start(env) if placement is None else Start(placement.topology)
        config = Config(
            topology=start.topology,
            epoch=env.integer("EPOCH", 0),
            hostname=env.text("HOSTNAME", "") or socket.gethostname(),
            rendezvous=_read_rendezvous(env),
            start=start,
            secret_file=env.text("SECRET_FILE", ""),
            interfaces=_read_interfaces(env),
            shared_folder=env.text("SHARED_DIR", "") or "~/.sirtaki/jobs",
            host_id=env.text("HOST_ID", "") or start.node,
            tls=env.flag("TLS"),
            host_timeout=env.number("HOST_TIMEOUT_SECONDS", 5.0),
            data_timeout=env.number("DATA_TIMEOUT_SECONDS", 0.0),
            deadlock_timeout=env.number("DEADLOCK_SECONDS", 60.0),
            direct_hosts=env.integer("DIRECT_HOSTS", 8, least=1),
            single_copy=env.integer("SINGLE_COPY", 1) != 0,
            start_timeout=max(
                env.number("START_TIMEOUT", env.start_timeout()),
                env.number("GLOO_TIMEOUT_SECONDS", 0.0),
            ),
            fusion_threshold=env.integer("FUSION_THRESHOLD", 128 << 20),
            chunk_bytes=env.integer("CHUNK_BYTES", 96 << 10, least=4096),
            cache_capacity=env.integer("CACHE_CAPACITY", 1024),
            stall_warning_seconds=_read_stall_warning(env),
            stall_shutdown_seconds=env.number("STALL_SHUTDOWN_TIME_SECONDS", 0.0),
            timeline=env.text("TIMELINE", ""),
            timeline_mark_cycles=env.flag("TIMELINE_MARK_CYCLES"),
            dynamic_process_sets=env.flag("DYNAMIC_PROCESS_SETS"),
            elastic=env.flag("ELASTIC"),
            process_id=env.integer("PROCESS", -1),
            heartbeat_file=env.text("HEARTBEAT_FILE", ""),
            log_level=env.choice("LOG_LEVEL", _LOG_LEVELS, "warning"),
            log_time=not env.flag("LOG_HIDE_TIME"),
            autotune=_read_autotune(env),
            backend=_read_backend(env),
            staged=_read_staged(env),
            thread_affinity=env.integers("THREAD_AFFINITY"),
            mpi_threads=not env.flag("MPI_THREADS_DISABLE"),
            keep_memory=env.flag("KEEP_MEMORY", default=True),
            malloc_settings=env.malloc_settings(),
            stacks_signal=_read_stacks_signal(env),
            watched=env.flag("WATCHED"),
            advice=env.flag("ADVICE", default=True),
            keep_step=_read_keep_step(env),
            replay=env.text("REPLAY", ""),
        )
        return config if placement is None else config._at(placement)

    def _at(self, placement: Placement) -> Config:
        return self._replace(
            epoch=placement.epoch,
            rendezvous=placement.store,
            secret=placement.secret,
            tls=self.tls or placement.encrypts,
            host_id=placement.host_id or self.host_id,
        )


def stall_seconds(environ: Mapping[str, str]) -> float:
    """Return after how many seconds without progress a hang is reported, 0 for never.

    Raises:
        ValueError: A variable cannot be parsed.
    """
    return _read_stall_warning(_Reader(dict(environ)))


class _Reader:
    """Looks names up as SIRTAKI_<name>, then HOROVOD_<name>."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def _find(self, name: str) -> tuple[str, str | None]:
        for prefix in ("SIRTAKI_", "HOROVOD_"):
            value = self._environ.get(prefix + name)
            if value is not None:
                return prefix + name, value.strip()
        return "HOROVOD_" + name, None

    def start(self) -> Start | None:
        """Return the program other than our launcher that started this process, if any."""
        return find_start(self._environ)

    def start_timeout(self) -> float:
        """Return how long to wait for ranks; longer in a pod, where images may still be pulled."""
        return start_seconds(self._environ) or 30.0

    def has(self, name: str) -> bool:
        return self._find(name)[1] is not None

    def text(self, name: str, default: str) -> str:
        value = self._find(name)[1]
        return default if value is None else value

    def number(self, name: str, default: float, least: float = 0.0) -> float:
        variable, value = self._find(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{variable}={value!r} is not a number") from None
        if not number >= least:
            raise ValueError(f"{variable}={value} must be >= {least:g}")
        return number

    def integer(self, name: str, default: int, least: int = 0) -> int:
        variable, value = self._find(name)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{variable}={value!r} is not a whole number") from None
        if number < least:
            raise ValueError(f"{variable}={value} must be >= {least}")
        return number

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of non-negative integers, separated by commas."""
        variable, value = self._find(name)
        words = [word.strip() for word in value.split(",")] if value else []
        if not all(word.isascii() and word.isdigit() for word in words):
            raise ValueError(f"{variable}={value!r} is not a list of whole numbers such as 0,2")
        return tuple(map(int, words))

    def malloc_settings(self) -> tuple[str, ...]:
        """Return the variables by which users configure glibc's malloc."""
        own = [name for name in self._environ if name.startswith("MALLOC_")]
        if "glibc.malloc." in self._environ.get("GLIBC_TUNABLES", ""):
            own.append("GLIBC_TUNABLES")
        return tuple(own)

    def flag(self, name: str, default: bool = False) -> bool:
        variable, value = self._find(name)
        if not value:
            return default
        said = truth(value)
        if said is None:
            raise ValueError(f"{variable}={value!r} must be 0 or 1")
        return said

    def choice(self, name: str, words: tuple[str, ...], default: str) -> int:
        """Return the index of the configured word, ignoring case."""
        variable, value = self._find(name)
        word = (value or default).lower()
        if word not in words:
            raise ValueError(f"{variable}={value!r} must be one of {', '.join(words)}")
        return words.index(word)

    def found(self, names: tuple[str, ...]) -> str:
        """Return the values of those variables that are set, for messages."""
        lines = [f"{key}={value}" for key, value in map(self._find, names) if value is not None]
        return ", ".join(lines) or "none of them"


def _read_autotune(env: _Reader) -> Autotune:
    return Autotune(
        enabled=env.flag("AUTOTUNE"),
        log=env.text("AUTOTUNE_LOG", ""),
        warmup_samples=env.integer("AUTOTUNE_WARMUP_SAMPLES", 3),
        steps_per_sample=env.integer("AUTOTUNE_STEPS_PER_SAMPLE", 10, least=1),
        max_samples=env.integer("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 20, least=1),
        chunk_fixed=env.has("CHUNK_BYTES"),
        fusion_fixed=env.has("FUSION_THRESHOLD"),
    )


def _read_stall_warning(env: _Reader) -> float:
    warning = env.number("STALL_CHECK_TIME_SECONDS", _DEFAULT_STALL_WARNING_SECONDS)
    return 0.0 if env.flag("STALL_CHECK_DISABLE") else warning


def _read_stacks_signal(env: _Reader) -> int:
    number = env.integer("STACKS_SIGNAL", _STACKS_SIGNAL)
    if number and not _FIRST_SIGNAL <= number <= _LAST_SIGNAL:
        raise ValueError(
            f"{env.found(('STACKS_SIGNAL',))} must be 0, for none, or the number of a real-time "
            f"signal: {int(_FIRST_SIGNAL)} to {int(_LAST_SIGNAL)}"
        )
    return number


def _read_keep_step(env: _Reader) -> str:
    """Return a folder or a word for yes, "" for neither."""
    chosen = env.text("KEEP_STEP", "")
    return "" if truth(chosen) is False else chosen


def _read_backend(env: _Reader) -> str:
    """Return what moves the data; Horovod's other CPU operations select our transports."""
    if env.text("BACKEND", ""):
        return ("native", "mpi")[env.choice("BACKEND", ("native", "mpi"), "native")]
    chosen = _CPU_OPERATIONS[env.choice("CPU_OPERATIONS", _CPU_OPERATIONS, "native")]
    return "mpi" if chosen == "mpi" else "native"


def _read_staged(env: _Reader) -> frozenset[str]:
    """Return the operations on GPU tensors that go through CPU memory: all that do not use NCCL."""

    def chosen(name: str, default: str) -> str:
        return _GPU_OPERATIONS[env.choice(name, _GPU_OPERATIONS, default)]

    default = chosen("GPU_OPERATIONS", "nccl")
    names = _DEVICE_OPERATIONS
    return frozenset(n for n in names if chosen(f"GPU_{n.upper()}", default) != "nccl")


def _read_interfaces(env: _Reader) -> tuple[str, ...]:
    names = env.text("IFACE", "") or env.text("GLOO_IFACE", "")
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _read_rendezvous(env: _Reader) -> str:
    """The ranks' meeting point, from our launcher or another program that started a server."""
    address, port = env.text("GLOO_RENDEZVOUS_ADDR", ""), env.text("GLOO_RENDEZVOUS_PORT", "")
    bracketed = f"[{address}]" if ":" in address else address
    served = f"tcp:{bracketed}:{port}" if address and port else ""
    return env.text("RENDEZVOUS", "") or served


def _read_start(env: _Reader) -> Start:
    """Find this process's place, from our launcher's variables or those of another starter."""
    if not any(env.has(name) for name in _TOPOLOGY):
        if env.has("PROCESS"):  # of an elastic job, whose driver assigns the place
            return Start(Topology(), by="horovodrun")
        start = env.start()
        return Start(Topology()) if start is None or start.topology.size == 1 else start
    topology = _read_topology(env)
    if topology.size > 1 and not _read_rendezvous(env):
        raise ValueError(
            "the environment describes a world of several ranks but SIRTAKI_RENDEZVOUS is not "
            f"set; start the script with horovodrun. Found: {env.found(_TOPOLOGY)}"
        )
    return Start(topology, by="horovodrun")


def _read_topology(env: _Reader) -> Topology:
    present = [name for name in _TOPOLOGY if env.has(name)]
    missing = [f"HOROVOD_{name}" for name in _TOPOLOGY if name not in present]
    if missing:
        raise ValueError(
            "the environment describes this process's place in the world incompletely: "
            f"{', '.join(missing)} missing. Found: {env.found(_TOPOLOGY)}. Start the script with "
            "horovodrun, or unset these variables to run alone"
        )
    topology = Topology(*(env.integer(name, 0) for name in _TOPOLOGY))
    pairs = (
        ("RANK", topology.rank, "SIZE", topology.size),
        ("LOCAL_RANK", topology.local_rank, "LOCAL_SIZE", topology.local_size),
        ("CROSS_RANK", topology.cross_rank, "CROSS_SIZE", topology.cross_size),
        ("LOCAL_SIZE", topology.local_size - 1, "SIZE", topology.size),
    )
    for name, value, limit_name, limit in pairs:
        if value >= limit:
            raise ValueError(
                "the environment contradicts itself: "
                f"HOROVOD_{name} does not fit HOROVOD_{limit_name}. Found: {env.found(_TOPOLOGY)}"
            )
    return topology
