"""Flags and the YAML file: which variables they set, which wins, what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags, flags_of, read_flags
from sirtaki.launch.flags.options import ROWS
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import Settings, make_settings
from sirtaki.launch.hosts.slots import Host
from sirtaki.launch.starters.allocation import Allocation


def flags_given(*arguments: str) -> Flags:
    return read_flags(make_parser("horovodrun").parse_args(arguments), {}, pytest.fail)


def settings(*arguments: str, np: str = "2", **environ: str) -> Settings:
    return make_settings(flags_given("-np", np, *arguments, "python", "train.py"), environ)


def test_every_flag_has_a_field_and_no_field_is_without_one() -> None:
    args = make_parser("horovodrun").parse_args([])
    ends_the_command = {"version", "check_build", "help_all", "shared_heap"}
    of_tables, own = {row.dest for row in ROWS}, {*Flags.__annotations__} - {"knobs"}
    assert vars(args).keys() == of_tables | ends_the_command | own - {"host_discovery"}
    given = flags_of(vars(args))
    for name in own - {"command"}:
        assert getattr(given, name) == getattr(Flags(), name), f"the default of {name}"
    assert (given.command, given.knobs) == ([], {})


def test_flags_stay_as_they_were_given() -> None:
    flags = Flags(num_proc=2)
    with pytest.raises(AttributeError, match="num_proc"):
        flags.num_proc = 3
    with pytest.raises(TypeError, match="there is no flag np"):
        flags.but(np=3)
    assert (flags.but(num_proc=3).num_proc, flags.num_proc) == (3, 2)


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


FLAGS = [
    (["--fusion-threshold-mb", "32"], "HOROVOD_FUSION_THRESHOLD", str(32 << 20)),
    (["--fusion-threshold-mb", "0"], "HOROVOD_FUSION_THRESHOLD", "0"),
    (["--cycle-time-ms", "3.5"], "HOROVOD_CYCLE_TIME", "3.5"),
    (["--cache-capacity", "0"], "HOROVOD_CACHE_CAPACITY", "0"),
    (["--hierarchical-allreduce"], "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
    (["--no-hierarchical-allreduce"], "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"),
    (["--hierarchical-allgather"], "HOROVOD_HIERARCHICAL_ALLGATHER", "1"),
    (["--no-hierarchical-allgather"], "HOROVOD_HIERARCHICAL_ALLGATHER", "0"),
    (["--torus-allreduce"], "HOROVOD_TORUS_ALLREDUCE", "1"),
    (["--no-torus-allreduce"], "HOROVOD_TORUS_ALLREDUCE", "0"),
    (["--autotune"], "HOROVOD_AUTOTUNE", "1"),
    (["--no-autotune"], "HOROVOD_AUTOTUNE", "0"),
    (["--autotune-log-file", "a.csv"], "HOROVOD_AUTOTUNE_LOG", "a.csv"),
    (["--autotune-warmup-samples", "1"], "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"),
    (["--autotune-steps-per-sample", "2"], "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2"),
    (["--autotune-bayes-opt-max-samples", "3"], "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "3"),
    (["--autotune-gaussian-process-noise", "1"], "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.0"),
    (["--timeline-filename", "t.json"], "HOROVOD_TIMELINE", "t.json"),
    (["--no-stall-check"], "HOROVOD_STALL_CHECK_DISABLE", "1"),
    (["--stall-check"], "HOROVOD_STALL_CHECK_DISABLE", "0"),
    (["--stall-check-warning-time-seconds", "5"], "HOROVOD_STALL_CHECK_TIME_SECONDS", "5"),
    (["--stall-check-shutdown-time-seconds", "6"], "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "6"),
    (["--mpi-threads-disable"], "HOROVOD_MPI_THREADS_DISABLE", "1"),
    (["--no-mpi-threads-disable"], "HOROVOD_MPI_THREADS_DISABLE", "0"),
    (["--num-nccl-streams", "2"], "HOROVOD_NUM_NCCL_STREAMS", "2"),
    (["--thread-affinity", "4"], "HOROVOD_THREAD_AFFINITY", "4"),
    (["--thread-affinity", "0,2"], "HOROVOD_THREAD_AFFINITY", "0,2"),
    (["--gloo-timeout-seconds", "7"], "HOROVOD_GLOO_TIMEOUT_SECONDS", "7"),
    (["--log-level", "DEBUG"], "HOROVOD_LOG_LEVEL", "DEBUG"),
    (["--log-level", "debug"], "HOROVOD_LOG_LEVEL", "DEBUG"),
    (["--log-with-timestamp"], "HOROVOD_LOG_HIDE_TIME", "0"),
    (["--log-without-timestamp"], "HOROVOD_LOG_HIDE_TIME", "1"),
    (["--log-hide-timestamp"], "HOROVOD_LOG_HIDE_TIME", "1"),
    (["--no-log-hide-timestamp"], "HOROVOD_LOG_HIDE_TIME", "0"),
    (["--start-timeout", "9"], "HOROVOD_START_TIMEOUT", "9"),
    (["--network-interface", "eth0"], "HOROVOD_GLOO_IFACE", "eth0"),
    (["--network-interfaces", "eth0,ib0"], "NCCL_SOCKET_IFNAME", "eth0,ib0"),
    (["--tcp"], "NCCL_IB_DISABLE", "1"),
    (["--gloo"], "HOROVOD_CONTROLLER", "gloo"),
    (["--gloo"], "HOROVOD_CPU_OPERATIONS", "gloo"),
]


@pytest.mark.parametrize(("flags", "variable", "value"), FLAGS)
def test_a_flag_sets_its_variable(flags: list[str], variable: str, value: str) -> None:
    assert settings(*flags).variables[variable] == value


def test_without_flags_no_variable_is_set() -> None:
    assert settings().variables == {}


def test_network_interfaces_may_be_repeated() -> None:
    found = settings("--network-interface", "a", "--network-interface", "b")
    assert found.variables["HOROVOD_GLOO_IFACE"] == "a,b"


def test_timeline_cycles_are_marked_only_with_a_file() -> None:
    variable = "HOROVOD_TIMELINE_MARK_CYCLES"
    assert variable not in settings("--timeline-mark-cycles").variables
    both = settings("--timeline-mark-cycles", "--timeline-filename", "f").variables
    assert both[variable] == "1"


@pytest.mark.parametrize(
    "flags",
    [
        *(["--disable-cache"], ["-p", "22"], ["--ssh-port", "22"], ["-i", "key"]),
        *(["--ssh-identity-file", "key"], ["--verbose"], ["--num-proc", "2"]),
        *(["--mpi-args=-x A"], ["--binding-args=--bind-to core"]),
        *(["-prefix-timestamp"], ["--prefix-output-with-timestamp"]),
    ],
)
def test_flags_that_set_no_variable_are_accepted(flags: list[str]) -> None:
    assert settings(*flags).variables == {}


@pytest.mark.parametrize("spelling", ["-np", "--num-proc"])
def test_everything_from_the_first_non_flag_on_is_the_command(spelling: str) -> None:
    command = ("python", "-u", "train.py", "-np", "7", "--", "--verbose")
    found = make_settings(flags_given(spelling, "3", "--verbose", *command), {})
    assert found.command == [*command]
    assert len(found.slots) == 3


def test_two_dashes_may_stand_before_the_command() -> None:
    flags = flags_given("-np", "1", "--", "python", "x.py")
    assert make_settings(flags, {}).command == ["python", "x.py"]


@pytest.mark.parametrize(
    "flags",
    [
        ["-H", "localhost:2", "--hostfile", "f"],
        ["-hostfile", "f", "--host-discovery-script", "s"],
        ["--gloo", "--mpi"],
        ["--mpi", "--jsrun"],
        ["--autotune", "--no-autotune"],
        ["--stall-check", "--no-stall-check"],
        ["--hierarchical-allreduce", "--no-hierarchical-allreduce"],
        ["--log-with-timestamp", "--log-without-timestamp"],
        ["--log-with-timestamp", "-prefix-timestamp"],
    ],
)
def test_flags_that_exclude_each_other_are_refused(flags: list[str]) -> None:
    with pytest.raises(LaunchError, match="not allowed with"):
        settings(*flags)


@pytest.mark.parametrize(
    "flag",
    [
        *("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--start-timeout"),
        *("--autotune-warmup-samples", "--stall-check-warning-time-seconds", "--num-nccl-streams"),
        *("--thread-affinity", "--gloo-timeout-seconds", "--autotune-gaussian-process-noise"),
    ],
)
@pytest.mark.parametrize("value", ["-1", "x", ""])
def test_bad_numbers_are_refused_and_the_flag_is_named(flag: str, value: str) -> None:
    with pytest.raises(LaunchError, match=flag):
        settings(f"{flag}={value}")


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_times_must_be_finite(value: str) -> None:
    with pytest.raises(LaunchError, match=r"must be >= 0"):
        settings("--cycle-time-ms", value)


def test_noise_outside_its_range_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"1\.5 must be in \[0, 1\]"):
        settings("--autotune-gaussian-process-noise", "1.5")


@pytest.mark.parametrize("np", ["0", "-3", "two", ""])
def test_a_bad_number_of_processes_is_refused(np: str) -> None:
    with pytest.raises(LaunchError, match="-np"):
        settings(f"--num-proc={np}")


@pytest.mark.parametrize(
    "flags",
    [
        ["--max-np", "4"],
        ["--spares", "1"],
        ["--reset-limit", "3"],
        ["--slots-per-host", "2"],
        ["--elastic-timeout", "60"],
        ["--blacklist-cooldown-range", "1", "2"],
    ],
)
def test_flags_that_say_how_a_job_is_elastic_do_not_make_it_so(flags: list[str]) -> None:
    with pytest.raises(LaunchError, match=rf"{flags[0]}: only for elastic jobs"):
        settings(*flags)


def elastic_of(found: Settings) -> Elastic:
    assert isinstance(found.kind, Elastic)
    return found.kind


def test_elastic_numbers_are_those_of_np_unless_given() -> None:
    elastic = elastic_of(settings("--min-np", "1"))
    assert (elastic.least, elastic.first, elastic.most, elastic.spares) == (1, 2, 2, 0)
    assert elastic.hosts == (Host("localhost", 2),)
    assert not elastic.may_change


def test_a_discovery_script_makes_a_job_elastic() -> None:
    found = settings("--host-discovery-script", "s", "--max-np", "9", "--slots-per-host", "3")
    assert found.kind == Elastic(2, 9, 2, script="s", default_slots=3)
    assert found.slots == []


def test_the_elastic_timeout_is_that_of_horovod_s_variable_unless_given() -> None:
    flags, variable = ("--min-np", "1"), {"HOROVOD_ELASTIC_TIMEOUT": "30"}
    found = [settings(*flags, *more, **variable) for more in ((), ("--elastic-timeout", "7"))]
    assert [elastic_of(each).timeout for each in found] == [30.0, 7.0]
    with pytest.raises(LaunchError, match="HOROVOD_ELASTIC_TIMEOUT='soon' is not a number of"):
        settings(*flags, HOROVOD_ELASTIC_TIMEOUT="soon")


@pytest.mark.parametrize(
    ("environ", "flags", "script"),
    [
        ({}, (), True),
        ({"K_MPI_JOB_ROLE": "worker"}, (), False),
        ({}, ("-H", "a:2"), False),
        ({}, ("--host-discovery-script", "s"), False),
    ],
)
def test_the_launcher_s_pod_of_an_mpijob_has_a_list_of_pods(
    tmp_path: Path, environ: dict[str, str], flags: tuple[str, ...], script: bool
) -> None:
    (tmp_path / "discover_hosts.sh").touch()
    pod = {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
        "OMPI_MCA_orte_set_default_slots": "4",
        **environ,
    }
    elastic = elastic_of(settings("--min-np", "1", *flags, **pod))
    assert (elastic.script == f"sh {tmp_path}/discover_hosts.sh") is script
    assert elastic.default_slots == 4


def test_an_elastic_job_uses_what_a_scheduler_gave_but_not_by_jsrun() -> None:
    flags = flags_given("-np", "2", "--min-np", "1", "python", "x.py")
    hosts = [Host("node1", 2), Host("node2", 1)]
    allocation = Allocation("slurm", "7", hosts, "srun")
    elastic = elastic_of(make_settings(flags, {}, allocation))
    assert (elastic.hosts, elastic.allocation) == (tuple(hosts), allocation)
    with pytest.raises(LaunchError, match="jsrun starts a fixed number of processes"):
        make_settings(flags, {}, Allocation("lsf", "7", hosts, "jsrun"))


def test_without_a_number_there_is_one_process_per_slot(tmp_path: Path) -> None:
    listed = make_settings(flags_given("-H", "a:2,b", "true"), {})
    assert [(slot.host, slot.rank) for slot in listed.slots] == [("a", 0), ("a", 1), ("b", 2)]
    path = tmp_path / "hosts"
    path.write_text("a slots=3\n")
    assert len(make_settings(flags_given("--hostfile", str(path), "true"), {}).slots) == 3
    elastic = elastic_of(make_settings(flags_given("-H", "a:2,b", "--min-np", "1", "true"), {}))
    assert (elastic.least, elastic.first) == (1, 3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--min-np", "4", "--max-np", "2"], "--min-np 4 is more than --max-np 2"),
        (["--min-np", "3", "--max-np", "4"], "-np 2 is not between --min-np 3 and --max-np 4"),
        (["--min-np", "1", "--blacklist-cooldown-range", "5", "2"], "0 < MIN <= MAX"),
        (["--min-np", "1", "--mpi"], "--mpi starts a fixed number of processes"),
    ],
)
def test_elastic_flags_that_contradict_each_other_are_refused(
    flags: list[str], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        settings(*flags)


@pytest.mark.parametrize("value", ["cores", "0-1:", "3-1:0", "-1:0", ""])
def test_a_binding_that_nobody_understands_is_refused_and_the_flag_is_named(value: str) -> None:
    with pytest.raises(LaunchError, match=r"--bind-to: .* is not a list of CPUs"):
        settings(f"--bind-to={value}")


@pytest.mark.parametrize(("value", "lists"), [("0-1", 1), ("0:1:2", 3)])
def test_a_list_of_cpus_for_each_rank_of_a_host_is_needed(value: str, lists: int) -> None:
    with pytest.raises(LaunchError, match=rf"--bind-to {value}: {lists} list\(s\) .* 2 rank"):
        settings("--bind-to", value)
    assert settings("--bind-to", "0:1", "-H", "localhost:2,b:1", np="3").bind_to == "0:1"


def test_what_mpirun_starts_mpirun_binds() -> None:
    with pytest.raises(LaunchError, match=r"--bind-to numa: with --mpi .* --binding-args"):
        settings("--mpi", "--bind-to", "numa")


def test_a_binding_may_stand_in_the_file_and_the_flag_beats_it(tmp_path: Path) -> None:
    file = ("--config-file", config(tmp_path, "bind_to: '0:1'\n"))
    assert settings(*file).bind_to == "0:1"
    assert settings(*file, "--bind-to", "none").bind_to == "none"
    assert settings().bind_to is None


@pytest.mark.parametrize("flag", ["--shared-heap", "--shared-heap=off", "--shared-heap=auto"])
def test_the_shared_heap_of_earlier_versions_is_refused(flag: str) -> None:
    with pytest.raises(LaunchError, match=r"--shared-heap is refused: .* sirtaki\.empty\(\)"):
        settings(flag)


def test_other_launchers_are_refused() -> None:
    with pytest.raises(LaunchError, match="--jsrun is not supported"):
        settings("--jsrun")


def test_the_start_timeout_comes_from_flag_variable_or_default() -> None:
    assert settings().start_timeout == 30
    assert settings(HOROVOD_START_TIMEOUT="40").start_timeout == 40
    both = settings(HOROVOD_START_TIMEOUT="40", SIRTAKI_START_TIMEOUT="50")
    assert both.start_timeout == 50
    assert settings("--start-timeout", "5", HOROVOD_START_TIMEOUT="40").start_timeout == 5
    with pytest.raises(LaunchError, match="HOROVOD_START_TIMEOUT"):
        settings(HOROVOD_START_TIMEOUT="soon")
    with pytest.raises(LaunchError, match="SIRTAKI_START_TIMEOUT"):
        settings(SIRTAKI_START_TIMEOUT="soon")


@pytest.mark.parametrize("name", ["HOROVOD_START_TIMEOUT", "SIRTAKI_START_TIMEOUT"])
def test_an_empty_start_timeout_is_the_default(name: str) -> None:
    assert settings(**{name: " "}).start_timeout == 30


YAML = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 7
  hierarchical_allreduce: true
  hierarchical_allgather: false
  torus_allreduce: true
autotune:
  enabled: true
  log_file: log.csv
  warmup_samples: 1
  steps_per_sample: 2
  bayes_opt_max_samples: 3
  gaussian_process_noise: 0.5
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 5
  shutdown_time_seconds: 6
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 9
logging:
  level: INFO
  with_timestamp: false
"""

