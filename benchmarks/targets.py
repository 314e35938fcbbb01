"""What the measurements are to show."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any

from models import BACKWARD_SHARE, COMPUTE_SECONDS, LAYERS
from mpi_jobs import INTEL_MPI, MPICH
from peers import GLOO, OPEN_MPI
from refused import REFUSED
from small_sums_rank import IN_A_ROW
from torch_distributed_rank import ALL_REDUCE, FSDP2, HOROVOD, MOVES, ROUND_TRIP
from torch_distributed_rank import DDP as DDP_STEP
from train_rank import AFTER, BARRIER, DDP, GROUPED, OURS

from sirtaki.observe.contenders import COPY
from sirtaki.observe.measure import Timings, show_bytes, show_seconds

KEPT = "memory kept"
GIVEN_BACK = "memory given back"
BEFORE, NOW = "before", "now"

_MIB = 1 << 20
_LATENCY_SECONDS = 30e-6


@dataclass(frozen=True)
class Check:
    """A target and the worst that was measured towards it."""

    target: str
    measured: str
    met: bool

    def line(self) -> str:
        return f"{'met   ' if self.met else 'MISSED'}  {self.target}: {self.measured}"


@dataclass(frozen=True)
class _Ratio:
    """How many times as fast as the fastest peer a level of ours is to be, in a range of sizes."""

    ours: str
    peers: tuple[str, ...]
    least: float
    smallest: int = 0
    largest: int = 1 << 62

    def check(self, timings: Timings) -> Check | None:
        """Return None when nothing of these sizes, or not all of the peers, was measured."""
        ratios = {
            min(by_name[peer]["median"] for peer in self.peers) / by_name[self.ours]["median"]: size
            for size, by_name in timings.items()
            if self.smallest <= size <= self.largest and by_name.keys() >= {self.ours, *self.peers}
        }
        if not ratios:
            return None
        worst = min(ratios)
        where = f"from {show_bytes(self.smallest)}" if self.smallest else "at every size"
        if self.largest < 1 << 62:
            where = f"at {show_bytes(self.smallest)} to {show_bytes(self.largest)}"
        peer = self.peers[0] if len(self.peers) == 1 else f"the first of {', '.join(self.peers)}"
        return Check(
            f"{self.ours} at least {self.least:g} times as fast as {peer} {where}",
            f"{worst:.2f} at {show_bytes(ratios[worst])}",
            worst >= self.least,
        )


_MPIS = (OPEN_MPI, MPICH, INTEL_MPI)
_RATIOS = (
    _Ratio("torch", (GLOO,), 2.5, _MIB),
    _Ratio("core", (OPEN_MPI,), 1.15, _MIB, 16 * _MIB),
    _Ratio("core", (OPEN_MPI,), 1.7, 64 * _MIB),
    _Ratio("core", (COPY,), 0.8, 64 * _MIB),
    _Ratio("core", (GLOO,), 1.0),
    _Ratio("core", (OPEN_MPI,), 1.0),
)
_ON_CORES = _Ratio("core", (*_MPIS, GLOO), 0.95)
_ON_FEWER_CORES = _Ratio("core", _MPIS, 0.77, 4, 4096)


def check_allreduce(timings: Timings, ranks: int, cores: int) -> list[Check]:
    """Return the targets that these sizes and ranks can tell about."""
    ratios = (*_RATIOS, _ON_CORES) if ranks <= cores else (*_RATIOS, _ON_FEWER_CORES)
    checks = [check for ratio in ratios if (check := ratio.check(timings)) is not None]
    if ranks <= cores and 4 in timings:
        latency = timings[4]["torch"]["median"]
        text = f"hvd.allreduce_ of 4 B within {show_seconds(_LATENCY_SECONDS)}"
        checks.append(Check(text, show_seconds(latency), latency <= _LATENCY_SECONDS))
    return checks


def check_refused(timings: Timings) -> list[Check]:
    """Return the target where no process may read another one's memory."""
    check = _Ratio("core", (GLOO,), 1.0).check(timings)
    return [] if check is None else [replace(check, target=f"{REFUSED}: {check.target}")]


