"""Every environment variable of Horovod has a row in the page on them that tells the truth."""

import re
from pathlib import Path

import pytest

from sirtaki.core.config import Autotune, Config, Topology
from sirtaki.launch.cores.binding import default_threads
from sirtaki.launch.cores.shares import Share
from sirtaki.launch.flags.options import KNOBS, SWITCHES, Knob, Switch
from sirtaki.launch.hosts.slots import Slot
from sirtaki.launch.hosts.torch_variables import GLOO_VARIABLE as GLOO_INTERFACE
from sirtaki.launch.hosts.torch_variables import default_environment, place_of
from sirtaki.schedulers.start import SET_FOR_TORCH

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/environment.md"

# All that Horovod 0.28.1 reads while training or launching.
RUNTIME = """
    FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY HIERARCHICAL_ALLREDUCE HIERARCHICAL_ALLGATHER
    TORUS_ALLREDUCE AUTOTUNE AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES AUTOTUNE_STEPS_PER_SAMPLE
    AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE TIMELINE_MARK_CYCLES
    STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS CONTROLLER
    CPU_OPERATIONS MPI_THREADS_DISABLE NUM_NCCL_STREAMS CCL_CACHE GLOO_IFACE GLOO_TIMEOUT_SECONDS
    GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK
    CROSS_SIZE ADASUM_MPI_CHUNK_SIZE THREAD_AFFINITY DISABLE_GROUP_FUSION DISABLE_NVTX_RANGES
    ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS BATCH_D2D_MEMCOPIES DYNAMIC_PROCESS_SETS ELASTIC
    ELASTIC_TIMEOUT START_TIMEOUT LOG_LEVEL LOG_HIDE_TIME SPARK_START_TIMEOUT SPARK_PYTHONPATH
    SPARK_WORK_DIR SPARK_USE_LOCAL_RANK_GPU_INDEX
"""
OTHERS = """
    _HOROVOD_SECRET_KEY NCCL_IB_DISABLE NCCL_SOCKET_IFNAME NCCL_DEBUG DDL_OPTIONS LSB_JOBID
    OMPI_MCA_plm_rsh_agent
"""

ACTS = "That act"
LAUNCHER = "Set by the launcher"
SPARK = "Of Spark"
IGNORED = ("Accepted, with nothing to do",)

OPERATIONS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")

