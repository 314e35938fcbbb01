"""Jobs over several hosts by ssh: start, output, environment, exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from sirtaki.launch.cores.binding import describe_share, shares_here
from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import RUN, python, run

SHOW = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
PORT = ("-p", str(SSH_PORT))


def environments(output: str) -> dict[int, dict[str, str]]:
    """What `SHOW` printed, by rank."""
    lines = re.findall(r"^\[(\d+)\]<stdout>:(\{.*\})$", output, re.MULTILINE)
    return {int(rank): json.loads(text) for rank, text in lines}


def test_ranks_learn_their_places_on_uneven_hosts(bed: Bed) -> None:
    here, there, _ = bed.hosts
    hosts = f"{here.name}:1,{there.name}:2"
    done = here.run(*RUN, "-np", "3", "-H", hosts, *PORT, *python(SHOW))
    found = environments(done.stdout)
    assert {
        rank: tuple(int(found[rank][f"HOROVOD_{name}"]) for name in names)
        for rank in found
        for names in [("SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
    } == {0: (3, 0, 1, 0, 2), 1: (3, 0, 2, 1, 2), 2: (3, 1, 2, 0, 1)}, done.stderr
    assert [found[rank]["HOROVOD_HOSTNAME"] for rank in range(3)] == ["node3", "node5", "node5"]


def test_every_host_shares_out_its_own_cores(bed: Bed) -> None:
    here, there, _ = bed.hosts
    done = here.run(
        *(*RUN, "-np", "4", "--verbose", "-H", f"{here.name}:2,{there.name}:2", *PORT),
        *python("import os; print(os.environ['OMP_NUM_THREADS'], *os.sched_getaffinity(0))"),
        env={"OMP_NUM_THREADS": ""},
    )
    shares = shares_here(2, None, {})
    mask = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{share.threads} {' '.join(map(str, share.cpus)) or mask}"
        for rank, share in enumerate([*shares, *shares])
    ], done.stderr
    for rank, share in enumerate(shares, start=2):
        line = f"rank {rank} on {there.name}: {describe_share(share, {})}"
        assert line in done.stderr.splitlines()


def test_a_cpu_that_a_host_does_not_have_is_named_with_the_host(bed: Bed) -> None:
    here, there, _ = bed.hosts
    hosts = f"{here.name}:1,{there.name}:2"
    flags = ("-H", hosts, "--bind-to", f"{min(os.sched_getaffinity(0))}:9999")
    done = here.run(*RUN, "-np", "3", *flags, *PORT, "true")
    assert done.returncode == 2
    assert f"host {there.name}: --bind-to " in done.stderr
    assert "local rank 1 is to have CPU 9999, but the job may use only " in done.stderr


def test_the_environment_of_other_hosts_is_what_the_list_and_flags_allow(bed: Bed) -> None:
    mine = {
        "HOROVOD_CYCLE_TIME": "2",
        "SIRTAKI_CHUNK_BYTES": "8192",
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": "/no/such/folder",
        "MY_TOKEN": "for this host only",
        "HOROVOD_RANK": "77",
    }
    flags = ("-x", "GIVEN=a 'b'\n$c", "-x", "NCCL_DEBUG", "--network-interfaces", "eth0", "--tls")
    done = run(bed, *flags, *python(SHOW), env=mine)
    found = environments(done.stdout)
    assert len(found) == 3, done.stderr
    for rank, environment in found.items():
        for name in ("HOROVOD_CYCLE_TIME", "SIRTAKI_CHUNK_BYTES", "NCCL_DEBUG", "PYTHONPATH"):
            assert environment[name] == mine[name]
        assert environment["GIVEN"] == "a 'b'\n$c"
        assert environment["SIRTAKI_IFACE"] == "eth0"
        assert environment["SIRTAKI_TLS"] == "1"
        assert environment["PATH"] == os.environ["PATH"]
        assert environment["HOROVOD_RANK"] == str(rank)
        assert environment["cwd"] == str(Path.cwd())
        assert ("MY_TOKEN" in environment) == (rank == 0)


def test_an_interface_that_the_launcher_lacks_is_named_with_those_it_has(bed: Bed) -> None:
    done = run(bed, "--network-interfaces", "ib7", "true")
    assert done.returncode == 2
    assert "ib7" in done.stderr
    assert "eth0: 192.168.11.3" in done.stderr


def test_long_output_of_other_hosts_arrives_whole_and_in_order(bed: Bed, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for i in range(20000): print(i, 'x' * 100)\n"
        "print('end without newline', file=sys.stderr, end='')"
    )
    done = run(bed, "--output-filename", str(tmp_path), *python(code))
    assert done.returncode == 0
    expected = [f"{i} {'x' * 100}" for i in range(20000)]
    for rank in range(3):
        prefix = f"[{rank}]<stdout>:"
        lines = [line for line in done.stdout.splitlines() if line.startswith(prefix)]
        assert [line.removeprefix(prefix) for line in lines] == expected
        assert (tmp_path / f"rank.{rank}" / "stdout").read_text().splitlines() == expected
        assert f"[{rank}]<stderr>:end without newline\n" in done.stderr


def test_a_rank_that_fails_is_named_with_its_host(bed: Bed) -> None:
    code = (
        "import os, sys, time\n"
        "sys.exit(3) if os.environ['HOROVOD_RANK'] == '1' else time.sleep(600)"
    )
    done = run(bed, *python(code))
    assert done.returncode == 1
    assert "Process 1 exit with status code 3." in done.stderr
    assert "Process name: rank 1 on 192.168.11.5\nExit code: 3\nCommand: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rank_killed_by_a_signal_is_named_with_its_host(bed: Bed) -> None:
    code = "if [ $HOROVOD_RANK = 2 ]; then kill -SEGV $$; else sleep 600; fi"
    done = run(bed, "bash", "-c", code)
    assert done.returncode == 1
    assert "rank 2 on 192.168.11.6\nExit code: 139 (killed by SIGSEGV)" in done.stderr


def test_a_command_that_another_host_lacks_is_named_with_127(bed: Bed) -> None:
    there = bed.hosts[1]
    done = bed.hosts[0].run(*RUN, "-np", "1", "-H", there.address, *PORT, "no-such-program")
    assert done.returncode == 127
    assert "host 192.168.11.5: command not found: 'no-such-program'" in done.stderr


def test_a_folder_that_another_host_lacks_is_named(bed: Bed) -> None:
    here = bed.hosts[0]
    script = f"mount -t tmpfs none /mnt && cd /mnt && mkdir mine && cd mine && {' '.join(RUN)} "
    script += (
        f"-np 1 -H {bed.hosts[1].address} {' '.join(PORT)} true; e=$?; umount -l /mnt; exit $e"
    )
    done = here.run("bash", "-c", script)
    assert done.returncode == 2
    assert "host 192.168.11.5: the working folder '/mnt/mine'" in done.stderr


def test_the_launcher_need_not_be_among_the_hosts(bed: Bed) -> None:
    hosts = ",".join(host.address for host in bed.hosts[1:])
    code = "import socket; print(socket.gethostname())"
    done = bed.hosts[0].run(*RUN, "-np", "2", "-H", hosts, *PORT, *python(code))
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:node5", "[1]<stdout>:node6"]


def test_every_host_runs_its_rank_and_may_be_an_ipv6_address(bed: Bed) -> None:
    hosts = ",".join(f"[{host.address6}]:1" for host in bed.hosts)
    code = "import os, socket; print(socket.gethostname(), os.environ['SIRTAKI_RENDEZVOUS'])"
    done = bed.hosts[0].run(*RUN, "-np", "3", "-H", hosts, *PORT, *python(code))
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [name.partition(":")[2] for name, _ in told] == ["node3", "node5", "node6"]
    assert {re.sub(r"\d+$", "", address) for _, address in told} == {"tcp:[fd00:11::3]:"}


def test_the_users_ssh_configuration_is_obeyed(bed: Bed) -> None:
    config = bed.hosts[0].folder / "user" / "config"
    config.write_text(f"Host big-machine\n  HostName 192.168.11.5\n  Port {SSH_PORT}\n")
    try:
        code = "import os, socket; print(socket.gethostname(), os.environ['SIRTAKI_RENDEZVOUS'])"
        done = bed.hosts[0].run(*RUN, "-np", "1", "-H", "big-machine:1", *python(code))
    finally:
        config.unlink()
    assert done.stdout.startswith("[0]<stdout>:node5 tcp:"), done.stderr
    assert "192.168.11.3" in done.stdout


def test_what_a_remote_shell_prints_first_does_no_harm(bed: Bed, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nprintf "Welcome!\\nno end"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    done = run(bed, "--remote-python", str(wrapper), "echo", "works")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:works" for rank in range(3)]
    assert "192.168.11.5: Welcome!\n192.168.11.5: no end\n" in done.stderr


def test_all_ranks_share_a_secret_that_no_command_line_shows_nor_the_environment(bed: Bed) -> None:
    code = (
        "import os, pathlib, subprocess, time\n"
        "secret = pathlib.Path(os.environ['SIRTAKI_SECRET_FILE']).read_bytes()\n"
        "seen = subprocess.run(['ps', 'axww', '-o', 'args'], capture_output=True).stdout\n"
        "forms = (secret, secret.hex().encode(), os.environ['GIVEN'].encode())\n"
        "print('agent' in str(seen) or 'guardian' in str(seen), *(form in seen for form in forms),"
        "      os.environ['SIRTAKI_RENDEZVOUS'], len(secret), secret.hex())"
    )
    done = run(bed, "-x", "GIVEN", *python(code), env={"GIVEN": "telltale"})
    told = {line.partition(":")[2] for line in done.stdout.splitlines()}
    assert len(told) == 1, done.stderr
    where = r"tcp:192\.168\.11\.3:\d+ 32 [0-9a-f]{64}"
    assert re.fullmatch(f"True False False False {where}", told.pop())


def test_a_dry_run_shows_the_commands_and_starts_nothing(bed: Bed) -> None:
    done = run(bed, "--dry-run", "-x", "GIVEN=telltale", "python", "train.py", "a b")
    assert done.returncode == 0
    assert "host 192.168.11.3: ranks 0 (this machine)" in done.stdout
    assert "host 192.168.11.5: ranks 1 (by ssh)" in done.stdout
    assert "rendezvous: tcp:192.168.11.3, a free port" in done.stdout
    assert f"-p {SSH_PORT} -- 192.168.11.5 'exec {sys.executable} -u -m" in done.stdout
    assert "command: python train.py 'a b'" in done.stdout
    assert "telltale" not in done.stdout


@pytest.mark.parametrize("host", ["-oProxyCommand=touch${IFS}x", "a b", "a;b", "$(id)", "a'b"])
def test_a_host_that_is_not_a_name_is_refused(bed: Bed, host: str) -> None:
    done = bed.hosts[0].run(*RUN, "-np", "1", f"-H={host}:1", "true")
    assert done.returncode == 2
    assert "expected name:slots" in done.stderr


def test_run_works_over_hosts(bed: Bed, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    hosts = ",".join(f"{host.address}:1" for host in bed.hosts)
    script.write_text(
        "import os, socket, sirtaki\n"
        "from sirtaki.launch.api import run\n"
        "def work(text): return text, socket.gethostname(), int(os.environ['HOROVOD_RANK'])\n"
        f"print(run(work, ('x',), num_proc=3, hosts={hosts!r}, ssh_port={SSH_PORT}))\n"
        "def fail(): raise KeyError(socket.gethostname())\n"
        "try:\n"
        f"    run(fail, num_proc=1, hosts='192.168.11.6', ssh_port={SSH_PORT})\n"
        "except RuntimeError as error: print(error, repr(error.__cause__))\n"
    )
    done = bed.hosts[0].run(sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    assert "[('x', 'node3', 0), ('x', 'node5', 1), ('x', 'node6', 2)]" in done.stdout
    assert "rank 0 (192.168.11.6) failed" in done.stdout
    assert "KeyError('node6')" in done.stdout
