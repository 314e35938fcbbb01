"""Solvers for scripts: `caffe.SGDSolver` and similar classes, `caffe.get_solver`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.text import read_solver
from sirtaki_caffe.pycaffe import mode
from sirtaki_caffe.pycaffe.net import Net
from sirtaki_caffe.solver.fields import placed
from sirtaki_caffe.solver.solver import Options
from sirtaki_caffe.solver.solver import Solver as Engine


class Solver:
    """Trains the net of a solver's file, of the type that the file names.

    Args:
        solver_file: The solver's text.

    Raises:
        CaffeError: A file cannot be read, or a net cannot be built.

    Attributes:
        net: The trained net.
        test_nets: The test nets.
    """

    #: The type of the class; None: the file's.
    type: ClassVar[str | None] = None

    def __init__(self, solver_file: str | Path) -> None:
        self._file = Path(solver_file)
        param = read_solver(self._file)
        if self.type is not None:
            param.type = self.type
        if param.random_seed < 0:
            param.random_seed = mode.next_seed() or -1
        with placed(self._file):
            processes = Processes.current()
            options = Options(keep_graphs=True, warn=mode.warn if processes.is_first else _log)
            self.engine = Engine(param, _log, processes, options)
        self.net = Net.of(self.engine.net)
        self.test_nets = [Net.of(net) for net in self.engine.test_nets]

    @property
    def iter(self) -> int:
        """The number of completed iterations."""
        return self.engine.iter

    @property
    def param(self) -> object:
        """The SolverParameter."""
        return self.engine.param

    def step(self, iters: int) -> None:
        """Train for some iterations."""
        with placed(self._file):
            self.engine.step(iters)

    def solve(self, resume_file: str | Path | None = None) -> None:
        """Train to the end, from a state if given."""
        with placed(self._file):
            self.engine.solve(str(resume_file or ""))

    def snapshot(self) -> None:
        """Write the weights and the state."""
        self.engine.snapshot()

    def restore(self, state_file: str | Path) -> None:
        """Continue from a state."""
        self.engine.restore(str(state_file))

    @property
    def lr(self) -> float:
        """The learning rate of the next iteration."""
        return self.engine.rate()

    def add_callback(
        self, on_start: Callable[[], object], on_gradients_ready: Callable[[], object]
    ) -> None:
        """Call functions in each iteration of `step` and `solve`.

        Args:
            on_start: Called before the net runs.
            on_gradients_ready: Called when the weights' gradients are complete, before the update.
        """
        self.engine.callbacks.append((on_start, on_gradients_ready))

    def share_weights(self, net: Net) -> None:
        """Make a net use the weights of the trained one, in the same memory."""
        net.share_with(self.net)

    def apply_update(self) -> None:
        """Change the weights by their gradients, which ends an iteration.

        With several processes, all call it, and it averages the gradients first.
        """
        with placed(self._file):
            self.engine.apply_update()


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum."""

    type = "SGD"


class NesterovSolver(Solver):
    """Nesterov's accelerated gradient."""

    type = "Nesterov"


class AdaGradSolver(Solver):
    """AdaGrad."""

    type = "AdaGrad"


class RMSPropSolver(Solver):
    """RMSProp."""

    type = "RMSProp"


class AdaDeltaSolver(Solver):
    """AdaDelta."""

    type = "AdaDelta"


class AdamSolver(Solver):
    """Adam."""

    type = "Adam"


def get_solver(solver_file: str | Path) -> Solver:
    """Return the solver of a file, of the type in the file.

    Raises:
        CaffeError: As for `Solver`.
    """
    return Solver(solver_file)


def _log(source: str, text: str) -> None:
    """Discard log lines: scripts print what they need."""
    del source, text