# What a variable of the section "That act" changes in the Config: (value, field, its value then).
EFFECTS = {
    "HOROVOD_FUSION_THRESHOLD": ("1024", "fusion_threshold", 1024),
    "HOROVOD_CACHE_CAPACITY": ("7", "cache_capacity", 7),
    "SIRTAKI_CHUNK_BYTES": ("8192", "chunk_bytes", 8192),
    "HOROVOD_STALL_CHECK_TIME_SECONDS": ("3", "stall_warning_seconds", 3.0),
    "HOROVOD_STALL_CHECK_DISABLE": ("1", "stall_warning_seconds", 0.0),
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ("5", "stall_shutdown_seconds", 5.0),
    "HOROVOD_TIMELINE": ("DYNAMIC", "timeline", "DYNAMIC"),
    "HOROVOD_TIMELINE_MARK_CYCLES": ("1", "timeline_mark_cycles", True),
    "HOROVOD_DYNAMIC_PROCESS_SETS": ("1", "dynamic_process_sets", True),
    "SIRTAKI_IFACE": ("eth0, ib0", "interfaces", ("eth0", "ib0")),
    "HOROVOD_GLOO_IFACE": ("eth0,ib0", "interfaces", ("eth0", "ib0")),
    "SIRTAKI_DATA_TIMEOUT_SECONDS": ("20", "data_timeout", 20.0),
    "SIRTAKI_DEADLOCK_SECONDS": ("20", "deadlock_timeout", 20.0),
    "SIRTAKI_HOST_TIMEOUT_SECONDS": ("20", "host_timeout", 20.0),
    "SIRTAKI_DIRECT_HOSTS": ("1", "direct_hosts", 1),
    "SIRTAKI_SINGLE_COPY": ("0", "single_copy", False),
    "SIRTAKI_STACKS_SIGNAL": ("40", "stacks_signal", 40),
    "SIRTAKI_SECRET_FILE": ("/run/secret", "secret_file", "/run/secret"),
    "SIRTAKI_SHARED_DIR": ("/scratch/me", "shared_folder", "/scratch/me"),
    "SIRTAKI_TLS": ("1", "tls", True),
    "SIRTAKI_HOST_ID": ("left", "host_id", "left"),
    "HOROVOD_START_TIMEOUT": ("90", "start_timeout", 90.0),
    "HOROVOD_GLOO_TIMEOUT_SECONDS": ("90", "start_timeout", 90.0),
    "HOROVOD_AUTOTUNE": ("1", "autotune.enabled", True),
    "HOROVOD_AUTOTUNE_LOG": ("tried.csv", "autotune.log", "tried.csv"),
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": ("0", "autotune.warmup_samples", 0),
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": ("4", "autotune.steps_per_sample", 4),
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": ("6", "autotune.max_samples", 6),
    "SIRTAKI_BACKEND": ("mpi", "backend", "mpi"),
    "HOROVOD_CPU_OPERATIONS": ("MPI", "backend", "mpi"),
    "HOROVOD_GPU_OPERATIONS": ("MPI", "staged", frozenset(OPERATIONS)),
    **{f"HOROVOD_GPU_{name.upper()}": ("HOST", "staged", frozenset({name})) for name in OPERATIONS},
    "HOROVOD_THREAD_AFFINITY": ("0,2", "thread_affinity", (0, 2)),
    "HOROVOD_MPI_THREADS_DISABLE": ("1", "mpi_threads", False),
    "SIRTAKI_KEEP_MEMORY": ("0", "keep_memory", False),
    "SIRTAKI_ADVICE": ("0", "advice", False),
    "SIRTAKI_KEEP_STEP": ("1", "keep_step", "1"),
    "HOROVOD_LOG_LEVEL": ("DEBUG", "log_level", 1),
    "HOROVOD_LOG_HIDE_TIME": ("1", "log_time", False),
}


def sections() -> dict[str, set[str]]:
    """The variables named in the first cells of the tables, by section of the page."""
    found: dict[str, set[str]] = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
        names = {name for cell in cells for name in re.findall(r"`(_?[A-Z][A-Za-z0-9_]+)`", cell)}
        found[heading] = names
    return found


def value_of(config: Config, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("name", [f"HOROVOD_{name}" for name in RUNTIME.split()] + OTHERS.split())
def test_a_variable_of_horovod_is_documented_in_one_section(name: str) -> None:
    page = sections()
    places = [heading for heading, names in page.items() if name in names]
    if name == "HOROVOD_ELASTIC":
        assert f"`{name}` is read but" in PAGE.read_text()
        return
    if name == "HOROVOD_ELASTIC_TIMEOUT":
        assert not places
        assert f"and `{name}` (default 600), which" in PAGE.read_text()
        return
    assert len(places) == 1
    assert places[0] in (ACTS, LAUNCHER, SPARK, *IGNORED)


def test_every_variable_that_is_said_to_act_is_tried_here() -> None:
    assert sections()[ACTS] == set(EFFECTS)


@pytest.mark.parametrize("variable", EFFECTS)
def test_a_variable_that_acts_is_read(variable: str) -> None:
    text, field, expected = EFFECTS[variable]
    assert value_of(Config.from_env({}), field) != expected
    assert value_of(Config.from_env({variable: text}), field) == expected


def test_ranks_wait_for_each_other_for_the_longer_of_two_times() -> None:
    gloo = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "50"}
    assert Config.from_env({**gloo, "HOROVOD_START_TIMEOUT": "70"}).start_timeout == 70
    assert Config.from_env({**gloo, "HOROVOD_START_TIMEOUT": "40"}).start_timeout == 50