YAML_VARIABLES = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
    "HOROVOD_CYCLE_TIME": "2.5",
    "HOROVOD_CACHE_CAPACITY": "7",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_TORUS_ALLREDUCE": "1",
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_LOG": "log.csv",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "3",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5",
    "HOROVOD_TIMELINE": "t.json",
    "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6",
    "HOROVOD_MPI_THREADS_DISABLE": "1",
    "HOROVOD_NUM_NCCL_STREAMS": "2",
    "HOROVOD_THREAD_AFFINITY": "1",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "9",
    "HOROVOD_LOG_LEVEL": "INFO",
    "HOROVOD_LOG_HIDE_TIME": "1",
}


def test_every_key_of_the_file_sets_its_variable(tmp_path: Path) -> None:
    assert settings("--config-file", config(tmp_path, YAML)).variables == YAML_VARIABLES


@pytest.mark.parametrize(("flags", "variable", "value"), FLAGS)
@pytest.mark.parametrize("file_first", [True, False])
def test_a_flag_beats_the_file_on_either_side_of_it(
    tmp_path: Path, flags: list[str], variable: str, value: str, file_first: bool
) -> None:
    file = ["--config-file", config(tmp_path, YAML)]
    arguments = [*file, *flags] if file_first else [*flags, *file]
    assert settings(*arguments).variables[variable] == value


