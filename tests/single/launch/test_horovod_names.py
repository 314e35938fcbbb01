"""The launcher under the names that Horovod's scripts import."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from horovod.common import util
from horovod.runner import _HorovodArgs, launch, run
from horovod.runner.common.util import config_parser, hosts, safe_shell_exec, secret, settings
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util import threads
from horovod.runner.util.streams import Pipe
from sirtaki.launch import api
from tests.single.launching import LIMIT

pytestmark = pytest.mark.job


def test_run_is_the_same_function() -> None:
    assert run is api.run


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 1)])
def test_run_commandline_is_horovodrun(command: str, code: int) -> None:
    call = "from horovod.runner.launch import run_commandline; run_commandline()"
    done = subprocess.run(
        [sys.executable, "-c", call, "-np", "2", command],
        timeout=LIMIT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == code


def test_rank_and_size_come_from_the_launchers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("SIRTAKI", "HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{prefix}_RANK", raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    assert get_env_rank_and_size() == (2, 3)
    monkeypatch.setenv("HOROVOD_RANK", "4")
    monkeypatch.setenv("HOROVOD_SIZE", "5")
    assert get_env_rank_and_size() == (4, 5)


def test_in_thread_starts_the_function() -> None:
    done = threading.Event()
    thread = threads.in_thread(done.set)
    thread.join()
    assert done.is_set()
    assert thread.daemon


def test_functions_run_in_threads_give_results_by_index() -> None:
    results = threads.execute_function_multithreaded(pow, [(2, 3), (3, 2)])
    assert results == {0: 8, 1: 9}
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(divmod, [(1, 0)])


def arguments_for(*command: str) -> _HorovodArgs:
    """Two ranks that run a command."""
    args = _HorovodArgs()
    args.num_proc = 2
    args.command = list(command)
    return args


def test_a_command_runs_by_its_filled_in_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, pathlib; pathlib.Path(os.environ['HOROVOD_RANK']).touch()"
    monkeypatch.chdir(tmp_path)
    assert launch._run(arguments_for(sys.executable, "-c", code)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    with pytest.raises(RuntimeError, match="processes exited with non-zero status"):
        launch._run(arguments_for("false"))


def test_a_function_runs_by_its_filled_in_arguments() -> None:
    args = _HorovodArgs()
    args.num_proc = 2
    args.run_func = lambda: int(os.environ["HOROVOD_RANK"])
    assert launch._run(args) == [0, 1]


def test_the_arguments_of_this_program_are_those_of_horovodrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = ("-np", "3", "-H", "a:3", "--gloo", "--network-interface", "eth0,ib0", "train", "-v")
    monkeypatch.setattr(sys, "argv", ["program", *flags])
    args = launch.parse_args()
    assert (args.num_proc, args.hosts, args.command) == (3, "a:3", ["train", "-v"])
    assert (args.use_gloo, args.use_mpi, args.nics) == (True, False, "eth0,ib0")


def test_numbers_among_this_programs_arguments_are_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("autotune: {gaussian_process_noise: 0.5}\nparams: {no_such_key: 1}\n")
    flags = "--fusion-threshold-mb 32 --cycle-time-ms 3 --thread-affinity 1 --start-timeout 9"
    words = ["program", "-np", "2", *flags.split(), "--config-file", str(file), "train"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.warns(UserWarning, match="'params.no_such_key' in the config file"):
        args = launch.parse_args()
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.thread_affinity) == (32, 3.0, 1)
    assert (args.start_timeout, args.autotune_gaussian_process_noise) == (9.0, 0.5)


def test_flags_and_a_configuration_become_the_variables_of_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "-np", "2", "--cycle-time-ms", "2", "train"])
    args = launch.parse_args()
    content = {
        "controller": "gloo",
        "params": {"fusion_threshold_mb": 16, "cycle_time_ms": 9},
        "stall_check": {"enabled": False},
    }
    config_parser.set_args_from_config(args, content, {"cycle_time_ms"})
    assert (args.fusion_threshold_mb, args.use_gloo, args.use_mpi) == (16, True, False)
    env = config_parser.set_env_from_args({"OTHER": "1"}, args)
    assert env == {
        "OTHER": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        config_parser.HOROVOD_CYCLE_TIME: "2.0",
        config_parser.HOROVOD_FUSION_THRESHOLD: str(16 << 20),
        config_parser.HOROVOD_STALL_CHECK_DISABLE: "1",
    }
    config_parser.validate_config_args(args)
    args.cache_capacity = -1
    with pytest.raises(ValueError, match="cache_capacity=-1: -1 must be >= 0"):
        config_parser.validate_config_args(args)


def test_a_key_proves_a_message_and_no_other() -> None:
    key = secret.make_secret_key()
    assert key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"message")
    assert len(digest) == secret.DIGEST_LENGTH
    assert secret.HOROVOD_SECRET_KEY not in os.environ
    assert secret.check_digest(digest, b"message", key)
    assert not secret.check_digest(digest, b"massage", key)


def test_settings_hold_what_they_are_given_and_nothing_else() -> None:
    found = settings.Settings(num_proc=2, hosts="a:2", key=b"key", verbose=2)
    assert isinstance(found, settings.BaseSettings)
    assert (found.num_proc, found.hosts, found.key, found.nics) == (2, "a:2", b"key", None)
    with pytest.raises(TypeError):
        settings.Settings(number=2)


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        *(("2.4.0", True), ("2.4", True), ("2.4.1+cpu", True), ("2.10.0", True), ("3.0", True)),
        *(("2.3.9", False), ("2.4.0rc1", False), ("2.4.0.dev1", False), ("2.4.0.post1", True)),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, enough: bool) -> None:
    assert util.is_version_greater_equal_than(version, "2.4.0") is enough


@pytest.mark.parametrize(("version", "target"), [("2.4.0", "2.4"), ("two", "2.4.0"), (2, "2.4.0")])
def test_what_is_no_version_is_not_compared(version: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version as major\.minor\.patch"):
        util.is_version_greater_equal_than(version, target)


def test_hosts_are_read_and_ranks_placed() -> None:
    (a, b) = hosts.parse_hosts("a:2,b:1")
    assert (a, b) == (hosts.HostInfo("a", 2), hosts.HostInfo.from_string("b:1"))
    places = hosts.get_host_assignments([a, b], 2, 3)
    assert places == [
        hosts.SlotInfo("a", 0, 0, 0, size=3, local_size=2, cross_size=2),
        hosts.SlotInfo("a", 1, 1, 0, size=3, local_size=2, cross_size=1),
        hosts.SlotInfo("b", 2, 0, 1, size=3, local_size=1, cross_size=2),
    ]
    assert places[1].to_response_string() == "1,3,1,2,0,1"
    assert len(hosts.get_host_assignments([a, b], 2)) == 2
    with pytest.raises(ValueError, match="available slots"):
        hosts.get_host_assignments([a, b], 4)


def test_a_hostfile_becomes_a_list_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\n# none\nb\n")
    assert hosts.parse_host_files(str(tmp_path / "hosts")) == "a:2,b:1"


def test_a_shell_command_gives_its_output_and_exit_code() -> None:
    out, err = io.StringIO(), io.StringIO()
    words = "echo $GIVEN; echo no >&2; exit 3"
    code = safe_shell_exec.execute(words, {"GIVEN": "yes"}, out, err, index=4)
    assert (code, out.getvalue(), err.getvalue()) == (3, "[4]<stdout>:yes\n", "[4]<stderr>:no\n")


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_event_ends_a_shell_command_and_what_it_has_started() -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    out = io.StringIO()
    code = safe_shell_exec.execute("sleep 600 & echo $!; wait", stdout=out, events=[stop])
    assert code != 0
    deadline = time.monotonic() + LIMIT
    while is_running(int(out.getvalue())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_pipe_passes_pieces_from_thread_to_thread() -> None:
    pipe = Pipe()
    pipe.write("abc")
    assert (pipe.read(2), pipe.read()) == ("ab", "c")
    with pytest.raises(TimeoutError):
        pipe.read(timeout=0.01)
    pipe.write(b"last")
    pipe.close()
    assert (pipe.read(), pipe.read()) == (b"last", None)
    with pytest.raises(RuntimeError, match="closed"):
        pipe.write("more")


def test_results_are_remembered_and_extensions_are_checked() -> None:
    calls: list[int] = []
    remembered = util._cache(calls.append)
    remembered(1)
    remembered(1)
    assert calls == [1]
    assert util.get_ext_suffix().endswith(".so")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod.mxnet has not been built"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (
            "horovod.mxnet",
            "does not have the binding for MXNet yet.*torch, tensorflow",
        ),
        ("horovod.runner.elastic.driver", "horovodrun --min-np .*ElasticRayExecutor"),
    ],
)
def test_a_module_that_is_missing_says_so_and_what_to_use(module: str, says: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=says) as caught:
        importlib.import_module(module)
    assert caught.value.name == module


def test_hosts_of_elastic_jobs_are_found_as_by_horovods_classes() -> None:
    from horovod.runner.elastic import discovery, settings

    script = discovery.HostDiscoveryScript("echo a:3; echo b", 2)
    assert script.find_available_hosts_and_slots() == {"a": 3, "b": 2}
    fixed = discovery.FixedHosts({"a": 1})
    fixed.set({"b": 2})
    assert fixed.find_available_hosts_and_slots() == {"b": 2}
    assert isinstance(script, discovery.HostDiscovery)
    made = settings.ElasticSettings(discovery=script, min_num_proc=2, num_proc=2)
    assert (made.elastic, made.discovery, made.reset_limit) == (True, script, None)


@pytest.mark.parametrize("name", ["ray", "lightning"])
def test_a_module_whose_framework_is_missing_says_what_to_install(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'sirtaki\[{name}\]'"):
        importlib.import_module(f"horovod.{name}")


def test_spark_is_asked_for_when_it_is_used() -> None:
    if importlib.util.find_spec("pyspark") is not None:
        pytest.skip("pyspark is installed")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sirtaki\[spark\]'"):
        importlib.import_module("horovod.spark").run(print, num_proc=1)


@pytest.mark.slow
def test_ranks_that_a_program_starts_itself_meet_at_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_bytes(os.urandom(32))
    monkeypatch.setenv("SIRTAKI_SECRET_FILE", str(secret))
    code = "import sirtaki as hvd, numpy; hvd.init()\n"
    code += "print(hvd.allreduce(numpy.array([hvd.rank()]), op=hvd.Sum).item())"
    places = hosts.get_host_assignments(hosts.parse_hosts("localhost:3"), 3)
    server = RendezvousServer(verbose=1)
    port = server.start()
    server.init(places)
    ranks = []
    for place in places:
        variables = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            **{f"HOROVOD_{name.upper()}": str(value) for name, value in vars(place).items()},
        }
        command = [sys.executable, "-c", code]
        ranks.append(
            subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
            )
        )
    outputs = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    server.stop()
    assert outputs == ["3\n"] * 3


def test_a_server_without_a_secret_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIRTAKI_SECRET_FILE", raising=False)
    with pytest.raises(ValueError, match=r"head -c 32 /dev/urandom"):
        RendezvousServer().start()
