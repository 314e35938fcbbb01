"""The training loop of a net."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sirtaki_caffe.net.batch_norm import engine_of_solver
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.parallel import GradientAverage, Processes, batch_statistics
from sirtaki_caffe.proto import text, weights
from sirtaki_caffe.solver import debug, fields, snapshots
from sirtaki_caffe.solver.evaluation import Evaluation
from sirtaki_caffe.solver.policies import Policy
from sirtaki_caffe.solver.report import Log, LossWatch, LossWindow, output_lines
from sirtaki_caffe.solver.updates import make_update


@dataclass(frozen=True)
class Request:
    """A user's request to a running solver."""

    stop: bool = False
    snapshot: bool = False


@dataclass(frozen=True)
class Options:
    """Settings from outside a solver's file.

    Args:
        engine: Overrides the engine of the file.
        dtype: The type of blobs and params.
        device: The device of the nets.
        keep_graphs: Whether blobs' gradients stay after a backward pass, as scripts expect.
        warn: Called with the name of a source file and a warning.
        requests: Returns the user's requests; called after iterations and before test batches.
        after_iteration: Called after each iteration, to show the progress.
    """

    engine: str = ""
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    keep_graphs: bool = False
    warn: Log = lambda source, text: None
    requests: Callable[[], Request] = Request
    after_iteration: Callable[[Solver], None] = lambda solver: None


