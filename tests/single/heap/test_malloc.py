"""Under the shared heap: the functions that give tensors their memory, and those that stay."""

from __future__ import annotations

import pytest

from tests.single.heap.programs import run_heap


def test_large_blocks_with_the_alignment_of_data_are_shared_and_aligned() -> None:
    code = """
p = P()
print(posix_memalign(p, 1 << 16, MIB), p.value % (1 << 16), shared(p.value))
for alignment in (64, 4096, 2 * MIB):
    for call in (aligned_alloc, memalign):
        q = call(alignment, 3 * MIB)
        print(shared(q), usable(q) // MIB, q % alignment)
"""
    assert run_heap(code).splitlines() == ["0 0 True", *["True 3 0"] * 6]


@pytest.mark.parametrize(
    "call",
    [
        "malloc(8 * MIB)",
        "calloc(MIB, 8)",
        "realloc(None, 8 * MIB)",
        "realloc(malloc(100), 8 * MIB)",
        "aligned_alloc(32, 8 * MIB)",
        "memalign(64, MIB - 64)",
        "memalign(4 * MIB, 8 * MIB)",
        "valloc(8 * MIB)",
    ],
)
def test_every_other_block_is_that_of_the_c_library(call: str) -> None:
    assert run_heap(f"p = {call}\nprint(shared(p), figures()['live_allocations'])") == "False 0"


def test_arrays_of_numpy_are_not_in_the_heap_unless_they_are_asked_for() -> None:
    code = """
import numpy, sirtaki
plain, wanted = numpy.ones(1 << 20), sirtaki.empty(1 << 20)
print(shared(plain.ctypes.data), shared(wanted.ctypes.data))
"""
    assert run_heap(code) == "False True"


@pytest.mark.parametrize("call", ["realloc(p, {})", "reallocarray(p, {}, 1)"])
@pytest.mark.parametrize("after", ["1000", "2 * MIB", "9 * MIB"])
def test_realloc_moves_a_block_of_the_heap_to_the_c_library(call: str, after: str) -> None:
    code = f"""
p = data(2 * MIB)
text = bytes(i * 31 % 251 for i in range(MIB)) * 2
ctypes.memmove(p, text, len(text))
q = {call.format(after)}
least = min(len(text), {after})
print(ctypes.string_at(q, least) == text[:least], shared(q), figures()["live_allocations"])
"""
    assert run_heap(code) == "True False 0"


def test_realloc_to_nothing_frees() -> None:
    code = "print(realloc(data(MIB), 0), figures()['live_allocations'])"
    assert run_heap(code) == "None 0"


def test_what_cannot_be_is_refused_as_by_the_c_library() -> None:
    code = """
import errno
most = (1 << 64) - 1
p = P()
print(aligned_alloc(64, most), errno.errorcode[ctypes.get_errno()])
print(errno.errorcode[posix_memalign(p, 65, MIB)], errno.errorcode[posix_memalign(p, 64, most)])
held = data(MIB)
print(realloc(held, most), shared(held))
"""
    assert run_heap(code).splitlines() == ["None ENOMEM", "EINVAL ENOMEM", "None True"]


def test_free_leaves_errno_alone() -> None:
    code = """
p = data(64 * MIB)
ctypes.memset(p, 1, 64 * MIB)
ctypes.set_errno(77)
free(p)
print(ctypes.get_errno(), figures()["returned_bytes"] > 0)
"""
    assert run_heap(code, SIRTAKI_HEAP_KEEP="0") == "77 True"


@pytest.mark.slow
@pytest.mark.job
def test_tensors_are_shared_without_a_change_of_the_program() -> None:
    code = """
import torch
t = torch.ones(1 << 20)
u = t.add(1)
print(*(shared(p) for p in (t.data_ptr(), u.data_ptr())), u.sum().item())
"""
    assert run_heap(code) == "True True 2097152.0"


def test_steps_that_use_the_same_sizes_again_touch_no_new_pages() -> None:
    code = """
import resource
def step():
    for size in (5, 9, 14, 9, 30):
        blocks.append(data(size * 800_000))
        ctypes.memset(blocks[-1], 1, size * 800_000)
    while blocks:
        free(blocks.pop())
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = []
for _ in range(3):
    step()
before = faults()
for _ in range(10):
    step()
# The blocks of a step lie on more than 13000 pages.
print(faults() - before < 1000)
"""
    assert run_heap(code) == "True"


def test_a_block_that_is_freed_twice_harms_nobody() -> None:
    code = """
p = data(MIB)
free(p)
free(p)
q, r = data(MIB), data(MIB)
print(q != r, figures()["live_allocations"])
"""
    assert run_heap(code) == "True 2"


def test_the_arena_is_in_no_core_dump_of_a_process_or_its_forks() -> None:
    code = """
data(MIB)
def is_left_out():
    maps = open("/proc/self/smaps").read().split("memfd:sirtaki-heap")[1:]
    return all("dd" in each.split("VmFlags:")[1].splitlines()[0].split() for each in maps)
pid = os.fork()
if pid == 0:
    os._exit(0 if is_left_out() else 1)
print(is_left_out(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_heap(code) == "True 0"
