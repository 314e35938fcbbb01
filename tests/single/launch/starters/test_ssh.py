"""The ssh command line, the meaning of its failures, and what other hosts get to know."""

from __future__ import annotations

import itertools
import shlex
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import Settings, place
from sirtaki.launch.hosts import addresses
from sirtaki.launch.hosts.addresses import own_addresses
from sirtaki.launch.hosts.environment import forwarded_variables, sent_environment
from sirtaki.launch.hosts.sent import kept_back
from sirtaki.launch.hosts.slots import parse_hosts
from sirtaki.launch.starters.ssh import Ssh, explain_end, ssh_command

variables = st.dictionaries(
    st.text(string.ascii_uppercase + "_", min_size=1, max_size=12), st.text(max_size=8), max_size=8
)


def options(command: list[str]) -> list[str]:
    """What the command gives to -o."""
    return [value for flag, value in itertools.pairwise(command) if flag == "-o"]


def test_ssh_is_asked_for_nothing_that_waits_for_a_human() -> None:
    command = ssh_command(Ssh(), "node-a", 30)
    assert command[:2] == ["ssh", "-T"]
    for option in (
        "BatchMode=yes",
        "StrictHostKeyChecking=accept-new",
        "ConnectTimeout=24",
        "ServerAliveInterval=2",
        "ServerAliveCountMax=2",
        "ClearAllForwardings=yes",
    ):
        assert option in options(command)


def test_the_host_stands_behind_two_dashes_and_the_rest_is_one_remote_command() -> None:
    command = ssh_command(Ssh(remote_python="/opt/a b/python"), "node-a", 30)
    assert command[-3:] == [
        "--",
        "node-a",
        "exec '/opt/a b/python' -u -m sirtaki.launch.processes.agent",
    ]
    assert "-p" not in command
    assert "-i" not in command


def test_a_host_may_have_a_port_of_its_own() -> None:
    ssh = Ssh(22, ports={"a": 2201})
    commands = {host: ssh_command(ssh, host, 30) for host in "ab"}
    assert {host: words[words.index("-p") + 1] for host, words in commands.items()} == {
        "a": "2201",
        "b": "22",
    }


def test_port_and_key_are_passed_on() -> None:
    command = ssh_command(Ssh(12345, "key file"), "fe80::1%eth0", 0.5)
    assert command[-8:-1] == [
        "ConnectTimeout=1",
        "-p",
        "12345",
        "-i",
        "key file",
        "--",
        command[-2],
    ]
    assert command[-2] == "fe80::1%eth0"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_any_path_of_python_stays_one_word_of_the_remote_shell(path: str) -> None:
    remote = ssh_command(Ssh(remote_python=path), "a", 30)[-1]
    assert shlex.split(remote) == ["exec", path, "-u", "-m", "sirtaki.launch.processes.agent"]


@pytest.mark.parametrize(
    ("code", "lines", "expected"),
    [
        (255, ["ssh: connect to host a port 22: Connection refused"], "could not connect: ssh: c"),
        (255, ["root@a: Permission denied (publickey)."], "Permission denied"),
        (127, ["bash: exec: /x/python: not found"], "there is no Python at /x/python; say where"),
        (126, [], "there is no Python at /x/python"),
        (1, ["/x/python: Command not found."], "there is no Python at /x/python"),
        (1, ["/x/python: No module named sirtaki"], "Sirtaki is not installed for /x/python"),
        (
            1,
            ["No module named 'sirtaki.launch.processes.agent'"],
            "Sirtaki is not installed for /x/python",
        ),
        (1, ["No module named 'zlib'"], "ended with code 1 before it was ready: No module"),
        (-9, [], "ended with code -9"),
    ],
)
def test_the_end_of_ssh_is_explained(code: int, lines: list[str], expected: str) -> None:
    assert expected in explain_end(Ssh(remote_python="/x/python"), code, lines)


@given(variables, variables)
def test_other_hosts_get_what_is_given_and_nothing_that_is_ours_alone(
    environ: dict[str, str], given_: dict[str, str]
) -> None:
    sent = sent_environment(
        {**environ, "PATH": "/bin", "HOME": "/me", "SSH_AUTH_SOCK": "x"}, given_
    )
    assert set(sent) <= {*environ, *given_, "PATH", "PYTHONUNBUFFERED"}
    assert {name: sent[name] for name in given_ if name != "PYTHONUNBUFFERED"} == {
        name: value for name, value in given_.items() if name != "PYTHONUNBUFFERED"
    }


@pytest.mark.parametrize(
    "name",
    [
        *("KERAS_BACKEND", "XLA_FLAGS", "OMP_NUM_THREADS", "PYTHONHASHSEED", "NCCL_DEBUG"),
        *("CUBLAS_WORKSPACE_CONFIG", "HOROVOD_FUSION_THRESHOLD", "OMPI_MCA_btl", "DATA_DIR"),
        *("AWS_DEFAULT_REGION", "WANDB_PROJECT", "HF_HOME", "TOKENIZERS_PARALLELISM", "LANG"),
        *("https_proxy", "MLFLOW_TRACKING_URI", "MASTER_ADDR", "VIRTUAL_ENV", "COMPASS"),
    ],
)
def test_other_hosts_get_the_settings_of_programs(name: str) -> None:
    assert sent_environment({name: "http://a:80/b"}, {})[name] == "http://a:80/b"


