"""What schedulers say about a job is read as it is meant."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags, read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import Settings, make_settings
from sirtaki.launch.hosts.slots import Host, allocate
from sirtaki.launch.starters import scheduler
from sirtaki.launch.starters.allocation import (
    Allocation,
    find_allocation,
    is_part,
    narrow,
    take_allocation,
)
from sirtaki.schedulers.lsf import parse_mcpu_hosts
from sirtaki.schedulers.scheduler import Agents
from sirtaki.schedulers.slurm import expand_counts, expand_nodes
from sirtaki.schedulers.table import named

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,5}[a-z]", fullmatch=True)


# ---- Slurm ----


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("node[01-03,07]", ["node01", "node02", "node03", "node07"]),
        ("a1,b[2-3]", ["a1", "b2", "b3"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[1-2]-ib0,login", ["n1-ib0", "n2-ib0", "login"]),
        ("node-a.example.org", ["node-a.example.org"]),
        ("x[099-101]", ["x099", "x100", "x101"]),
    ],
)
def test_compressed_node_lists_are_expanded(text: str, nodes: list[str]) -> None:
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,", "n[", "n[]", "n]", "n[1-]", "n[3-1]", "n[1,,2]", "a b", "n[1-99999999]", "n;x"],
)
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"list of nodes|range"):
        expand_nodes(text)


@given(st.lists(st.tuples(NAMES, st.lists(st.integers(0, 99999), min_size=1)), min_size=1))
def test_a_node_list_names_what_was_compressed(groups: list[tuple[str, list[int]]]) -> None:
    text = ",".join(f"{name}[{','.join(f'{n:05d}' for n in numbers)}]" for name, numbers in groups)
    expected = [f"{name}{n:05d}" for name, numbers in groups for n in numbers]
    assert expand_nodes(text) == expected


@given(NAMES, st.integers(0, 10**6), st.integers(0, 300), st.integers(1, 8))
def test_a_range_keeps_the_zeros_in_front(name: str, first: int, more: int, width: int) -> None:
    last = first + more
    expected = [f"{name}{number:0{width}d}" for number in range(first, last + 1)]
    assert expand_nodes(f"{name}[{first:0{width}d}-{last}]") == expected


@given(st.text())
def test_any_text_is_a_node_list_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        nodes = expand_nodes(text)
        assert nodes
        assert all(nodes)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("4,2,1", [4, 2, 1]), ("1(x1),3(x2)", [1, 3, 3])],
)
def test_counts_for_consecutive_nodes_are_expanded(text: str, counts: list[int]) -> None:
    assert expand_counts(text) == counts


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1))
def test_counts_mean_what_was_compressed(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
    assert expand_counts(text) == [count for count, times in runs for _ in range(times)]


@pytest.mark.parametrize("text", ["", "x", "2(x", "2(x3", "2x3", "-1", "1,,2", "1(x99999999)"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="counts"):
        expand_counts(text)


SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_TASKS_PER_NODE": "2(x3),1"}


def test_a_slurm_job_has_a_slot_for_every_task() -> None:
    found = find_allocation(SLURM)
    assert found is not None
    assert (found.scheduler, found.job, found.starter) == ("slurm", "7", "srun")
    assert found.hosts == [Host("n1", 2), Host("n2", 2), Host("n3", 2), Host("n4", 1)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SLURM_TASKS_PER_NODE": "2(x3)"}, "names 4 nodes, SLURM_TASKS_PER_NODE='2(x3)'"),
        ({"SLURM_TASKS_PER_NODE": "many"}, "cannot read 'many'"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "cannot read 'n[1-'"),
        ({"SLURM_JOB_NODELIST_HET_GROUP_0": "n1"}, "heterogeneous"),
    ],
)
def test_slurm_variables_that_make_no_sense_are_refused(changed: dict[str, str], said: str) -> None:
    with pytest.raises(LaunchError) as refused:
        find_allocation({**SLURM, **changed})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("variables", "is_one"),
    [
        ({}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, False),  # a batch script
        ({"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, False),  # interactive
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, True),
    ],
)
def test_only_a_step_of_several_tasks_is_parallel(variables: dict[str, str], is_one: bool) -> None:
    refused = pytest.raises(ValueError, match="as one of 4 tasks")
    with refused if is_one else contextlib.nullcontext():
        named("slurm").require_launcher(variables)


def agents(
    scheduler: str,
    environ: dict[str, str],
    hosts: dict[str, int],
    ranks: int,
    program: str = "agent",
) -> list[str]:
    """The command that starts the agents of these hosts, or that of the last one."""
    asked = Agents("7", [program], list(hosts), Path("/f"), hosts, ranks, environ)
    return named(scheduler).commands(asked)[-1]


def test_srun_starts_one_task_a_host_which_has_all_that_the_job_has_there() -> None:
    command = agents("slurm", {}, {"n1": 2, "n2": 2}, 2)
    assert command[:4] == ["srun", "--jobid=7", "--ntasks=2", "--nodes=2"]
    assert {"--kill-on-bad-exit=1", "--wait=0", "--mem=0"} < set(command)
    assert not [option for option in command if option.startswith("--cpus-per-task")]


def test_nothing_of_the_jobs_options_contradicts_what_srun_is_told() -> None:
    environment = {
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_MEM_PER_CPU": "1000",
        "SLURM_EXPORT_ENV": "NONE",
        "A": "1",
    }
    slurm = named("slurm")
    told = slurm.starter_environment(environment, Path("/f"))
    assert told == {"A": "1", "SLURM_HOSTFILE": "/f"}
    of_job = slurm.kept_from_starter(environment)
    assert of_job == {"SLURM_CPUS_PER_TASK": "8", "SLURM_GPUS_PER_TASK": "1"}


def test_a_rank_has_the_variables_of_a_task_of_srun() -> None:
    slots = allocate([Host("n1", 2), Host("n2", 1)], 3)
    variables = named("slurm").rank_variables(slots[1], [2, 1])
    assert (variables["SLURM_PROCID"], variables["SLURM_LOCALID"]) == ("1", "1")
    assert variables["SLURM_NTASKS"] == variables["SLURM_STEP_NUM_TASKS"] == "3"
    assert variables["SLURM_STEP_TASKS_PER_NODE"] == "2,1"


@pytest.mark.parametrize(
    ("text", "counts"),
    [("8(x2),4", [8, 8, 4, None]), ("", [None] * 4), ("x", [None] * 4)],
)
def test_slurm_says_how_many_cpus_the_job_has_on_each_host(
    text: str, counts: list[int | None]
) -> None:
    environ = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": text}
    slurm = named("slurm")
    assert [slurm.cpus(environ, f"n{number}") for number in (1, 2, 3, 4)] == counts


@pytest.mark.parametrize(("text", "count"), [("2", 2), ("a100:4", 4), ("", None), ("x", None)])
def test_slurm_says_how_many_gpus_a_task_has(text: str, count: int | None) -> None:
    assert named("slurm").gpus({"SLURM_GPUS_PER_TASK": text}) == count


# ---- PBS ----


def pbs_job(folder: Path, *lines: str) -> dict[str, str]:
    (folder / "nodes").write_text("".join(line + "\n" for line in lines))
    return {"PBS_JOBID": "1234.server", "PBS_NODEFILE": str(folder / "nodes"), "PATH": ""}


def test_a_pbs_job_has_a_slot_for_every_line(tmp_path: Path) -> None:
    found = find_allocation(pbs_job(tmp_path, "n002", "n001", "n002", "n001", "n002"))
    assert found is not None
    assert (found.scheduler, found.job, found.starter) == ("pbs", "1234.server", "")
    assert found.hosts == [Host("n002", 3), Host("n001", 2)]


def test_the_agent_of_a_host_takes_its_first_line(tmp_path: Path) -> None:
    environ = pbs_job(tmp_path, "a", "b", "a", "b")
    assert agents("pbs", environ, {"b": 2}, 2) == ["pbsdsh", "-n", "1", "--", "agent", "0"]
    with pytest.raises(ValueError, match="has no line for c"):
        agents("pbs", environ, {"c": 1}, 1)
    environ["LD_LIBRARY_PATH"] = "/opt/python/lib"
    given = ["/usr/bin/env", "LD_LIBRARY_PATH=/opt/python/lib"]
    assert agents("pbs", environ, {"b": 2}, 2)[3:] == ["--", *given, "agent", "0"]


def test_a_host_of_pbs_has_the_threads_of_all_its_lines(tmp_path: Path) -> None:
    environ = pbs_job(tmp_path, "a", "b", "a")
    assert named("pbs").cpus(environ, "a") is None
    assert [named("pbs").cpus(environ | {"NCPUS": "8"}, host) for host in "ab"] == [16, 8]


def test_a_node_file_that_is_gone_is_named(tmp_path: Path) -> None:
    environ = {"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "aux")}
    with pytest.raises(LaunchError, match="left from another job"):
        find_allocation(environ)


@pytest.mark.parametrize("line", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a:2"])
def test_a_line_that_is_no_host_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="where the name of a host is expected"):
        find_allocation(pbs_job(tmp_path, "n1", line))


def test_an_empty_node_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="PBS_NODEFILE names no host"):
        find_allocation(pbs_job(tmp_path))


def test_a_leftover_job_id_alone_is_no_allocation() -> None:
    assert find_allocation({"PBS_JOBID": "1234.server"}) is None
    assert find_allocation({"LSB_JOBID": "77"}) is None
    assert find_allocation({}) is None


# ---- LSF ----


def lsf_job(folder: Path, *lines: str) -> dict[str, str]:
    (folder / "hosts").write_text("".join(line + "\n" for line in lines))
    return {"LSB_JOBID": "77", "LSB_DJOB_HOSTFILE": str(folder / "hosts"), "PATH": ""}


def test_an_lsf_job_has_a_slot_for_every_line(tmp_path: Path) -> None:
    found = find_allocation(lsf_job(tmp_path, "hosta", "hosta", "hostb"))
    assert found is not None
    assert (found.scheduler, found.job, found.starter) == ("lsf", "77", "")
    assert found.hosts == [Host("hosta", 2), Host("hostb", 1)]


def test_the_launch_node_in_front_is_left_out(tmp_path: Path) -> None:
    environ = lsf_job(tmp_path, "batch5", "node1", "node1", "node2", "node2")
    found = find_allocation(environ)
    assert found is not None
    assert found.hosts == [Host("node1", 2), Host("node2", 2)]


def test_with_jsrun_the_first_host_is_never_computed_on(tmp_path: Path) -> None:
    environ = lsf_job(tmp_path, "front", "node1", "node2")
    assert len(named("lsf").hosts(environ)) == 3
    (tmp_path / "jsrun").touch(mode=0o700)
    hosts = named("lsf").hosts({**environ, "PATH": str(tmp_path)})
    assert hosts == {"node1": 1, "node2": 1}


@given(st.lists(st.tuples(NAMES, st.integers(1, 99)), min_size=1, unique_by=lambda pair: pair[0]))
def test_names_and_slots_in_turn_are_read(pairs: list[tuple[str, int]]) -> None:
    text = " ".join(f"{name} {count}" for name, count in pairs)
    assert list(parse_mcpu_hosts(text).items()) == pairs


@pytest.mark.parametrize("text", ["a", "a x", "a 1 b", "2 2 a", "a -1", "a;b 1"])
def test_what_is_no_list_of_names_and_slots_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="LSB_MCPU_HOSTS"):
        parse_mcpu_hosts(text)


def test_the_other_lists_of_lsf_serve_where_there_is_no_file() -> None:
    both = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 2 b 1", "LSB_HOSTS": "x"}
    assert named("lsf").hosts(both) == {"a": 2, "b": 1}
    words = {"LSB_JOBID": "7", "LSB_HOSTS": "a a b"}
    assert named("lsf").hosts(words) == {"a": 2, "b": 1}


def test_jsrun_lays_out_the_same_number_on_every_host() -> None:
    lsf, hosts = named("lsf"), {"a": 42, "b": 42}
    assert lsf.spread(hosts, 12, "jsrun") == {"a": 6, "b": 6}
    assert lsf.spread(hosts, 12, "") == hosts
    assert agents("lsf", {"SIRTAKI_GPUS_PER_RANK": "1"}, hosts, 6) == [
        "jsrun",
        "--nrs=2",
        "--rs_per_host=1",
        "--tasks_per_rs=1",
        "--cpu_per_rs=42",
        "--bind=rs",
        "--gpu_per_rs=6",
        "agent",
    ]
    with pytest.raises(ValueError, match="do not divide among 2 hosts"):
        lsf.spread(hosts, 3, "jsrun")
    with pytest.raises(ValueError, match=r"more than the slots of b \(1\)"):
        lsf.spread({"a": 2, "b": 1}, 4, "jsrun")


@pytest.mark.parametrize(
    ("flags", "variables", "why"),
    [
        ([], {}, "This is no LSF job"),
        ([], SLURM, "This is no LSF job"),
        ([], {"LSB_JOBID": "7", "LSB_HOSTS": "a a", "PATH": ""}, "LSF job 7, but no jsrun is on"),
        (["-H", "b:2"], {"LSB_JOBID": "7", "LSB_HOSTS": "a a"}, "The hosts asked for are not"),
    ],
)
def test_jsrun_that_cannot_be_used_is_refused_with_the_reason(
    flags: list[str], variables: dict[str, str], why: str, tmp_path: Path
) -> None:
    (tmp_path / "jsrun").touch(mode=0o700)
    with pytest.raises(LaunchError, match=rf"--jsrun is not supported here.*{why}"):
        take_allocation(asked("-np", "2", "--jsrun", *flags), {"PATH": str(tmp_path), **variables})


def test_jsrun_may_be_asked_for_where_it_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "jsrun").touch(mode=0o700)
    environ = {"PATH": str(tmp_path), "LSB_JOBID": "7", "LSB_HOSTS": "front a a"}
    _, found = take_allocation(asked("-np", "2", "--jsrun"), environ)
    assert found is not None
    assert found.starter == "jsrun"


# ---- Grid Engine ----


def grid_engine_job(folder: Path, *hosts: str) -> dict[str, str]:
    rows = "".join(f"{host} 1 main@{host} UNDEFINED\n" for host in hosts)
    (folder / "pe_hostfile").write_text(rows)
    return {"JOB_ID": "8", "PE_HOSTFILE": str(folder / "pe_hostfile"), "PATH": ""}


def test_a_grid_engine_job_has_the_slots_of_all_queues(tmp_path: Path) -> None:
    found = find_allocation(grid_engine_job(tmp_path, "a", "b", "a"))
    assert found is not None
    assert (found.scheduler, found.job, found.starter) == ("grid-engine", "8", "")
    assert found.hosts == [Host("a", 2), Host("b", 1)]


def test_the_agents_of_grid_engine_are_started_through_a_shell() -> None:
    command = agents("grid-engine", {}, {"a": 1, "b": 1}, 1, program="it's an agent")
    assert command[:3] == ["qrsh", "-inherit", "b"]
    assert shlex.split(" ".join(command[3:])) == ["it's an agent", "1"]


@pytest.mark.parametrize("row", ["a", "a x q p"])
def test_a_line_without_slots_is_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{row}\n")
    environ = {"JOB_ID": "8", "PE_HOSTFILE": str(tmp_path / "hosts")}
    with pytest.raises(LaunchError, match="expected a host and its slots"):
        find_allocation(environ)


# ---- The part that is used ----


def scheduled(allocation: Allocation, *flags: str) -> Settings:
    return make_settings(asked(*flags, "-np", "3"), {}, allocation)


def test_the_ranks_of_a_job_are_bound_as_elsewhere() -> None:
    allocation = find_allocation(SLURM)
    assert allocation is not None
    assert scheduled(allocation, "--bind-to", "numa").bind_to == "numa"


@pytest.mark.parametrize(("name", "starter"), [("slurm", "srun"), ("lsf", "jsrun")])
def test_what_may_be_a_secret_is_not_shown_to_the_scheduler(name: str, starter: str) -> None:
    allocation = Allocation(name, "7", [Host("n1", 3)], starter)
    settings = scheduled(allocation, "-x", "MINE=a", "-x", "PYTHONPATH=b")
    mine = {"MINE": "before", "PYTHONPATH": "c", "MY_TOKEN": "d", "PATH": "/bin", "OTHER": "e"}
    start = scheduler.plan_start(allocation, settings, mine, Path("/f"))
    kept = {name: value for name, value in start.environ.items() if not name.startswith("SLURM")}
    shown = {"PATH": "/bin", "OTHER": "e", "PYTHONUNBUFFERED": "1", "PYTHONPATH": "c"}
    assert kept == shown
    sent = scheduler.environment_of_ranks(allocation, settings, mine)
    assert {**shown, **sent} == {**shown, "MINE": "a", "PYTHONPATH": "b", "MY_TOKEN": "d"}
    assert not {"a", "d"} & {*start.commands[0], *start.environ.values()}


def test_hosts_narrow_an_allocation_and_keep_its_names() -> None:
    given_hosts = [Host("n1.example.org", 4), Host("n2.example.org", 4)]
    assert narrow(given_hosts, [Host("n2", 3)]) == [Host("n2.example.org", 3)]
    assert is_part(given_hosts, [Host("N2", 3)])
    assert not is_part(given_hosts, [Host("localhost", 3)])
    twice = [Host("n1", 2), Host("n1.example.org", 2)]
    assert narrow(given_hosts, twice) == [Host("n1.example.org", 4)]
    addresses = [Host("10.0.0.1", 4), Host("10.0.0.2", 4)]
    assert narrow(addresses, addresses[:1]) == addresses[:1]


@pytest.mark.parametrize("way", ["flag", "file"])
def test_mpirun_starts_the_ranks_of_an_allocation_where_that_is_asked_for(
    way: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("controller: mpi\n")
    words = ["--mpi"] if way == "flag" else ["--config-file", str(file)]
    _, found = take_allocation(asked(*words), SLURM)
    assert found is None


def job_of(scheduler: str, folder: Path, *hosts: str) -> dict[str, str]:
    """The variables of a job with one slot on each of the hosts."""
    if scheduler == "pbs":
        return pbs_job(folder, *hosts)
    if scheduler == "lsf":
        return lsf_job(folder, *hosts)
    if scheduler == "grid-engine":
        return grid_engine_job(folder, *hosts)
    counts = f"1(x{len(hosts)})"
    names = {"SLURM_JOB_NODELIST": ",".join(hosts), "SLURM_TASKS_PER_NODE": counts}
    return {"SLURM_JOB_ID": "17", **names}


def asked(*flags: str) -> Flags:
    args = make_parser("horovodrun").parse_args([*flags, "true"])
    return read_flags(args, {}, pytest.fail)


SCHEDULERS = pytest.mark.parametrize("scheduler", ["slurm", "pbs", "lsf", "grid-engine"])


@SCHEDULERS
@pytest.mark.parametrize("host", ["localhost", socket.gethostname()])
def test_more_ranks_than_slots_on_the_one_host_of_a_job_are_started_here(
    scheduler: str, host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, found = take_allocation(asked("-np", "4"), job_of(scheduler, tmp_path, host))
    assert found is None
    assert (flags.num_proc, flags.hosts) == (4, "localhost:4")
    (said,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"{scheduler} job \S+ has 1 .*fewer than -np 4: starting .* here", said)


@SCHEDULERS
def test_as_many_ranks_as_slots_on_the_one_host_of_a_job_are_no_reason_for_a_notice(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take_allocation(asked("-np", "1"), job_of(scheduler, tmp_path, socket.gethostname()))
    assert capsys.readouterr().err == ""


@SCHEDULERS
@pytest.mark.parametrize("flags", [[], ["-H", f"{socket.gethostname()}:1"]])
def test_more_ranks_than_slots_on_several_hosts_are_refused_with_the_cure(
    scheduler: str, flags: list[str], tmp_path: Path
) -> None:
    environ = job_of(scheduler, tmp_path, socket.gethostname(), "other")
    cures = {"slurm": "--ntasks", "pbs": "mpiprocs", "lsf": "bsub", "grid-engine": "-pe"}
    cure = cures[scheduler]
    with pytest.raises(
        LaunchError,
        match=rf"more processes \(4\) .*{scheduler} job .*{cure}.*-H localhost:4",
    ):
        take_allocation(asked("-np", "4", *flags), environ)


def test_hosts_outside_of_the_allocation_are_refused() -> None:
    with pytest.raises(LaunchError, match="n3 is not one of the hosts of this job: n1:2"):
        narrow([Host("n1", 2)], [Host("n1", 1), Host("n3", 1)])
    with pytest.raises(LaunchError, match=r"3 slots are asked for on n1, .* gave 2: raise -n, or"):
        narrow([Host("n1", 2)], [Host("n1", 3)], "raise -n")
