"""What each of several processes does in tests of `test_processes`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

import caffe
import sirtaki.torch as hvd
from caffe_tests.places import weights
from sirtaki_caffe.commands.main import main
from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.text import read_solver
from sirtaki_caffe.solver.solver import Solver


def statistics() -> None:
    """BatchNorm's blobs in training, in a test and in a snapshot."""
    solver = Solver(
        read_solver("normed_solver.prototxt"), lambda source, text: None, Processes.join()
    )
    (norm,) = (layer for layer in solver.net.layers if layer.name == "bn1")
    solver.step(3)
    own = [param.data.clone() for param in norm.params[:3]]
    means = [hvd.allreduce(value, op=hvd.Average) for value in own]
    assert not torch.equal(own[0], means[0]), "processes have seen the same data"
    solver.snapshot()
    hvd.barrier()
    for value, saved in zip(means, weights(Path("normed_iter_3.caffemodel"))["bn1"], strict=True):
        torch.testing.assert_close(value, torch.from_numpy(saved).reshape(value.shape))
    seen = []
    test_net = solver.test_nets[0]
    (tested,) = (layer for layer in test_net.layers if layer.name == "bn1")
    forward = tested.forward

    def watched(bottoms: list[torch.Tensor]) -> list[torch.Tensor]:
        seen.append([param.data.clone() for param in tested.params[:3]])
        return forward(bottoms)

    tested.forward = watched
    solver.test_all()
    assert len(seen) == 3
    for values in seen:
        assert all(torch.equal(a, b) for a, b in zip(values, means, strict=True))
    assert all(torch.equal(p.data, v) for p, v in zip(norm.params[:3], own, strict=True))
    solver.close()
    print("statistics")


def update() -> None:
    """The loop that a script writes by itself: `apply_update` ends each iteration."""
    hvd.init()
    solver = caffe.SGDSolver("normed_solver.prototxt")
    weights, bias = solver.net.params["ip2"]
    weights.data[...] = 0
    weights.diff[...] = 2 * hvd.rank()
    bias.diff[...] = hvd.rank()
    solver.apply_update()
    assert solver.iter == 1
    # base_lr, and what weight_decay adds to nothing.
    assert np.allclose(weights.data, -0.05), weights.data
    solver.engine.close()
    print("update")


def orders() -> None:
    """One process looks at weights and gradients, in order then, and the other does not."""
    hvd.init()
    solver = caffe.SGDSolver("normed_solver.prototxt")
    if hvd.rank() == 0:
        assert all(
            b.data.size == b.diff.size for blobs in solver.net.params.values() for b in blobs
        )
    solver.step(3)
    for number, param in enumerate(solver.net.engine.learnable):
        if param.learns:
            mine = param.data.detach()
            mean = hvd.allreduce(mine, op=hvd.Average, name=f"orders.{number}")
            torch.testing.assert_close(mine, mean, rtol=1e-6, atol=1e-7)
    solver.engine.close()
    print("orders")


def signalled() -> None:
    """Train until one process has sent itself the signal that the file `signalled` names."""
    rank, name = Path("signalled").read_text().split()
    number = signal.Signals[name]
    hvd.init()

    def send() -> None:
        # Only a process that trains has a handler of its own for both.
        while not callable(signal.getsignal(signal.SIGHUP)):
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), number)
        if number == signal.SIGHUP:
            while not list(Path().glob("*.solverstate")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    if hvd.rank() == int(rank):
        threading.Thread(target=send, daemon=True).start()
    code = main(["train", "--solver=lenet_solver.prototxt", "--logtostderr"])
    print(f"ended with {code}")
    sys.exit(code)