SECRETS = (
    *("MY_TOKEN", "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    *("HOROVOD_SECRET_KEY", "TF_API_KEY", "JAX_TOKEN", "KERAS_PASSWORD", "MYSQL_PWD", "NETRC_AUTH"),
    *(
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SENTRY_DSN",
        "GITHUB_TOKENS",
        "OPENAI_APIKEY",
        "my_secret",
    ),
    *("AZURE_STORAGE_CONNECTION_STRING", "PGPASSWORD", "DB_PASS", "my_secret"),
)
A_HOSTS_OWN = (
    *("HOME", "DISPLAY", "SSH_AUTH_SOCK", "TMPDIR", "CUDA_VISIBLE_DEVICES", "SLURM_PROCID"),
    *(
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "XDG_RUNTIME_DIR",
        "BASH_FUNC_module%%",
        "RANK",
        "NNODES",
    ),
)


@pytest.mark.parametrize("name", [*SECRETS, *A_HOSTS_OWN])
def test_secrets_and_what_is_a_hosts_own_travel_only_by_name(name: str) -> None:
    assert name not in sent_environment({name: "1"}, {})
    assert sent_environment({name: "1"}, {name: "2"})[name] == "2"


def test_an_address_with_a_password_is_a_secret() -> None:
    assert "DATABASE_URL" not in sent_environment({"DATABASE_URL": "postgres://me:x@a/b"}, {})
    assert "DATABASE_URL" in sent_environment({"DATABASE_URL": "postgres://me@a/b"}, {})


def test_what_is_kept_back_is_said_unless_it_is_named() -> None:
    environ = {"HF_TOKEN": "a", "WANDB_API_KEY": "b", "SSH_TOKEN": "c", "LANG": "C"}
    said = kept_back(environ, {"WANDB_API_KEY": "b"})
    assert "do not get HF_TOKEN, which" in said
    assert kept_back({**environ, "AWS_SECRET": ""}, {}).count("AWS_SECRET, HF_TOKEN, WANDB") == 1
    assert kept_back({"LANG": "C", "SSH_TOKEN": "c"}, {}) == ""


def test_other_hosts_get_the_number_of_threads_that_the_user_has_set() -> None:
    assert sent_environment({"OMP_NUM_THREADS": "3"}, {})["OMP_NUM_THREADS"] == "3"
    of_a_launcher = {"OMP_NUM_THREADS": "3", "SIRTAKI_SET_FOR_TORCH": "RANK,OMP_NUM_THREADS"}
    assert "OMP_NUM_THREADS" not in sent_environment(of_a_launcher, {})


def test_the_place_and_secret_of_an_outer_job_are_not_sent() -> None:
    environ = {"HOROVOD_RANK": "1", "SIRTAKI_SECRET_FILE": "/a", "NCCL_DEBUG": "INFO"}
    assert sent_environment(environ, {}) == {"NCCL_DEBUG": "INFO", "PYTHONUNBUFFERED": "1"}


def test_variables_of_the_users_choice_have_a_value_or_get_ours() -> None:
    assert forwarded_variables(["A", "B=", "C=d=e"], {"A": "1", "B": "2"}) == {
        "A": "1",
        "B": "",
        "C": "d=e",
    }


@pytest.mark.parametrize("request_", ["MISSING", "", "=x", "A B=c", "1A=x", "A=\0"])
def test_variables_that_cannot_be_passed_on_are_refused(request_: str) -> None:
    with pytest.raises(LaunchError, match="-x"):
        forwarded_variables([request_], {})


def test_a_variable_of_the_users_choice_does_not_hide_another() -> None:
    assert sent_environment({"SIRTAKI_A": "1"}, {"A": "2"})["SIRTAKI_A"] == "1"


def test_a_host_that_only_ssh_knows_gets_all_addresses_of_this_machine() -> None:
    try:
        found = own_addresses(["no-such-host.invalid"], ())
    except LaunchError:
        pytest.skip("this machine has no address that another could use")
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))


def test_agents_that_call_are_given_all_addresses_that_can_be_used_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present = [
        addresses.Interface("lo", ("127.0.0.1", "::1")),
        # Of other machines: nobody can listen there, as while the system still checks one.
        addresses.Interface("eth0", ("192.0.2.7", "2001:db8::7")),
    ]
    monkeypatch.setattr(addresses, "interfaces", lambda: present)
    with pytest.raises(LaunchError, match="no address that other hosts can reach"):
        addresses.all_addresses(())
    monkeypatch.setattr(addresses, "_is_of_use", lambda address: True)
    assert "127.0.0.1" in addresses.all_addresses(())
    assert not {"192.0.2.7", "2001:db8::7"} & set(addresses.all_addresses(()))
    assert addresses.all_addresses(["lo"])[0] == "127.0.0.1"


def test_an_interface_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(LaunchError, match="no-such0"):
        own_addresses(["192.0.2.1"], ("no-such0",))


def test_slots_are_grouped_by_host_in_the_order_of_ranks() -> None:
    settings = Settings(place(3, parse_hosts("192.0.2.2:1,192.0.2.1:2")), ["true"])
    assert {host: [s.rank for s in slots] for host, slots in settings.by_host().items()} == {
        "192.0.2.2": [0],
        "192.0.2.1": [1, 2],
    }
