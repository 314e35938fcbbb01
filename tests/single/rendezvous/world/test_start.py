"""Ranks find their place and each other under every launcher, and without one."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.core.config import Config
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.stores.file_store import FileStore
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.rendezvous.world import start as meeting
from sirtaki.rendezvous.world.membership import Topology
from sirtaki.rendezvous.world.start import Meeting, MeetingPlace
from sirtaki.schedulers.start import Start
from sirtaki.schedulers.table import find_start
from tests import needs

TORCH = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
TORCHRUN = {**TORCH, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "r"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "job@1",
    "PMIX_RANK": "3",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "17",
    "SLURM_CLUSTER_NAME": "box",
}
BATCH = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "17"}
MVAPICH = {f"MV2_COMM_WORLD_{name}": OPEN_MPI[f"OMPI_COMM_WORLD_{name}"]
           for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}  # fmt: skip
JSRUN = {f"JSM_NAMESPACE_{name}": OPEN_MPI[f"OMPI_COMM_WORLD_{name}"]
         for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}  # fmt: skip
PALS = {"PALS_RANKID": "3", "PALS_APID": "a", "PMI_RANK": "3", "PMI_SIZE": "4",
        "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}  # fmt: skip
FLUX = {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_JOB_ID": "f", "FLUX_TASK_LOCAL_ID": "1",
        "PMI_RANK": "3", "PMI_SIZE": "4"}  # fmt: skip
PMIX = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "n@1"}
KNOWN = Topology(3, 4, 1, 2, 0, 0)
UNKNOWN = Topology(3, 4, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("environ", "topology", "job"),
    [
        (TORCHRUN, KNOWN, "torch:node1:29500:r:"),
        (TORCH, UNKNOWN, "torch:node1:29500::"),
        (OPEN_MPI, KNOWN, "pmix.job@1"),
        (HYDRA, KNOWN, ""),
        ({**HYDRA, "I_MPI_HYDRA_UUID": "u"}, KNOWN, "hydra.u"),
        (MVAPICH, KNOWN, ""),
        (PALS, KNOWN, "pals.a"),
        ({**JSRUN, "LSB_JOBID": "7", "PMIX_NAMESPACE": "n"}, KNOWN, "jsm.7.n"),
        (SLURM, KNOWN, "slurm.box.17.0.0"),
        (FLUX, UNKNOWN, "flux.f"),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, UNKNOWN, ""),
        ({**PMIX, "WORLD_SIZE": "4"}, UNKNOWN, "pmix.n@1"),
        ({**HYDRA, "MPI_LOCALNRANKS": "4"}, Topology(3, 4, 1, 4, 0, 1), ""),
    ],
)
def test_a_rank_knows_its_place_from_its_launcher(
    environ: dict[str, str], topology: Topology, job: str
) -> None:
    start = find_start(environ)
    assert start is not None
    assert (start.topology, start.job) == (topology, job)
    assert Config.from_env(environ).topology == topology


WRONG = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize("environ", [TORCHRUN, OPEN_MPI, HYDRA, MVAPICH, PALS, JSRUN])
def test_slurms_variables_count_only_where_no_other_launcher_is(environ: dict[str, str]) -> None:
    assert find_start({**WRONG, **environ}) == find_start(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        BATCH,
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1"},
        {**SLURM, **PMIX, "SLURM_STEP_NUM_TASKS": "1"},
        {**SLURM, "SLURM_STEP_ID": "4294967290"},
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
    ],
)
def test_a_process_that_nobody_started_among_others_is_alone(environ: dict[str, str]) -> None:
    assert find_start(environ) is None
    assert Config.from_env(environ).topology == Topology()


def test_a_rank_that_is_not_told_how_many_there_are_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"this is rank 3, and not of how many: .* WORLD_SIZE"):
        Config.from_env(PMIX)


def test_our_own_variables_win_over_all() -> None:
    own = {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2", "CROSS_RANK": "0"}
    own |= {"CROSS_SIZE": "1", "RENDEZVOUS": "unix:@x"}
    ours = {f"HOROVOD_{name}": value for name, value in own.items()}
    config = Config.from_env({**OPEN_MPI, **SLURM, **TORCH, **ours})
    assert config.topology == Topology(0, 2, 0, 2, 0, 1)
    assert config.rendezvous == "unix:@x"


@pytest.mark.parametrize(
    "environ",
    [
        {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "4"},
        {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
        {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "5"},
        {"OMPI_COMM_WORLD_RANK": "0"},
        {**HYDRA, "PMI_RANK": "x"},
        {**HYDRA, "PMI_RANK": "-1"},
    ],
)
def test_a_launcher_that_contradicts_itself_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Found: "):
        find_start(environ)


@given(st.dictionaries(st.sampled_from([*TORCHRUN, *OPEN_MPI, *HYDRA, *SLURM]), st.text()))
def test_any_values_make_a_valid_place_or_a_value_error(environ: dict[str, str]) -> None:
    try:
        start = find_start(environ)
    except ValueError:
        return
    if start is not None:
        place = start.topology
        assert 0 <= place.rank < place.size
        assert place.local_size == 0 or place.local_rank < place.local_size <= place.size


def test_a_slurm_node_sets_hosts_apart() -> None:
    assert Config.from_env(SLURM).host_id == "1"


# ---- Secrets and folders ----


@pytest.mark.parametrize("text", [bytes(range(32)), bytes(range(32)).hex().encode() + b"\n"])
def test_a_secret_is_read_from_a_private_file(tmp_path: pathlib.Path, text: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(text)
    file.chmod(0o600)
    assert read_secret(str(file)) == bytes(range(32))
    file.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_secret(str(file))


@pytest.mark.parametrize("text", [b"", b"short", bytes(33), b"g" * 64])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: pathlib.Path, text: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(text)
    file.chmod(0o600)
    with pytest.raises(ValueError, match="32 bytes"):
        read_secret(str(file))


def test_a_secret_in_memory_has_no_name_to_protect() -> None:
    descriptor = os.memfd_create("secret")
    os.write(descriptor, bytes(32))
    assert read_secret(f"/proc/{os.getpid()}/fd/{descriptor}") == bytes(32)
    os.close(descriptor)


def test_a_folder_keeps_values_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "job"
    store = open_store(f"file:{folder}", 5)
    store.set("a/b" * 300, b"value")
    assert FileStore(f"file:{folder}").get("a/b" * 300, 5) == b"value"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_is_waited_on(tmp_path: pathlib.Path) -> None:
    store = FileStore(f"file:{tmp_path / 'job'}")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "k", 20)
        store.set("k", b"v")
        assert waiting.result() == b"v"
    store.remove("k")
    store.remove("k")
    with pytest.raises(TimeoutError, match=r"'k'.*do all hosts share"):
        store.get("k", 0.1)


def test_a_folder_that_others_may_use_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="0755"):
        FileStore(f"file:{tmp_path / 'open'}")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        FileStore(f"file:{tmp_path / 'link'}")


@pytest.mark.parametrize("address", ["file:", "file:relative", "file:./x"])
def test_a_folder_needs_an_absolute_path(address: str) -> None:
    with pytest.raises(ValueError, match="expected file:/folder"):
        open_store(address, 1)


# ---- Meeting ----


def places(size: int, hosts: int, **rest: Any) -> list[MeetingPlace]:
    local = size // hosts
    start = {name: rest.pop(name) for name in ("job", "master", "by") if name in rest}
    return [
        MeetingPlace(Start(Topology(r, size, r % local, local, 0, 0), **start), timeout=20, **rest)
        for r in range(size)
    ]


def meet_all(all_places: list[MeetingPlace]) -> list[Meeting]:
    with ThreadPoolExecutor(len(all_places)) as pool:
        # Rank 0 comes last.
        futures: list[Future[Meeting]] = [pool.submit(meeting.meet, p) for p in all_places[::-1]]
        return [future.result() for future in futures][::-1]


def check(met: list[Meeting]) -> None:
    met[0].store.set("k", b"v")
    assert [m.store.get("k", 20) for m in met] == [b"v"] * len(met)
    assert len({m.secret for m in met}) == 1
    assert [m.server is not None for m in met] == [True] + [False] * (len(met) - 1)
    for m in met:
        m.close()


@pytest.mark.parametrize("job", ["pmix.job@1", ""])
def test_ranks_of_one_host_meet_by_the_name_of_their_start(job: str) -> None:
    check(meet_all(places(3, 1, job=f"{job}{os.getpid()}" if job else "")))


def private_secret(folder: pathlib.Path) -> str:
    file = folder / "secret"
    file.write_bytes(os.urandom(32))
    file.chmod(0o600)
    return str(file)


def test_ranks_by_hand_meet_at_a_port_after_the_masters(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as torchs:
        port = torchs.getsockname()[1]
        with socket.socket() as taken:
            # Another program has the first port after it.
            taken.bind(("127.0.0.1", port + 1))
            secret = private_secret(tmp_path)
            met = meet_all(places(3, 3, master=f"127.0.0.1:{port}", secret_file=secret))
            assert str(met[0].store.address).endswith(f":{port + 2}")
            check(met)


def test_ranks_by_hand_on_several_hosts_need_a_secret() -> None:
    for place in places(2, 2, master="127.0.0.1:29500"):
        with pytest.raises(ValueError, match=r"head -c 32 /dev/urandom.*SIRTAKI_SECRET_FILE"):
            meeting.meet(place)


@pytest.mark.parametrize("given", [True, False])
def test_ranks_of_several_hosts_meet_in_a_folder(tmp_path: pathlib.Path, given: bool) -> None:
    rest = {"rendezvous": f"file:{tmp_path / 'job'}"} if given else {"home": str(tmp_path / "h")}
    met = meet_all(places(4, 2, job="slurm.box.17.0.0", **rest))
    assert met[0].secret is not None
    folder = met[0].notice.folder if met[0].notice else None
    assert folder is not None
    assert len(list(folder.iterdir())) == 1
    check(met)
    # The secret goes with rank 0, and so does a folder that nobody asked for.
    assert list(folder.iterdir()) == [] if given else not folder.exists()


def test_what_an_earlier_job_left_in_the_folder_is_not_believed(tmp_path: pathlib.Path) -> None:
    address = f"file:{tmp_path / 'job'}"
    stale = {"address": "tcp:127.0.0.1:1", "secret": bytes(32).hex()}
    FileStore(address).set("rank 0", json.dumps(stale).encode())
    check(meet_all(places(2, 2, rendezvous=address)))


def test_a_start_without_a_name_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"MPICH.*SIRTAKI_RENDEZVOUS=file:/folder"):
        meeting.meet(places(2, 2, by="MPICH's mpiexec")[0])


JOIN = "import sirtaki; sirtaki.init(); print(sirtaki.rank(), sirtaki.size())"
SCRIPT = ["sh", "-c", '"$@"; exit $?', "script"]


def hydras_rank(
    rank: int, *command: str, timeout: float, **variables: str
) -> subprocess.Popen[str]:
    local = {"MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2", "PMI_SIZE": "2"}
    place = {**local, "PMI_RANK": str(rank), "HOROVOD_START_TIMEOUT": str(timeout)}
    return subprocess.Popen(
        [*command, sys.executable, "-c", JOIN],
        env={**os.environ, **place, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ranks_without_a_name_in_common_meet_from_inside_wrapper_scripts() -> None:
    processes = [hydras_rank(0, timeout=30), hydras_rank(1, *SCRIPT, *SCRIPT, timeout=30)]
    ended = [process.communicate(timeout=50) for process in processes]
    assert [out for out, _ in ended] == ["0 2\n", "1 2\n"], ended


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_meets_nobody_says_what_to_set(rank: int) -> None:
    _, said = hydras_rank(rank, timeout=0.5).communicate(timeout=50)
    assert re.search(
        r"TimeoutError: .*MPICH's mpiexec gives .*SIRTAKI_RENDEZVOUS=file:/folder", said
    )


HOLD = """if True:
    import os, socket, sys
    os.setuid(65534)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind("\\0" + sys.argv[1])
    sock.listen()
    print("holding", flush=True)
    sys.stdin.read()