def test_ranks_in_pods_wait_longer() -> None:
    assert Config.from_env({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).start_timeout == 300


@pytest.mark.parametrize("variable", EFFECTS)
def test_a_name_of_ones_own_wins_over_horovods(variable: str) -> None:
    text, field, expected = EFFECTS[variable]
    own = variable.replace("HOROVOD_", "SIRTAKI_")
    other = {"HOROVOD_TIMELINE": "", "HOROVOD_LOG_LEVEL": "error"}.get(variable, "0")
    both = {own: text} if own == variable else {variable: other, own: text}
    assert value_of(Config.from_env(both), field) == expected


def test_the_documented_defaults_are_those_of_the_config() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^\s|]+) \|", PAGE.read_text(), re.MULTILINE)
    documented = {name: default for name, default in rows if name in EFFECTS}
    assert "HOROVOD_FUSION_THRESHOLD" in documented
    nothing_set = Config.from_env({})
    for name, default in documented.items():
        assert value_of(Config.from_env({name: default}), EFFECTS[name][1]) == value_of(
            nothing_set, EFFECTS[name][1]
        )


def test_a_config_has_the_same_defaults_with_an_environment_and_without() -> None:
    read = Config.from_env({})
    assert Config()._replace(hostname=read.hostname) == read


# Set for programs that ask, and read as if a user had set them.
OF_HOROVOD = {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}


def test_the_variables_of_the_launcher_are_read() -> None:
    place = {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "node-b",
        "SIRTAKI_EPOCH": "5",
        "SIRTAKI_RENDEZVOUS": "unix:@name",
        "SIRTAKI_WATCHED": "1",
    }
    of_a_server = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "node-a", "HOROVOD_GLOO_RENDEZVOUS_PORT": "7"}
    slot = Slot(3, 4, "node-b", 1, 2, 1, 2)
    of_torch = {
        *place_of(slot, 1, 2),
        *(default_environment("node-a").keys() - OF_HOROVOD),
        "MASTER_PORT",
        GLOO_INTERFACE,
        SET_FOR_TORCH,
    }
    of_threads = set(default_threads(Share((), 1)))
    assert sections()[LAUNCHER] == {*place, *of_a_server, *of_torch, *of_threads}
    config = Config.from_env(place)
    assert config.topology == Topology(3, 4, 1, 2, 1, 2)
    assert (config.epoch, config.hostname, config.rendezvous) == (5, "node-b", "unix:@name")
    assert config.watched
    del place["SIRTAKI_RENDEZVOUS"]
    assert Config.from_env({**place, **of_a_server}).rendezvous == "tcp:node-a:7"


@pytest.mark.parametrize("name", sorted(set().union(*(sections()[part] for part in IGNORED))))
def test_what_is_accepted_without_effect_changes_nothing(name: str) -> None:
    assert Config.from_env({name: "whatever"}) == Config.from_env({})


@pytest.mark.parametrize("name", sorted(sections()["Refused"]))
def test_what_is_refused_ends_init(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=1 is refused: there is no shared heap any more"):
        Config.from_env({name: "1"})


@pytest.mark.parametrize("flag", [*KNOBS, *SWITCHES], ids=lambda flag: str(flag.variable))
def test_help_promises_an_effect_where_there_is_one(flag: Knob | Switch) -> None:
    without_effect = flag.help.startswith("accepted for old scripts")
    assert without_effect == (flag.variable not in sections()[ACTS])


def test_every_setting_has_a_variable() -> None:
    settings = {*Config._fields} | {f"autotune.{field}" for field in Autotune._fields}
    # Whether a value was given at all, what is set for the C library, and what nobody sets yet.
    derived = {"autotune", "autotune.chunk_fixed", "autotune.fusion_fixed", "elastic"}
    derived.add("malloc_settings")
    placed = {
        "heartbeat_file",
        "process_id",
        "topology",
        "epoch",
        "hostname",
        "rendezvous",
        "start",
        "secret",
        "watched",
        "replay",
    }
    assert settings - derived - placed == {field for _, field, _ in EFFECTS.values()}
