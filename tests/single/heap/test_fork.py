"""Forks and executed programs of a process that has the shared heap."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirtaki.core.world.shared_heap import LIBRARY
from tests.single.heap.programs import run_heap

pytestmark = [pytest.mark.job, pytest.mark.slow]

# Two tensors of a parent, and how it finds them after its children have done what they like.
_TENSORS = """
import torch
data = torch.arange(1 << 20, dtype=torch.float32)
other = torch.full((1 << 20,), 7.0)
assert shared(data.data_ptr()) and shared(other.data_ptr())
def report():
    print(torch.equal(data, torch.arange(1 << 20, dtype=torch.float32)), other.unique().tolist(),
          shared(data.data_ptr()))
"""


def test_a_fork_reads_what_it_inherits_and_its_writes_are_its_own() -> None:
    code = (
        _TENSORS
        + """
pid = os.fork()
if pid == 0:
    inherited = bool(data.sum() > 0) and other.sum().item() == 7 << 20
    data.zero_()
    other.fill_(9)
    os._exit(0 if inherited and data.sum() == 0 and other.sum().item() == 9 << 20 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
report()
"""
    )
    assert run_heap(code).splitlines() == ["0", "True [7.0] True"]


def test_a_fork_frees_what_it_inherits_and_allocates_elsewhere() -> None:
    code = (
        _TENSORS
        + """
pid = os.fork()
if pid == 0:
    del data
    mine = [torch.full((1 << 20,), float(i)) for i in range(20)]
    right = all(each.sum().item() == i << 20 for i, each in enumerate(mine))
    grown = realloc(other.data_ptr(), 8 * MIB)
    kept = ctypes.cast(grown, ctypes.POINTER(ctypes.c_float))[0] == 7.0
    alone = not any(shared(each.data_ptr()) for each in mine) and not shared(grown)
    os._exit(0 if right and kept and alone and figures()["forked"] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
report()
"""
    )
    assert run_heap(code).splitlines() == ["0", "True [7.0] True"]


def test_a_fork_keeps_the_interpreters_tables_and_arrays_whatever_its_parent_does() -> None:
    code = """
import numpy
table = list(range(10_000_000))
array = numpy.full(1 << 20, 7.0)
assert sys.getsizeof(table) > 64 * MIB
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(reader, 1)
    right = all(table[number] == number for number in range(0, len(table), 4097))
    os._exit(0 if right and (array == 7).all() else 1)
array[:] = 3
del table
other = [numpy.full(40 * MIB, 238, numpy.uint8) for _ in range(3)]
os.write(writer, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), array[0])
"""
    assert run_heap(code).split() == ["0", "3.0"]


def test_a_fork_copies_nothing() -> None:
    code = """
def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) // 1024
for block in [malloc(32 * MIB) for _ in range(4)] + [data(32 * MIB) for _ in range(4)]:
    ctypes.memset(block, 1, 32 * MIB)
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(writer, str(private()).encode())
    os._exit(0)
print(int(os.read(reader, 9)) < 32)
os.waitpid(pid, 0)
"""
    assert run_heap(code) == "True"


# A parent whose fork looks at a block when it is told to, and says what it sees.
_LOOKING = """
block = data(2 * MIB)
ctypes.memset(block, 1, 2 * MIB)
told, tell = os.pipe()
def seen():
    return sorted({*ctypes.string_at(block, 2 * MIB)})
pid = os.fork()
if pid == 0:
    ctypes.memset(block, 5, MIB)
    os.read(told, 1)
    print(seen(), flush=True)
    os._exit(0)
def look():
    os.write(tell, b"x")
    os.waitpid(pid, 0)
"""


def test_a_fork_never_reads_what_its_parent_writes_after_it_has_freed_a_block() -> None:
    code = (
        _LOOKING
        + """
free(block)
for _ in range(8):
    other = data(2 * MIB)
    ctypes.memset(other, 9, 2 * MIB)
    print(other == block)
look()
other = data(2 * MIB)
print(other == block)
"""
    )
    assert run_heap(code).splitlines() == [*["False"] * 8, "[1, 5]", "True"]


def test_a_fork_sees_what_its_parent_writes_to_a_living_block_where_it_has_not_written() -> None:
    code = _LOOKING + "ctypes.memset(block, 9, 2 * MIB)\nlook()\nprint(seen())"
    assert run_heap(code).splitlines() == ["[5, 9]", "[9]"]


@pytest.mark.root
def test_where_forks_cannot_be_counted_what_they_inherit_is_kept_for_ever() -> None:
    code = (
        """
