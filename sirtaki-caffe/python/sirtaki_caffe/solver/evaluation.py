"""Testing of a net on a solver's batches, divided among the processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch

from sirtaki_caffe.net.net import Net
from sirtaki_caffe.solver.detection import Detections, check_outputs, precision_lines
from sirtaki_caffe.solver.report import output_lines

if TYPE_CHECKING:
    from sirtaki_caffe.solver.solver import Solver


def own_batches(count: int, rank: int, size: int) -> int:
    """Return the number of `count` batches that a process runs."""
    return count // size + (rank < count % size)


class Sums:
    """The loss and the outputs of a net, summed over batches.

    Args:
        net: The net, whose blobs have their final shapes.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._counts = [net.blobs[name].data.numel() for name in net.outputs]
        self._totals = torch.zeros(1 + sum(self._counts), dtype=torch.float64)

    @property
    def numbers(self) -> list[float]:
        """Return the sums: of the loss, then of all numbers of the outputs."""
        return list(self._totals.tolist())

    def add(self, loss: float) -> list[float]:
        """Add the net's values after a forward pass, and return its loss."""
        parts = [torch.tensor([loss], dtype=torch.float64)]
        for name in self._net.outputs:
            parts.append(self._net.blobs[name].data.detach().double().flatten().cpu())
        row = torch.cat(parts)
        self._totals += row
        return list(row.tolist())

    def split(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return numbers, without that of the loss, by output."""
        rest = iter(numbers[1:])
        return [list(islice(rest, count)) for count in self._counts]


class Evaluation:
    """Runs the test nets of a solver.

    Args:
        solver: The solver.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver

    def run(self, index: int) -> None:
        """Test one net; sets `solver.stopped` if the user requests it meanwhile."""
        solver = self._solver
        solver.log("solver.cpp", f"Iteration {solver.iter}, Testing net (#{index})")
        net = solver.test_nets[index]
        net.share_weights(solver.net)
        if solver.param.eval_type == "detection":
            self._detect(net, solver.param.test_iter[index])
        else:
            self._average(net, solver.param.test_iter[index])

    def _average(self, net: Net, count: int) -> None:
        """Log the means of the outputs."""
        solver = self._solver
        sums = Sums(net)
        if not self._run_batches(net, count, lambda batch, loss: sums.add(loss)):
            return
        totals = solver.processes.sum(sums.numbers, "test")
        means = [total / count if count else float("nan") for total in totals]
        if solver.param.test_compute_loss:
            solver.log("solver.cpp", f"Test loss: {means[0]:g}")
        for line in output_lines("Test", net.outputs, sums.split(means), net.loss_weights):
            solver.log("solver.cpp", line)

    def _detect(self, net: Net, count: int) -> None:
        """Log the mean average precision of all processes' detections."""
        solver = self._solver
        processes = solver.processes
        check_outputs(net)
        found = {name: Detections() for name in net.outputs}
        losses: list[float] = []

        def add(batch: int, loss: float) -> None:
            losses.append(loss)
            for name, each in found.items():
                each.add(net.blobs[name].data.detach().cpu().numpy(), batch, processes.rank)

        if not self._run_batches(net, count, add):
            return
        if solver.param.test_compute_loss:
            (total,) = processes.sum([sum(losses)], "test")
            solver.log("solver.cpp", f"Test loss: {total / max(count, 1):g}")
        for name, each in found.items():
            each.join(processes.gather(each, f"detections.{name}"))

        def missing(label: int) -> None:
            if processes.is_first:
                solver.options.warn("solver.cpp", f"Missing true_pos for label: {label}")

        param = solver.param
        for line in precision_lines(
            found, param.ap_version, missing, of_each_class=param.show_per_class_result
        ):
            solver.log("solver.cpp", line)

    def _run_batches(self, net: Net, count: int, add: Callable[[int, float], object]) -> bool:
        """Run this process's part of the batches; return False if the user has stopped it.

        Args:
            net: The test net.
            count: The batches of all processes.
            add: Called for each with its number and the loss.
        """
        solver = self._solver
        size = solver.processes.size
        mine = own_batches(count, solver.processes.rank, size)
        for number in range(own_batches(count, 0, size)):
            request, _ = solver.agree(solver.options.requests(), 0.0)
            if request.snapshot:
                solver.snapshot()
            if request.stop:
                solver.stopped = True
                solver.log("solver.cpp", "Test interrupted.")
                return False
            if number < mine:
                with torch.no_grad():
                    add(number, float(net.forward()))
        return True