class Solver:
    """Trains a net according to a SolverParameter.

    Args:
        param: The SolverParameter, upgraded.
        log: Called with the name of a source file and a line about an event.
        processes: The training processes; default: Sirtaki's if the script has called its `init`.
        options: The settings from outside the file.

    Raises:
        CaffeError: A field is invalid, or a net cannot be built.
    """

    def __init__(
        self,
        param: Any,
        log: Log,
        processes: Processes | None = None,
        options: Options | None = None,
    ) -> None:
        self.processes = processes or Processes.current()
        self.options = options or Options()
        self.log = log
        self.param = fields.with_place(param, self.processes.rank, self.processes.size)
        #: The number of completed iterations.
        self.iter = 0
        #: Whether `step` ended early at the user's request.
        self.stopped = False
        #: Called in each iteration: at its start, and when the gradients are complete.
        self.callbacks: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self.window = LossWindow(max(self.param.average_loss, 1))
        fields.check(self.param)
        self._show_param()
        if self.param.snapshot:
            self._check_snapshot_folder()
        self.policy = Policy(self.param, log)
        self._shared_seed = self.processes.seed(self.param.random_seed)
        self._closed = False
        self._shown_at = (time.monotonic(), 0)
        self._gradients = GradientAverage(self.processes)
        self._watch = LossWatch(self.options.warn)
        self._evaluation = Evaluation(self)
        self.net = self._train_net()
        self.test_nets: list[Net] = []
        try:
            self._add_test_nets()
            self.update = make_update(self.param, self.net.learnable, log)
            self.share_start()
        except BaseException:
            self.close()
            raise
        log("solver.cpp", "Solver scaffolding done.")

    def close(self) -> None:
        """Stop the nets' background threads."""
        if not self._closed:
            self._closed = True
            for net in (self.net, *self.test_nets):
                net.close()

    def load_weights(self, paths: Sequence[str]) -> None:
        """Load weights from files, by layer names.

        Raises:
            CaffeError: A file cannot be read, or does not match.
        """
        # Every process reads them: the number of a BatchNorm's blobs depends on its file.
        for path in paths:
            self.take_weights(weights.read_weights(path))

    def take_weights(self, layers: Sequence[weights.LayerWeights]) -> None:
        """Load weights by layer names; equal in all processes afterwards.

        Raises:
            CaffeError: They do not match.
        """
        before = len(self.net.learnable)
        for net in (self.net, *self.test_nets):
            net.load(layers, self.log)
        for net in self.test_nets:
            net.share_weights(self.net)  # a BatchNorm may have received a scale from the file
        if len(self.net.learnable) != before:
            self.update = make_update(self.param, self.net.learnable, self.log)
        self.share_start()

    def share_start(self) -> None:
        """Send process 0's weights to all processes."""
        tensors: dict[int, torch.Tensor] = {}
        for net in (self.net, *self.test_nets):
            for layer in net.layers:
                tensors |= {id(p.data): p.data for p in (param.owner for param in layer.params)}
        self.processes.broadcast(list(tensors.values()), "weights")

    def solve(self, resume: str = "") -> None:
        """Train to the end.

        Args:
            resume: A state to continue from.

        Raises:
            CaffeError: A file cannot be read or written, or the data is unusable.
        """
        self.log("solver.cpp", f"Solving {self.net.proto.name}")
        self.log("solver.cpp", f"Learning Rate Policy: {self.param.lr_policy}")
        self.stopped = False
        if self.param.snapshot_after_train:
            self._check_snapshot_folder()  # before training, not after hours of it
        if resume:
            self.restore(resume)
        self.step(self.param.max_iter - self.iter)
        interval = self.param.snapshot
        if self.param.snapshot_after_train and (not interval or self.iter % interval):
            self.snapshot()
        if self.stopped:
            self.log("solver.cpp", "Optimization stopped early.")
            return
        if self._is_due(self.param.display):
            with torch.set_grad_enabled(self.options.keep_graphs):
                loss = float(self.net.forward())
            self.window.add(self.processes.mean(loss, "loss"))
            self.log("solver.cpp", f"Iteration {self.iter}, loss = {self.window.mean:g}")
        if self._tests_now():
            self.test_all()
        self.log("solver.cpp", "Optimization Done.")

    def step(self, count: int) -> None:
        """Train for some iterations.

        Raises:
            CaffeError: The data is unusable, or a snapshot cannot be written.
        """
        self.policy.check()
        end = self.iter + count
        self._shown_at = (time.monotonic(), self.iter)
        while self.iter < end and not self.stopped:
            self.net.clear_diffs()
            if self._tests_now() and (self.iter > 0 or self.param.test_initialization):
                self.test_all()
                if self.stopped:
                    break
            request = self._iterate()
            interval = self.param.snapshot
            if request.snapshot or (interval and self.iter % interval == 0):
                self.snapshot()
            self.stopped = request.stop
            self.options.after_iteration(self)

    def apply_update(self) -> None:
        """End an iteration with the params' current gradients; called by all processes."""
        self._gradients.start("all", self.net.learnable)
        self._gradients.wait()
        self.update.compute(self.rate(), self.iter)
        self.update.subtract()
        self.iter += 1

    def agree(self, request: Request, loss: float) -> tuple[Request, float]:
        """Return any process's requests, and the mean loss; called by all of them."""
        values = [float(request.stop), float(request.snapshot), loss]
        stop, snapshot, total = self.processes.sum(values, "agreement")
        return Request(stop > 0, snapshot > 0), total / self.processes.size

    def test_all(self) -> None:
        """Test with all test nets."""
        with self.processes.averaged(batch_statistics(self.net.layers), "statistics"):
            for index in range(len(self.test_nets)):
                if not self.stopped:
                    self._evaluation.run(index)

    def snapshot(self) -> None:
        """Write the weights and the state; all call it, and process 0 writes.

        Raises:
            CaffeError: A file cannot be written.
        """
        snapshots.write(self)

    def restore(self, path: str) -> None:
        """Go on from a state.

        Raises:
            CaffeError: A file cannot be read, or is not of this solver.
        """
        snapshots.restore(self, path)

    def rate(self) -> float:
        """Return the learning rate of this iteration."""
        return self.policy.rate(self.iter, self.window.mean)

    def _check_snapshot_folder(self) -> None:
        if self.processes.is_first:
            fields.check_snapshot_folder(self.param)

    def _show_param(self) -> None:
        shown = text.text_of(self.param)
        self.log("solver.cpp", f"Initializing solver from parameters: \n{shown}")

    def _net_of(self, source: fields.NetSource) -> Net:
        options = self.options
        return Net(
            source.proto,
            phase=source.proto.state.phase,
            world=self.processes.world,
            engine=options.engine or engine_of_solver(self.param),
            dtype=options.dtype,
            # Dropout must differ among processes; their weights are made equal later.
            seed=self._shared_seed + self.processes.rank,
            shared_seed=self._shared_seed,
            device=options.device,
            keep_graphs=options.keep_graphs,
            log=self.log,
            warn=options.warn,
            file=source.file,
        )

    def _train_net(self) -> Net:
        source = fields.train_net(self.param)
        self.log("solver.cpp", f"Creating training net from {source.where}")
        return self._net_of(source)

    def _add_test_nets(self) -> None:
        for index, source in enumerate(fields.test_nets(self.param)):
            self.log("solver.cpp", f"Creating test net (#{index}) specified by {source.where}")
            self.test_nets.append(self._net_of(source))
            self.test_nets[-1].share_weights(self.net)

    def _is_due(self, interval: int) -> bool:
        return bool(interval) and self.iter % interval == 0

    def _tests_now(self) -> bool:
        interval = self.param.test_interval
        return bool(interval) and (self.iter - self.param.test_offset) % interval == 0

    def _iterate(self) -> Request:
        """Run one iteration; return the requests of any process's user."""
        for on_start, _ in self.callbacks:
            on_start()
        loss = self._forward_backward()
        self._gradients.wait()
        for _, on_gradients in self.callbacks:
            on_gradients()
        request, mean = self.agree(self.options.requests(), loss)
        self.window.add(mean)
        self._watch.see(self.iter, mean)
        if self._is_due(self.param.display):
            self._show()
        rate = self.rate()
        if self._is_due(self.param.display):
            self.log("sgd_solver.cpp", f"Iteration {self.iter}, lr = {rate:g}")
        self.update.compute(rate, self.iter)
        if self.param.debug_info:
            debug.show_update(self.net, self.log)
        self.update.subtract()
        self.iter += 1
        return request

    def _forward_backward(self) -> float:
        """Return the mean loss of `iter_size` batches; accumulate their gradients."""
        total = 0.0
        for left in reversed(range(self.param.iter_size)):
            after_layer = None if left else self._gradients.after_layer
            if self.param.debug_info:
                total += debug.forward_backward(self.net, self.log, after_layer)
            else:
                total += float(self.net.forward())
                self.net.backward(after_layer=after_layer)
        return total / int(self.param.iter_size)

    def _show(self) -> None:
        """Log the loss and the outputs, as means over the processes."""
        display = self.param.display
        now, (then, first) = time.monotonic(), self._shown_at
        lapse, done = now - then, self.iter - first
        speed = done / lapse if lapse > 0 else 0.0
        self.log(
            "solver.cpp",
            f"Iteration {self.iter} ({speed:g} iter/s, {lapse:g}s/{display} iters), "
            f"loss = {self.window.mean:g}",
        )
        self._shown_at = (now, self.iter)
        values = [self.net.blobs[name].data.flatten().tolist() for name in self.net.outputs]
        means = self.processes.sum([v[0] for v in values if len(v) == 1], "outputs")
        found = iter(means)
        size = self.processes.size
        values = [[next(found) / size] if len(v) == 1 else v for v in values]
        for line in output_lines("Train", self.net.outputs, values, self.net.loss_weights):
            self.log("solver.cpp", line)