import subprocess
unshare = ctypes.CDLL(None, use_errno=True).unshare
if unshare(0x08000000):  # CLONE_NEWIPC
    raise OSError(ctypes.get_errno())
open("/proc/sys/kernel/shmmni", "w").write("0")
"""
        + _LOOKING
        + """
free(block)
look()
print(data(2 * MIB) == block, figures()["held_bytes"] // MIB)
"""
    )
    assert run_heap(code).splitlines() == ["[1, 5]", "False 2"]


def test_threads_that_allocate_do_not_stop_a_fork() -> None:
    code = """
import threading
ending = threading.Event()
def work():
    while not ending.is_set():
        free(data(2 * MIB))
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads:
    each.start()
codes = []
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        free(data(2 * MIB))
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
ending.set()
for each in threads:
    each.join()
print(codes == [0] * 30)
"""
    assert run_heap(code) == "True"


def test_workers_of_a_data_loader_write_into_tensors_that_they_inherit() -> None:
    code = (
        _TENSORS
        + """
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, row):
        data[row] = -1.0
        other.mul_(2)
        return other[row] * 0 + row
rows = torch.cat(list(DataLoader(Rows(), batch_size=4, num_workers=2)))
print(rows.tolist() == list(range(64)))
report()
"""
    )
    assert run_heap(code).splitlines() == ["True", "True [7.0] True"]


def test_workers_of_a_data_loader_read_rows_that_their_parent_has_freed() -> None:
    code = """
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __init__(self):
        self.rows = torch.arange(1 << 20, dtype=torch.float32).reshape(64, -1)
    def __len__(self):
        return 64
    def __getitem__(self, row):
        return self.rows[row]
data = Rows()
address, whole = data.rows.data_ptr(), data.rows.clone()
batches = iter(DataLoader(data, batch_size=4, num_workers=2))
del data.rows
later = [torch.full((1 << 20,), -1.0) for _ in range(4)]
print(torch.equal(torch.cat(list(batches)), whole), shared(address))
del batches
print(torch.ones(1 << 20).data_ptr() == address)
"""
    assert run_heap(code).splitlines() == ["True False", "True"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torch_multiprocessing_passes_tensors(method: str) -> None:
    code = f"""
import torch
import torch.multiprocessing as mp
def work(tensor, queue):
    tensor.add_(1)
    queue.put(tensor.sum().item())
    queue.put(torch.full((1 << 20,), 3.0).sum().item())
if __name__ == "__main__":
    context = mp.get_context("{method}")
    queue = context.Queue()
    tensor = torch.ones(1 << 20).share_memory_()
    child = context.Process(target=work, args=(tensor, queue))
    child.start()
    print(queue.get(), queue.get(), tensor.sum().item())
    child.join()
    print(child.exitcode)
"""
    # A spawned child imports the program, which must be a file for that.
    wrapped = f"""
import pathlib, runpy, tempfile
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "program.py")
    file.write_text({code!r})
    sys.argv = [str(file)]
    runpy.run_path(str(file), run_name="__main__")
"""
    assert run_heap(wrapped).splitlines() == [f"{2 << 20}.0 {3 << 20}.0 {2 << 20}.0", "0"]


_IN_A_CHILD = """
import subprocess
child = "import os; maps = open('/proc/self/maps').read(); " \\
    "print(os.environ.get('LD_PRELOAD'), 'sirtaki' in maps)"
print(subprocess.run([sys.executable, "-S", "-c", child], capture_output=True, text=True,
                     check=True).stdout.strip())
"""


def test_programs_that_a_rank_executes_do_not_inherit_the_heap() -> None:
    assert run_heap(_IN_A_CHILD) == "None False"


def test_what_the_user_preloads_is_inherited_as_ever() -> None:
    (other,) = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.rpartition("/")[2].startswith("libm.so")
    }
    for preload in (f"{other}:{LIBRARY}", f"{LIBRARY} {other}"):
        assert run_heap(_IN_A_CHILD, preload=preload) == f"{other} False"


def test_a_shell_before_the_rank_hands_the_heap_on() -> None:
    code = f"""
import subprocess
program = "print('libsirtaki_heap' in open('/proc/self/maps').read())"
line = ["sh", "-c", 'true; "$0" -c "$1"; true', sys.executable, program]
preload = {{**os.environ, "LD_PRELOAD": "{LIBRARY}"}}
print(subprocess.run(line, env=preload, capture_output=True, text=True, check=True).stdout.strip())
"""
    assert run_heap(code) == "True"
