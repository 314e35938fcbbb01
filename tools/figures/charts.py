"""Which charts there are, and what each takes from the results of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
Result = dict[str, Any]
# Rows of numbers: what was measured, and the number of each contender.
Rows = list[tuple[str, dict[str, float]]]


@dataclass(frozen=True)
class Chart:
    """Numbers to be drawn; `rows` by size for a chart of curves, by case for one of bars.

    unit: what the numbers are. one: what the number 1 stands for, in a chart of ratios.
    speed: higher is better.
    """

    source: Result
    unit: str
    rows: Rows
    one: str = ""
    curves: bool = False
    speed: bool = False

    @property
    def label(self) -> str:
        return f"{self.unit}; {'higher' if self.speed else 'lower'} is better"

    @property
    def series(self) -> list[str]:
        return list(dict.fromkeys(name for _, numbers in self.rows for name in numbers))

    @property
    def origin(self) -> str:
        """How it was measured, and where."""
        machine = self.source["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        cores = f"{machine['cores']} cores of {machine['cpu']}"
        return f"Measured by {self.source['command']} on {cores}; {versions}."


def load(name: str) -> Result:
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratios(cases: list[tuple[str, float, dict[str, float]]]) -> Rows:
    return [
        (name, {each: seconds / one for each, seconds in times.items()})
        for name, one, times in cases
    ]


def train_step() -> Chart:
    result = load("train_step")
    names = {
        "MLP, 6 layers": "MLP, 101 M parameters",
        "20 convolutions": "20 convolutions",
        "160 gradients of 4 KB": "160 small gradients",
    }
    cases = []
    for key, name in names.items():
        seconds = result["cases"][key]["seconds"]["memory kept"]
        times = {"Sirtaki": seconds["Sirtaki"], "DDP over Gloo": seconds["DDP, Gloo"]}
        medians = {each: taken["median"] for each, taken in times.items()}
        cases.append((name, seconds["alone"]["median"], medians))
    unit = "time of a step on 2 processes, in steps of one process alone"
    return Chart(result, unit, ratios(cases), one="one process")


def allreduce(ranks: int) -> Chart:
    result = load(f"allreduce-{ranks}ranks")
    names = {
        "core": "Sirtaki, core",
        "torch": "hvd.allreduce_",
        "Gloo": "Gloo",
        "Open MPI": "Open MPI",
        "MPICH": "MPICH",
        "Intel MPI": "Intel MPI",
    }
    rows: Rows = []
    for size, by_name in result["timings"].items():
        taken = {names[key]: by_name[key]["median"] for key in names if by_name.get(key)}
        rows.append((size, {name: int(size) / seconds / 1e9 for name, seconds in taken.items()}))
    return Chart(result, "GB/s of payload", rows, curves=True, speed=True)


def frameworks() -> Chart:
    tensorflow, jax = load("tensorflow_step"), load("jax_step")

    def case(name: str, result: Result, peer: str) -> tuple[str, float, dict[str, float]]:
        step = {key.removeprefix("step, "): taken for key, taken in result["timings"].items()}
        times = {"Sirtaki": step["Sirtaki"]["median"], "the framework's own": step[peer]["median"]}
        return name, step["one process"]["median"], times

    cases = [
        case("TensorFlow", tensorflow, "MultiWorkerMirroredStrategy"),
        case("JAX", jax, "JAX's processes"),
    ]
    unit = "time of a step on 2 processes, in steps of one process alone"
    both = {**tensorflow, "command": f"{tensorflow['command']} and {jax['command']}"}
    return Chart(both, unit, ratios(cases), one="one process")


def torch_distributed() -> Chart:
    result = load("torch_distributed")
    rows: Rows = [
        (name, {"times as fast as Gloo": taken["Gloo"]["median"] / taken["Sirtaki"]["median"]})
        for name, taken in result["cases"].items()
    ]
    return Chart(
        result,
        "speed of a group of sirtaki, in speeds of one of gloo",
        rows,
        one="Gloo",
        speed=True,
    )


def hosts() -> Chart:
    result = load("hosts")
    names = {"core": "Sirtaki, core", "torch": "hvd.allreduce_", "Gloo": "Gloo"}
    names["stream"] = "a plain stream"
    rows: Rows = [
        (
            f"{int(size) >> 20} MiB",
            {new: int(size) / by_name[key]["median"] / 1e9 for key, new in names.items()},
        )
        for size, by_name in result["cases"]["allreduce, 2 hosts"]["sums"].items()
        if int(size) >> 20
    ]
    return Chart(result, "GB/s of payload", rows, speed=True)


def slow_links() -> Chart:
    result = load("hosts")
    steps = result["cases"]["training, 3 hosts at 1 Gbit/s"]["steps"]
    order = ("Sirtaki", "DDP, Gloo", "DDP, Gloo, a bucket a layer", "Sirtaki, bf16", "alone")
    rows: Rows = [
        (
            f"{size} of gradients",
            {
                name: steps[key]["median"] * 1e3
                for name in order
                if (key := f"{size}: {name}") in steps
            },
        )
        for size in ("10 MB", "40 MB")
    ]
    return Chart(result, "milliseconds of a step", rows)


# Of the contenders those that a reader chooses among; the results have all.
_COMPRESSIONS = (
    *("float32", "bf16", "int8", "int4", "DiLoCo, every 50 steps"),
    *("DDP, Gloo", "PowerSGD, Gloo"),
)


def compressed() -> Chart:
    result = load("compressed_step")
    rows: Rows = [
        (
            name.removeprefix("transformer, 4 hosts at "),
            {each: case["contenders"][each]["median"] * 1e3 for each in _COMPRESSIONS},
        )
        for name, case in result["cases"].items()
        if name.startswith("transformer")
    ]
    return Chart(result, "milliseconds of a step", rows)


def rare_exchanges() -> Chart:
    result = load("low_communication")
    names = {"steps": "4 hosts at 100 Mbit/s", "pair": "2 hosts at 1 Gbit/s"}
    rows: Rows = [
        (
            f"{name}, {result['cases'][case]['parameters'] / 1e6:.1f} M parameters",
            {
                contender: taken["mean"] * 1e3
                for contender, taken in result["cases"][case]["contenders"].items()
            },
        )
        for case, name in names.items()
    ]
    return Chart(result, "milliseconds of a step, mean", rows)


def start() -> Chart:
    result = load("start")
    cases = result["cases"]["2 ranks, from the command to its end after an allreduce"]
    names = ("horovodrun", "mpirun, mpi4py", "torchrun, Gloo")
    return Chart(result, "seconds", [(name, {"seconds": cases[name]}) for name in names])


def control_plane() -> Chart:
    result = load("control_plane")
    rows: Rows = [
        (
            f"{world['ranks']:,} ranks",
            {
                "reports merged on their way": world["cached_seconds"] * 1e6,
                "one report a rank": world["one_by_one_seconds"] * 1e6,
            },
        )
        for world in result["worlds"]
    ]
    return Chart(result, "microseconds of rank 0 for one operation", rows)


def caffe() -> Chart:
    result = load("caffe_step")
    cases = []
    for name, contenders in result["cases"].items():
        peer = next((each for each in ("PyTorch by hand", "OpenCV") if each in contenders), None)
        if peer is not None:
            taken = {f"sirtaki-caffe against {peer}": contenders["Sirtaki"]["median"]}
            cases.append((name, contenders[peer]["median"], taken))
    return Chart(result, "time, in times of the other", ratios(cases), one="the other")


CHARTS: dict[str, Callable[[], Chart]] = {
    "train-step": train_step,
    "allreduce-2": lambda: allreduce(2),
    "allreduce-4": lambda: allreduce(4),
    "frameworks": frameworks,
    "torch-distributed": torch_distributed,
    "hosts": hosts,
    "slow-links": slow_links,
    "compressed": compressed,
    "rare-exchanges": rare_exchanges,
    "start": start,
    "control-plane": control_plane,
    "caffe": caffe,
}