def check_train_step(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of training with gradients so large that reducing them takes time."""
    checks = []
    for name, case in cases.items():
        if not name.startswith("MLP"):
            continue
        for memory, seconds in case["seconds"].items():
            step = {contender: taken["median"] for contender, taken in seconds.items()}
            title, ours = f"{name}, {memory}: Sirtaki against", step[OURS]
            bound = step[BARRIER] + 1.2 * step[GROUPED]
            checks.append(at_most(f"{title} reducing after backward", 1.05, ours / step[AFTER]))
            checks.append(at_most(f"{title} barrier and 1.2 times the bytes", 1, ours / bound))
            if memory == KEPT:
                checks.append(at_least(f"{title} DDP over Gloo", 2.3, step[DDP] / ours))
    return checks


def check_hosts(cases: dict[str, Any], bytes_per_second: float) -> list[Check]:
    """Return the targets of a world over several hosts; the rate is that of the slow links."""
    sums = cases["allreduce, 2 hosts"]["sums"]
    large, small = sums[str(64 * _MIB)], sums["4"]
    steps = {n: q["median"] for n, q in cases["training, 3 hosts at 1 Gbit/s"]["steps"].items()}
    # No gradient is there before the forward pass and the first layer's backward pass are over.
    # Then two thirds of the bytes cross each link twice, 1448 of the 1514 bytes of every frame.
    waits = COMPUTE_SECONDS * (1 - BACKWARD_SHARE + BACKWARD_SHARE / LAYERS)
    bound = waits + 40e6 * 2 * 2 / 3 / (bytes_per_second * 1448 / 1514)
    return [
        at_least("64 MiB against a stream of as many bytes", 0.8, _ratio(large, "stream")),
        at_least("64 MiB against Gloo, as tensors", 1.5, _ratio(large, GLOO, "torch")),
        at_least("4 B against Gloo, as tensors", 2.0, _ratio(small, GLOO, "torch")),
        *(
            at_least(f"{title}: hierarchical against flat", 1.5, _flat(case["sums"]))
            for title, case in cases.items()
            if title.startswith("hierarchy")
        ),
        at_least("efficiency with 10 MB", 0.95, steps["10 MB: alone"] / steps["10 MB: Sirtaki"]),
        at_most("40 MB against the links' bound", 1.10, steps["40 MB: Sirtaki"] / bound),
        at_least(
            "efficiency with 40 MB in bf16",
            0.85,
            steps["40 MB: alone"] / steps["40 MB: Sirtaki, bf16"],
        ),
    ]


def check_many(case: dict[str, Any], bytes_per_second: float) -> list[Check]:
    """Return the targets of sums over 16 hosts, each of whose links has that rate."""
    sums = case["sums"]
    small = {name: quantiles["median"] for name, quantiles in sums["4"].items()}
    large = sums[str(16 * _MIB)]["chosen"]["median"]
    bound = 2 * 15 / 16 * 16 * _MIB / (bytes_per_second * 1448 / 1514)
    return [
        at_most("16 hosts: 16 MiB against the links' bound", 1.15, large / bound),
        at_most("16 hosts: 4 B against all with all", 0.4, small["chosen"] / small["direct"]),
    ]


def check_compressed_step(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of trainings with compressed gradients."""
    checks = []
    for title, case in cases.items():
        by_name = case["contenders"]
        plain, encoded = by_name["float32"], by_name["int8"]
        off = abs(encoded["loss"] / plain["loss"] - 1)
        checks += [
            at_most(f"{title}: int8's loss off float32's, percent,", 1.0, 100 * off),
            at_most(
                f"{title}: bytes of int8 to float32's", 0.35, encoded["bytes"] / plain["bytes"]
            ),
        ]
    return checks


def check_predict(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of predictions: percents by which they are off what was measured."""
    off = [100 * one["error"] for case in cases.values() for one in case["exchanges"].values()]
    return [
        at_most(f"percent that half of {len(off)} predictions are off", 8, statistics.median(off)),
        at_most("percent that the worst is off", 20, max(off)),
    ]


def check_low_communication(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of trainings with rare exchanges."""
    steps, pair = cases["steps"]["contenders"], cases["pair"]["contenders"]
    learnt = cases["losses"]
    loss = statistics.mean(learnt["DiLoCo"]) / statistics.mean(learnt["float32"])
    alone = 2 * pair["no exchange"]["mean"]
    return [
        at_least(
            "float32's bytes a step to DiLoCo's",
            400,
            steps["float32"]["bytes"] / steps["DiLoCo"]["bytes"],
        ),
        at_most(
            "DiLoCo's step of one without exchange",
            1.05,
            steps["DiLoCo"]["mean"] / steps["no exchange"]["mean"],
        ),
        at_most("DiLoCo's loss of the synchronous one", 1.01, loss),
        *(
            at_least(f"speed-up of two hosts at 1 Gbit/s, {name}", 1.9, alone / pair[name]["mean"])
            for name in ("int8", "int4", "DiLoCo")
        ),
    ]


def check_small_sums(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of small sums, one after another, of an earlier version's time."""
    return [
        at_most(
            f"{hosts}, {show_bytes(int(size))}, of the time {BEFORE}",
            0.7,
            by_way[IN_A_ROW][NOW] / by_way[IN_A_ROW][BEFORE],
        )
        for hosts, by_size in cases.items()
        for size, by_way in by_size.items()
        if int(size) <= 4 << 10
    ]


def check_reproducible(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of steps with exact sums, of the times without."""
    most = [1.8, 1.25, 1.7, 1.05]
    checks = []
    for limit, (title, table) in zip(most, cases.items(), strict=True):
        plain, exact, *_ = (taken["median"] for taken in table.values())
        checks.append(at_most(title, limit, exact / plain))
    return checks


def check_balance(measured: dict[str, Any]) -> list[Check]:
    """Return the target of shares that fit two ranks of different speeds."""
    speed = measured["speeds"]["balance=True"]
    return [at_least("of the speed of both ranks alone", 0.95, speed / sum(measured["alone"]))]


def check_pairs(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of messages that were measured, on one host and on two."""
    checks = []
    for size, most in (("4", 1.2), (str(64 * _MIB), 1.0)):
        if size in cases["one host"]:
            taken = 1 / _ratio(cases["one host"][size], OPEN_MPI)
            what = f"{show_bytes(int(size))} there and back, of Open MPI's time,"
            checks.append(at_most(what, most, taken))
    if REFUSED in cases:
        checks += check_refused({int(size): taken for size, taken in cases[REFUSED].items()})
    if large := cases.get("two hosts", {}).get(str(64 * _MIB)):
        what = "64 MiB between two hosts against a stream"
        checks.append(at_least(what, 0.95, _ratio(large, "stream")))
    return checks


def check_torch_distributed(cases: dict[str, Any]) -> list[Check]:
    """Return the targets of programs of torch.distributed that these cases can tell about."""
    least = {
        **{f"{ALL_REDUCE}, {size} MiB": 2.5 for size in (1, 16, 64)},
        f"{ROUND_TRIP}, 4 B": 2.0,
        f"{ROUND_TRIP}, 64 MiB": 2.0,
        **{f"{name}, 16 MiB": 2.0 for name in MOVES},
        DDP_STEP: 2.2,
        FSDP2: 1.2,
    }
    checks = [
        at_least(f"{name} against Gloo", factor, _ratio(cases[name], GLOO, OURS))
        for name, factor in least.items()
        if name in cases
    ]
    if small := cases.get(f"{ALL_REDUCE}, 4 B"):
        microseconds = small[OURS]["median"] * 1e6
        checks.append(at_most(f"microseconds of {ALL_REDUCE} of 4 B", 40, microseconds))
    step = _ratio(cases[DDP_STEP], OURS, HOROVOD)
    return [*checks, at_most(f"{DDP_STEP} against {HOROVOD}", 1.05, step)]


def _flat(sums: dict[str, Any]) -> float:
    by_name = sums[str(64 * _MIB)]
    return by_name["flat"]["median"] / by_name["hierarchical"]["median"]


def _ratio(by_name: dict[str, Any], peer: str, ours: str = "core") -> float:
    return by_name[peer]["median"] / by_name[ours]["median"]


def at_least(what: str, least: float, measured: float) -> Check:
    return Check(f"{what} at least {least:g}", f"{measured:.2f}", measured >= least)


def at_most(what: str, most: float, measured: float) -> Check:
    return Check(f"{what} at most {most:g}", f"{measured:.2f}", measured <= most)
