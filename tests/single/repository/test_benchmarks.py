"""The benchmarks run, and tell targets met from targets missed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import needs

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
READS = ("benchmarks/", "python/sirtaki/observe/")

needs.package("torch")
# More than `benchmark` waits for a program.


def benchmark(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("targets")


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("summary")


@pytest.fixture
def mpi_jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("mpi_jobs")


def timings(size: int, **seconds: float) -> dict[int, dict[str, dict[str, float]]]:
    everyone = {"core": 1.0, "torch": 1.0, "Gloo": 3.0, "memcpy": 1.0, "Open MPI": 2.0, **seconds}
    return {size: {name: {"median": value} for name, value in everyone.items()}}


@pytest.mark.job
@pytest.mark.nightly
def test_programs_of_torch_distributed_are_measured_on_both_backends(
    tmp_path: Path, summary: ModuleType
) -> None:
    small = ("--rounds=1", "--steps=1", "--width=16", "--max-bytes=4", "--output", str(tmp_path))
    shown = benchmark("torch_distributed.py", *small)
    assert "all_reduce, 4 B" in shown
    cases = json.loads((tmp_path / "torch_distributed.json").read_text())["cases"]
    assert list(cases) == [
        "all_reduce, 4 B",
        "send, recv and back, 4 B",
        "DDP step",
        "FSDP2 step",
    ]
    assert all(set(by_name) >= {"Sirtaki", "Gloo"} for by_name in cases.values())
    assert "## torch.distributed, 2 ranks" in summary.write_summary(tmp_path).read_text()


def test_targets_of_torch_distributed_are_told_apart(targets: ModuleType) -> None:
    def case(ours: float, gloo: float, horovod: float = 1.0) -> dict[str, dict[str, float]]:
        seconds = {"Sirtaki": ours, "Gloo": gloo, "hvd.DistributedOptimizer": horovod}
        return {name: {"median": value} for name, value in seconds.items()}

    cases = {
        "all_reduce, 4 B": case(30e-6, 1.0),
        "all_reduce, 1 MiB": case(1.0, 2.4),
        "DDP step": case(1.06, 3.0),
        "FSDP2 step": case(1.0, 1.2),
    }
    checks = {check.target: check.met for check in targets.check_torch_distributed(cases)}
    assert checks == {
        "all_reduce, 1 MiB against Gloo at least 2.5": False,
        "DDP step against Gloo at least 2.2": True,
        "FSDP2 step against Gloo at least 1.2": True,
        "microseconds of all_reduce of 4 B at most 40": True,
        "DDP step against hvd.DistributedOptimizer at most 1.05": False,
    }


def test_targets_of_many_hosts_compare_with_the_links_and_with_all_to_all(
    targets: ModuleType,
) -> None:
    sums = {
        "4": {"chosen": {"median": 1.0}, "direct": {"median": 2.4}},
        # 30 MiB at 12.5 MB/s, and the headers of their frames, take 2.63 s.
        str(16 << 20): {"chosen": {"median": 3.0}, "direct": {"median": 4.0}},
    }
    checks = {check.target: check.met for check in targets.check_many({"sums": sums}, 12.5e6)}
    assert checks == {
        "16 hosts: 16 MiB against the links' bound at most 1.15": True,
        "16 hosts: 4 B against all with all at most 0.4": False,
    }


def test_targets_of_compressed_gradients_compare_with_float32(
    targets: ModuleType, summary: ModuleType, tmp_path: Path
) -> None:
    def taken(seconds: float, sent: float, loss: float) -> dict[str, float]:
        return {"median": seconds, "bytes": sent, "loss": loss}

    contenders = {"float32": taken(0.2, 1e6, 0.5), "int8": taken(0.1, 3.6e5, 0.504)}
    case = {"parameters": 61706, "steps": 300, "contenders": contenders}
    checks = {check.target: check.met for check in targets.check_compressed_step({"net": case})}
    assert checks == {
        "net: int8's loss off float32's, percent, at most 1": True,
        "net: bytes of int8 to float32's at most 0.35": False,
    }
    machine = dict.fromkeys(("cores", "cpu", "kernel", "load", "python"), 1)
    result = {
        "command": "this",
        "machine": {**machine, "cache_bytes": 1, "versions": {}},
        "cases": {"net": case},
        "targets": [],
    }
    (tmp_path / "compressed_step.json").write_text(json.dumps(result))
    shown = summary.write_summary(tmp_path).read_text()
    assert "| int8 | 100 ms | 0.50 | 360 | 0.36 | 0.5040 |" in shown


def test_targets_of_predictions_are_of_half_of_them_and_of_the_worst(
    targets: ModuleType, summary: ModuleType, tmp_path: Path
) -> None:
    def off(error: float) -> dict[str, float | str]:
        return {"measured": 1.0, "predicted": 1 + error, "error": error, "bound": "latency"}

    cases = {
        "2 hosts": {"exchanges": {"float32": off(0.03), "int8": off(0.21)}},
        "4 hosts": {"exchanges": {"float32": off(0.04)}},
    }
    checks = {check.target: check.met for check in targets.check_predict(cases)}
    assert checks == {
        "percent that half of 3 predictions are off at most 8": True,
        "percent that the worst is off at most 20": False,
    }
    machine = dict.fromkeys(("cores", "cpu", "kernel", "load", "python"), 1)
    result = {
        "command": "this",
        "machine": {**machine, "cache_bytes": 1, "versions": {}},
        "cases": cases,
        "targets": [],
    }
    (tmp_path / "predict.json").write_text(json.dumps(result))
    shown = summary.write_summary(tmp_path).read_text()
    assert "| 2 hosts | int8 | 1000 ms | 1210 ms | 21.0% | latency |" in shown


def test_the_best_rate_is_the_one_whose_worst_seed_learns_most(
    targets: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rare = importlib.import_module("low_communication")
    found = {0.004: [1.4, 1.4, 1.4], 0.008: [1.3, 1.32, 1.31], 0.016: [1.2, 2.0, 1.2]}
    trained: list[tuple[str, int, float, int]] = []

    def train(_: object, training: tuple[str, int, float, int], num_proc: int) -> object:
        trained.append(training)
        name, seed, rate, _steps = training
        return [{"loss": found[rate][seed] if name == "float32" else 1.325}] * num_proc

    monkeypatch.setattr(rare, "run", train)
    done = tmp_path / "trainings"
    learnt = rare.losses(2000, done)
    assert (learnt["rate"], learnt["float32"], learnt["DiLoCo"]) == (
        0.008,
        [1.3, 1.32, 1.31],
        [1.325] * 3,
    )
    assert [rate for _, _, rate, _ in trained].count(0.016) == 2
    first = len(trained)
    assert rare.losses(2000, done) == learnt
    assert len(trained) == first  # an interrupted run goes on where it ended


def test_targets_of_rare_exchanges_compare_with_the_synchronous_training(
    targets: ModuleType, summary: ModuleType, tmp_path: Path
) -> None:
    def contenders(**means: float) -> dict[str, dict[str, float]]:
        names = {"no_exchange": "no exchange", "float32": "float32", "int8": "int8"}
        sent = {"no_exchange": 0.0, "float32": 1e6, "int8": 2.6e5, "int4": 1.3e5, "DiLoCo": 2e3}
        return {
            names.get(name, name): {"mean": mean, "bytes": sent[name]}
            for name, mean in means.items()
        }

    cases = {
        "steps": {
            "parameters": 580000,
            "contenders": contenders(no_exchange=0.1, float32=0.3, DiLoCo=0.104),
        },
        "pair": {
            "parameters": 10**7,
            "contenders": contenders(
                no_exchange=1.0, float32=1.3, int8=1.1, int4=1.05, DiLoCo=1.04
            ),
        },
        "losses": {"steps": 2000, "float32": [1.5, 1.5, 1.5], "DiLoCo": [1.5, 1.52, 1.54]},
    }
    checks = {check.target: check.met for check in targets.check_low_communication(cases)}
    assert checks == {
        "float32's bytes a step to DiLoCo's at least 400": True,
        "DiLoCo's step of one without exchange at most 1.05": True,
        "DiLoCo's loss of the synchronous one at most 1.01": False,
        "speed-up of two hosts at 1 Gbit/s, int8 at least 1.9": False,
        "speed-up of two hosts at 1 Gbit/s, int4 at least 1.9": True,
        "speed-up of two hosts at 1 Gbit/s, DiLoCo at least 1.9": True,
    }
    machine = dict.fromkeys(("cores", "cpu", "kernel", "load", "python"), 1)
    result = {
        "command": "this",
        "machine": {**machine, "cache_bytes": 1, "versions": {}},
        "configuration": {"DiLoCo": {"sync_every": 64}},
        "cases": cases,
        "targets": [],
    }
    (tmp_path / "low_communication.json").write_text(json.dumps(result))
    shown = summary.write_summary(tmp_path).read_text()
    assert "| DiLoCo | 104 ms | 1.04 | 2.0 | 500 |" in shown
    assert "| DiLoCo | 1040 ms | 1.92 |" in shown
    assert "| DiLoCo | 1.5000 | 1.5200 | 1.5400 | 1.5200 |" in shown


@pytest.mark.job
@pytest.mark.nightly
def test_a_training_step_is_measured_on_two_ranks(tmp_path: Path, summary: ModuleType) -> None:
    output = ("--output", str(tmp_path))
    few = ("--worlds=1", "--rounds=1", "--steps=1")
    shown = benchmark("train_step.py", "--small-gradients", *few, *output)
    assert "160 gradients of 4 KB: 0.2 M parameters" in shown
    case = json.loads((tmp_path / "train_step.json").read_text())["cases"]["160 gradients of 4 KB"]
    assert case["parameters"] == 160 * 1024
    assert list(case["seconds"]) == ["memory kept", "memory given back"]
    for memory, seconds in case["seconds"].items():
        assert {"alone", "barrier only", "DDP, Gloo", "Sirtaki", "Sirtaki, bf16"} < set(seconds)
        assert {"Sirtaki, after backward", "grouped_allreduce_, Sirtaki"} < set(seconds)
        assert all(quantiles["median"] > 0 for quantiles in seconds.values())
        alone, ours = (seconds[name]["median"] for name in ("alone", "Sirtaki"))
        assert case["efficiency"][memory]["Sirtaki"] == alone / ours
    assert "| Sirtaki | " in summary.write_summary(tmp_path).read_text()


@pytest.mark.job
@pytest.mark.nightly
def test_overheads_are_measured(tmp_path: Path, summary: ModuleType) -> None:
    shown = benchmark("overheads.py", "--mib=1", "--rounds=1", "--output", str(tmp_path))
    assert "105 times init() and shutdown(), 2 ranks" in shown
    assert "init() on the links of the last world, 4 ranks" in shown
    tables = json.loads((tmp_path / "overheads.json").read_text())["tables"]
    assert {"Sum", "Adasum"} == set(tables["1 MiB of float32, 2 ranks"])
    submitted = tables["one number submitted and waited for, 1 rank"]
    assert {"inside the core", "C interface, with a callback"} == set(submitted)
    assert all(taken["median"] > 0 for table in tables.values() for taken in table.values())
    assert "| Adasum | " in summary.write_summary(tmp_path).read_text()


@pytest.mark.job
@pytest.mark.nightly
def test_starts_and_ends_are_measured_beside_other_launchers(
    tmp_path: Path, summary: ModuleType
) -> None:
    shown = benchmark("start.py", "--rounds=1", "--output", str(tmp_path))
    cases = json.loads((tmp_path / "start.json").read_text())["cases"]
    starts, ends, *_ = cases.values()
    assert {"horovodrun", "torchrun, Gloo"} <= set(starts)
    assert {"a rank of horovodrun", "the guardian", "a rank of torchrun"} <= set(ends)
    assert all(seconds > 0 for seconds in (*starts.values(), *ends.values()))
    assert "seconds from SIGKILL of a rank at most 0.35" in shown
    assert "| horovodrun | " in summary.write_summary(tmp_path).read_text()


@pytest.mark.job
@pytest.mark.slow
def test_allreduce_is_measured_beside_its_peers(
    tmp_path: Path, summary: ModuleType, mpi_jobs: ModuleType
) -> None:
    needs.package("mpi4py")
    others = list(mpi_jobs.other_mpis())
    arguments = ("--max-bytes=64", "--rounds=1", "--seconds=0.001", "--output", str(tmp_path))
    shown = benchmark("allreduce.py", "-np", "2", *arguments)
    assert "core at least 1 times as fast as Open MPI at every size" in shown
    result = json.loads((tmp_path / "allreduce-2ranks.json").read_text())
    assert list(result["timings"]) == ["4", "16", "64"]
    for by_name in result["timings"].values():
        ours = ["core", "numpy", "torch"]
        assert list(by_name) == [*ours, "Gloo", "Open MPI", *others, "memcpy"]
    assert "process_vm_readv refused: core at least 1 times as fast as Gloo at every size" in shown
    assert "| Bytes | core | numpy |" in summary.write_summary(tmp_path).read_text()


@pytest.mark.job
@pytest.mark.nightly
def test_messages_are_measured_beside_their_peers(tmp_path: Path, summary: ModuleType) -> None:
    needs.package("mpi4py")
    arguments = ("--max-bytes=16", "--rounds=1", "--no-hosts", "--output", str(tmp_path))
    shown = benchmark("pairs.py", *arguments)
    assert "4 B there and back, of Open MPI's time, at most 1.2" in shown
    result = json.loads((tmp_path / "pairs.json").read_text())
    for case in ("one host", "one host, process_vm_readv refused"):
        timings = result["cases"][case]
        assert list(timings) == ["4", "16"]
        assert all(
            list(by_name) == ["core", "numpy", "Open MPI", "Gloo"] for by_name in timings.values()
        )
    assert "| Bytes | core | numpy | Open MPI |" in summary.write_summary(tmp_path).read_text()


@pytest.mark.parametrize(
    ("gloo", "met", "measured"), [(2.5, True, "2.50 at 1 MiB"), (2.4, False, "2.40 at 1 MiB")]
)
def test_a_ratio_is_met_from_its_least_value_on(
    targets: ModuleType, gloo: float, met: bool, measured: str
) -> None:
    check = targets.check_allreduce(timings(1 << 20, Gloo=gloo), ranks=2, cores=2)[0]
    assert check.target == "torch at least 2.5 times as fast as Gloo from 1 MiB"
    assert (check.met, check.measured) == (met, measured)


def steps(**medians: float) -> dict[str, object]:
    """A case of train_step.py in which each contender takes that long."""
    seconds = {
        "barrier only": {"median": medians.get("barrier", 100.0)},
        "grouped_allreduce_, Sirtaki": {"median": medians.get("bytes", 20.0)},
        "Sirtaki, after backward": {"median": medians.get("after", 120.0)},
        "DDP, Gloo": {"median": medians.get("ddp", 300.0)},
        "Sirtaki": {"median": medians.get("ours", 120.0)},
    }
    return {"seconds": {"memory kept": seconds}}


@pytest.mark.parametrize(
    ("medians", "met"),
    [
        ({"ours": 124.0, "ddp": 285.2}, [True, True, True]),
        ({"ours": 127.0, "ddp": 300.0, "bytes": 30.0}, [False, True, True]),
        ({"ours": 125.0, "ddp": 300.0}, [True, False, True]),
        ({"ours": 120.0, "ddp": 275.0}, [True, True, False]),
    ],
)
def test_overlapping_is_to_cost_nothing(
    targets: ModuleType, medians: dict[str, float], met: list[bool]
) -> None:
    checks = targets.check_train_step({"MLP, 6 layers": steps(**medians), "other": steps(ours=1e9)})
    assert [check.met for check in checks] == met


def test_the_worst_size_decides(targets: ModuleType) -> None:
    both = {**timings(1 << 20, Gloo=9.0), **timings(4 << 20, Gloo=2.0)}
    assert targets.check_allreduce(both, 2, 2)[0].measured == "2.00 at 4 MiB"


def test_sizes_outside_a_target_do_not_count(targets: ModuleType) -> None:
    found = [check.target for check in targets.check_allreduce(timings(1024), 2, 2)]
    assert found == [
        "core at least 1 times as fast as Gloo at every size",
        "core at least 1 times as fast as Open MPI at every size",
    ]


@pytest.mark.parametrize(
    ("seconds", "ranks", "met"),
    [(1.05, 2, True), (1.06, 2, False), (1.29, 4, True), (1.31, 4, False)],
)
def test_the_fastest_of_all_mpis_is_the_measure(
    targets: ModuleType, seconds: float, ranks: int, met: bool
) -> None:
    taken = timings(64, core=seconds, MPICH=3.0, **{"Intel MPI": 1.0})
    [check] = [c for c in targets.check_allreduce(taken, ranks, cores=2) if "Intel MPI" in c.target]
    assert check.met is met


@pytest.mark.job
@pytest.mark.nightly
def test_the_pause_of_a_departure_is_measured(tmp_path: Path) -> None:
    benchmark("leaving.py", "--rounds=1", "--frameworks", "torch", "--output", str(tmp_path))
    cases = json.loads((tmp_path / "leaving.json").read_text())["cases"]
    assert list(cases) == ["torch, signal", "torch, host"]


def test_a_job_that_fails_ends_the_others(mpi_jobs: ModuleType) -> None:
    waits = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fails = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(SystemExit, match="exit status 3"):
        mpi_jobs.wait_for_all([waits, fails])
    assert waits.returncode is not None


@pytest.mark.parametrize(("ranks", "seconds", "met"), [(2, 29e-6, True), (2, 31e-6, False)])
def test_latency_is_checked(targets: ModuleType, ranks: int, seconds: float, met: bool) -> None:
    latency = targets.check_allreduce(timings(4, torch=seconds), ranks, cores=2)[-1]
    assert latency.target == "hvd.allreduce_ of 4 B within 30.0 us"
    assert latency.met is met


def test_latency_is_not_asked_of_more_ranks_than_cores(targets: ModuleType) -> None:
    found = targets.check_allreduce(timings(4), ranks=4, cores=2)
    assert not any("within" in check.target for check in found)
