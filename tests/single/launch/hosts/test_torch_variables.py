"""The variables of torch.distributed, which the launcher sets where they are unset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sirtaki.launch.hosts import torch_variables
from sirtaki.launch.hosts.torch_variables import free_port
from sirtaki.schedulers.start import PLACE_VARIABLES, completed, place_variables
from sirtaki.schedulers.table import find_start
from tests.single.launching import GRACE, Job, python

pytestmark = pytest.mark.job

NAMES = (
    *PLACE_VARIABLES,
    *("MASTER_ADDR", "MASTER_PORT", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"),
)
SHOW = f"import json, os; print(json.dumps({{n: os.environ.get(n) for n in {NAMES!r}}}))"
UNSET = dict.fromkeys(NAMES, "")
BESIDE_TORCH = """
import torch
import torch.distributed
import horovod.torch as hvd
hvd.init()
torch.distributed.init_process_group("gloo", init_method="env://")
value = torch.tensor([10.0 ** hvd.rank()])
torch.distributed.all_reduce(value)
print("torch:", value.item(), "ours:", hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
torch.distributed.destroy_process_group()
"""
# Without what our launcher has set, as programs with a cleaned environment are started.
ALONE = """
import os, subprocess, sys
kept = {n: v for n, v in os.environ.items() if not n.startswith("HOROVOD_")}
code = "import sirtaki as hvd; hvd.init(); print('size', hvd.size())"
subprocess.run([sys.executable, "-c", code], env=kept, check=True)
"""
INSIDE = f"""
import os, subprocess, sys
from tests.single.launching import HOROVODRUN
subprocess.run([*HOROVODRUN, "-np", "1", sys.executable, "-c", {SHOW!r}], check=True)
"""


@pytest.mark.parametrize(
    ("named", "store", "interface"),
    [
        (["127.0.1.1"], "tcp:127.0.0.1:5", "lo"),
        ([], "tcp:127.0.0.1:5", "lo"),
        (["192.0.2.1", "127.0.1.1"], "tcp:127.0.0.1:5", ""),
        (["127.0.1.1"], "unix:@job", ""),
    ],
)
def test_gloo_has_an_interface_where_the_hosts_name_leads_nowhere(
    named: list[str], store: str, interface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_variables, "routes", lambda *_: [(each, each) for each in named])
    assert torch_variables.gloo_interface(store) == interface


def shown(output: str) -> list[dict[str, str]]:
    """What the ranks have shown, in rank order."""
    return [json.loads(line[line.index("{") :]) for line in sorted(output.splitlines())]


@pytest.mark.slow
def test_a_torch_program_finds_its_own_ranks_beside_ours(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, *python(BESIDE_TORCH), **UNSET)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("torch: 11.0 ours: 2.0") == 2


def test_every_rank_has_its_place_and_all_of_them_one_port(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, *python(SHOW), **UNSET)
    first, second = shown(done.stdout)
    port = first.pop("MASTER_PORT")
    assert second.pop("MASTER_PORT") == port
    assert 1024 <= int(port) < 65536
    assert [tuple(first.values()), tuple(second.values())] == [
        ("0", "2", "0", "2", "0", "0", "0", "1", "127.0.0.1", "gloo", "gloo"),
        ("1", "2", "1", "2", "0", "0", "1", "1", "127.0.0.1", "gloo", "gloo"),
    ]


def test_where_torch_meets_stays_as_set_and_a_place_that_another_has_set_does_not(
    job: Job,
) -> None:
    # What a pod of one of Kubernetes' operators has, for all the ranks that are started there.
    given = {**UNSET, "MASTER_ADDR": "there", "RANK": "3", "WORLD_SIZE": "7", "LOCAL_RANK": "7"}
    done = job.run("-np", "1", *GRACE, "-x", "MASTER_PORT=77", *python(SHOW), **given)
    (place,) = shown(done.stdout)
    assert (place["MASTER_ADDR"], place["MASTER_PORT"]) == ("there", "77")
    assert (place["RANK"], place["WORLD_SIZE"], place["LOCAL_RANK"]) == ("0", "1", "0")


def test_a_place_is_completed_unless_another_contradicts_it() -> None:
    place = place_variables(5, 8, 1, 4, 1, 2)
    assert completed({}, place) == {**place, "SIRTAKI_SET_FOR_TORCH": ",".join(sorted(place))}
    of_torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert completed(of_torchrun, place) == {
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
        "GLOBAL_RANK": "5",
        "NNODES": "2",
        "SIRTAKI_SET_FOR_TORCH": "GLOBAL_RANK,GROUP_RANK,NNODES,NODE_RANK",
    }
    for other in ({"RANK": "4"}, {"WORLD_SIZE": "16"}):
        assert completed({**of_torchrun, **other}, place) == {}
        # Of the world before in an elastic job, or of a launcher of ours.
        ours = {**other, "SIRTAKI_SET_FOR_TORCH": ",".join(["MASTER_ADDR", *other])}
        assert completed(ours, place) | place == completed(ours, place)


def test_a_program_that_a_rank_starts_without_our_variables_is_a_world_of_one(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, *python(ALONE), **UNSET)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 1") == 2


def test_a_job_inside_a_rank_has_places_of_its_own(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, *python(INSIDE), PYTHONPATH=str(Path.cwd()), **UNSET)
    places = shown(done.stdout)
    assert [(place["RANK"], place["WORLD_SIZE"]) for place in places] == [("0", "1")] * 2
    assert len({place["MASTER_PORT"] for place in places}) == 2


def test_variables_that_a_user_or_torchrun_has_set_are_still_understood() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
    start = find_start({**environ, "SIRTAKI_SET_FOR_TORCH": ""})
    assert start is not None
    assert start.master == "a:29500"
    assert find_start({**environ, "SIRTAKI_SET_FOR_TORCH": "RANK,WORLD_SIZE"}) is None


def test_a_port_is_none_that_the_system_gives_away() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, given.split())
    if first <= 10000:
        pytest.skip("the system gives away every port")
    assert not first <= free_port() <= last
