"""What a script can do in a world of one, on NumPy and PyTorch, without the compiled core."""

import os
import sys

import numpy as np
import pytest
import torch

import sirtaki as hvd
import sirtaki.torch as torch_hvd
from sirtaki import _core


def numpy_collectives() -> None:
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    rows = np.arange(6.0).reshape(3, 2)
    for op in (hvd.Sum, hvd.Average, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):
        np.testing.assert_array_equal(hvd.allreduce(rows, op=op), rows)
    np.testing.assert_array_equal(hvd.allreduce(rows, op=hvd.Sum, prescale_factor=3), 3 * rows)
    for result in (hvd.allgather(rows), hvd.broadcast(rows, 0), hvd.reducescatter(rows)):
        np.testing.assert_array_equal(result, rows)
    received, splits = hvd.alltoall(rows, splits=[2])
    np.testing.assert_array_equal(received, rows[:2])
    assert splits.tolist() == [2]
    np.testing.assert_array_equal(hvd.gather(rows, 0), rows)
    np.testing.assert_array_equal(hvd.reduce(rows, 0), rows)
    np.testing.assert_array_equal(hvd.scatter(np.empty(2), [np.ones(2)], 0), np.ones(2))
    first, second = hvd.grouped_allreduce([rows, np.ones(1)])
    assert (first.shape, second.shape) == ((3, 2), (1,))
    array = np.arange(3.0)
    assert hvd.synchronize(hvd.allreduce_async_(array)) is array
    hvd.barrier()
    assert hvd.join() == 0
    assert hvd.broadcast_object({"a": 1}, 0) == {"a": 1}
    assert hvd.allgather_object(5) == [5]


def messages() -> None:
    received = np.empty(3)
    waiting = hvd.irecv(received, 0, tag=4)
    hvd.send(np.arange(3.0), 0, tag=4)
    hvd.synchronize(waiting)
    np.testing.assert_array_equal(received, np.arange(3.0))
    with pytest.raises(hvd.HorovodInternalError, match="that it has not sent"):
        hvd.recv(received, 0)


def process_sets() -> None:
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(np.ones(1))
    hvd.init(process_sets="dynamic")
    own = hvd.add_process_set([0])
    assert own.process_set_id == 1
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), process_set=own), np.ones(2))
    assert hvd.remove_process_set(own)


def torch_training() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch_hvd.broadcast_parameters(model.state_dict(), 0)
    torch_hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer = torch_hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    before = model.bias.detach().clone()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.bias.detach(), before - 0.4)
    for dtype in (torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.complex64):
        tensor = torch.tensor([1, 0, 3]).to(dtype)
        assert torch.equal(torch_hvd.allreduce(tensor, op=torch_hvd.Sum), tensor)
    assert torch.equal(torch_hvd.allgather(torch.ones(2, 2)), torch.ones(2, 2))


def what_is_refused() -> None:
    with pytest.raises(AttributeError, match="which has no Completions: use Linux"):
        _ = _core.Completions
    hvd.shutdown()
    os.environ["HOROVOD_TIMELINE"] = "timeline.json"
    with pytest.raises(ValueError, match="writes no timeline"):
        hvd.init()
    del os.environ["HOROVOD_TIMELINE"]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "none"}
    with pytest.raises(ValueError, match="a world of one rank, and 2 are asked for"):
        hvd.init()
    from sirtaki.launch.cli import horovodrun

    if sys.platform != "linux":
        assert horovodrun(["-np", "2", "python", "x.py"]) == 2


def main() -> None:
    assert _core.__file__.endswith("_core.py")
    hvd.init()
    numpy_collectives()
    messages()
    process_sets()
    torch_training()
    what_is_refused()
    print("all of it works")


if __name__ == "__main__":
    main()