def test_an_empty_file_and_empty_sections_set_nothing(tmp_path: Path) -> None:
    assert settings("--config-file", config(tmp_path, "")).variables == {}
    assert settings("--config-file", config(tmp_path, "params:\nautotune: {}\n")).variables == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("controller: nccl", "controller.*'nccl' is not one of gloo, mpi"),
        ("params:\n  cycle_time_ms: -1", r"params\.cycle_time_ms.*-1 must be >= 0"),
        ("params:\n  cycle_time_ms: .nan", r"params\.cycle_time_ms"),
        ("params:\n  cache_capacity: 1.5", r"params\.cache_capacity.*not a whole number"),
        ("params:\n  cache_capacity: [1]", r"params\.cache_capacity.*not a single value"),
        ("params:\n  cache_capacity: true", r"params\.cache_capacity.*not a single value"),
        ("autotune:\n  enabled: 1", r"autotune\.enabled.*not true or false"),
        ("autotune:\n  gaussian_process_noise: 2", r"gaussian_process_noise.*in \[0, 1\]"),
        ("logging:\n  level: LOUD", r"logging\.level.*LOUD"),
        ("bind_to: cores", "bind_to in the config file .*'cores' is not a list"),
        ("shared_heap: on", "shared_heap in the config file .* is refused: there is no shared"),
        # YAML's number in base 60.
        ("bind_to: 1:2", "bind_to in the config file .*62 is not text; put it in quotes"),
        ("just text", "must hold keys and values"),
        ("- a\n- b", "must hold keys and values"),
        ("a: [", "not valid YAML"),
        ("a: !!python/object/apply:os.system [echo]", "not valid YAML"),
        ("\x00\x01", "not valid YAML"),
    ],
)
def test_a_faulty_file_is_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LaunchError, match=f"(?s){words}"):
        settings("--config-file", config(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("params:\n  fusion_treshold_mb: 1", "params.fusion_treshold_mb.*params.fusion_threshold"),
        ("fusion_threshold_mb: 1", "'fusion_threshold_mb' .* is no key.*did you mean"),
        ("contoller: gloo", "'contoller' .* has no effect.*'controller'"),
    ],
)
def test_a_key_that_nobody_knows_is_named_and_the_others_count(
    tmp_path: Path, text: str, words: str
) -> None:
    told: list[str] = []
    file = config(tmp_path, f"{text}\nlogging:\n  level: INFO\n")
    args = make_parser("horovodrun").parse_args(["--config-file", file])
    assert read_flags(args, {}, told.append).knobs == {"log_level": "INFO"}
    (warning,) = told
    assert re.search(words, warning)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file"):
        settings("--config-file", str(tmp_path / "none.yaml"))
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(LaunchError, match="not valid YAML"):
        settings("--config-file", str(tmp_path / "binary"))