"""


@needs.root
@pytest.mark.parametrize("rank", [0, 1])
def test_a_place_that_another_user_holds_is_told_with_what_to_do(rank: int) -> None:
    job = f"held {os.getpid()} {rank}"
    name = hashlib.sha256(f"{os.geteuid()} {job}".encode()).hexdigest()[:32]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLD, f"sirtaki-{name}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        with pytest.raises(ValueError, match=r"the id 65534 holds .*SIRTAKI_RENDEZVOUS=file:"):
            meeting.meet(places(2, 1, job=job)[rank])
        holder.communicate()


def test_two_starts_with_one_name_are_told(tmp_path: pathlib.Path) -> None:
    first = places(2, 1, job=f"same {os.getpid()}")
    kept = meeting.meet(first[0])
    with pytest.raises(ValueError, match="another rank 0 of the same start"):
        meeting.meet(first[0])
    kept.close()


# ---- The network ----


def test_the_interfaces_of_this_host_are_known() -> None:
    found = {interface.name: interface.addresses for interface in network.interfaces()}
    assert "127.0.0.1" in found["lo"]
    names = {name for _, name in socket.if_nameindex()}
    assert set(found) <= names


def test_the_address_that_leads_to_the_others_comes_first() -> None:
    assert network.candidates([("127.0.0.1", 80)])[0] == "127.0.0.1"
    assert all(not a.startswith("fe80") for a in network.candidates())


def test_an_interface_can_be_forced() -> None:
    assert network.candidates([], ["lo"])[0] == "127.0.0.1"
    with pytest.raises(ValueError, match=r"'nope7' or 'nope8'.*lo \(127.0.0.1"):
        network.candidates([], ["nope7", "nope8"])


def test_hosts_may_have_different_ones_of_the_interfaces_named() -> None:
    assert network.candidates([], ["nope7", "lo"])[0] == "127.0.0.1"


@given(st.binary(max_size=200))
def test_any_bytes_of_the_kernel_can_be_read(data: bytes) -> None:
    network._messages(data)
    network._attributes(data)


def test_processes_that_an_mpirun_started_join() -> None:
    code = """if True:
        import numpy as np, sirtaki as hvd
        hvd.init()
        print(hvd.rank(), hvd.size(), int(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]))
        hvd.shutdown()
    """
    environ = {key: value for key, value in os.environ.items() if "MASTER" not in key}
    processes = []
    for rank in range(2):
        place = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
        place |= {"OMPI_COMM_WORLD_LOCAL_RANK": str(1 - rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        place |= {"PMIX_NAMESPACE": f"test-{os.getpid()}"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code],
                env={**environ, **place},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    assert [p.communicate(timeout=50)[0] for p in processes] == ["0 2 2\n", "1 2 2\n"]
