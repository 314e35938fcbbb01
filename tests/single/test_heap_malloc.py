"""malloc's family under the shared heap: large blocks are shared, and every function is itself."""

from __future__ import annotations

import pytest

from tests.single.heap_programs import run_heap


@pytest.mark.parametrize(
    "call",
    [
        "malloc(MIB)",
        "calloc(MIB // 8, 8)",
        "realloc(None, MIB)",
        "realloc(malloc(100), MIB)",
        "reallocarray(None, MIB // 8, 8)",
        "aligned_alloc(64, MIB)",
        "memalign(4096, MIB)",
        "memalign(2 * MIB, 3 * MIB)",
        "valloc(MIB)",
        "pvalloc(MIB - 1)",
    ],
)
def test_a_large_block_is_shared_whichever_function_gives_it(call: str) -> None:
    assert run_heap(f"p = {call}\nprint(shared(p), usable(p) >= MIB - 1, p % 64)") == "True True 0"


def test_posix_memalign_gives_shared_blocks_and_aligns_them() -> None:
    code = """
p = P()
print(posix_memalign(p, 1 << 16, MIB), p.value % (1 << 16), shared(p.value))
"""
    assert run_heap(code) == "0 0 True"


def test_small_blocks_are_those_of_the_c_library() -> None:
    code = "print(*(shared(p) for p in (malloc(MIB - 1), calloc(MIB - 1, 1), memalign(64, 4096))))"
    assert run_heap(code) == "False False False"


def test_an_alignment_beyond_that_of_huge_pages_is_the_c_librarys() -> None:
    code = "p = memalign(4 * MIB, MIB); print(p % (4 * MIB), shared(p))"
    assert run_heap(code) == "0 False"


def test_calloc_gives_zeros_where_others_have_written() -> None:
    code = """
p = malloc(2 * MIB)
ctypes.memset(p, 7, 2 * MIB)
free(p)
q = calloc(2, MIB)
print(p == q, ctypes.string_at(q, 2 * MIB) == bytes(2 * MIB))
"""
    assert run_heap(code) == "True True"


@pytest.mark.parametrize(
    ("before", "after", "is_shared"),
    [
        (1000, "2 * MIB", True),
        ("2 * MIB", 1000, False),
        ("2 * MIB", "9 * MIB", True),
        ("9 * MIB", "2 * MIB", True),
    ],
)
def test_realloc_keeps_the_contents_in_every_direction(
    before: object, after: object, is_shared: bool
) -> None:
    code = f"""
wall = malloc(MIB)
before, after = {before}, {after}
p = malloc(before)
behind = malloc(MIB)
text = bytes(i * 31 % 251 for i in range(1000)) * (before // 1000)
ctypes.memmove(p, text, len(text))
q = realloc(p, after)
least = min(len(text), after)
print(ctypes.string_at(q, least) == text[:least], shared(q))
"""
    assert run_heap(code) == f"True {is_shared}"


def test_realloc_grows_where_a_block_is_as_long_as_there_is_room() -> None:
    code = "p = malloc(MIB); print(all(realloc(p, n * MIB) == p for n in range(2, 50)))"
    assert run_heap(code) == "True"


def test_realloc_to_nothing_frees() -> None:
    code = "print(realloc(malloc(MIB), 0), figures()['live_allocations'])"
    assert run_heap(code) == "None 0"


def test_what_cannot_be_is_refused_as_by_the_c_library() -> None:
    code = """
import errno
most = (1 << 64) - 1
p = P()
for call in (lambda: malloc(most), lambda: calloc(most, 2), lambda: reallocarray(None, most, 2),
             lambda: pvalloc(most)):
    ctypes.set_errno(0)
    print(call(), errno.errorcode[ctypes.get_errno()])
print(errno.errorcode[posix_memalign(p, 3, MIB)], errno.errorcode[posix_memalign(p, 64, most)])
"""
    assert run_heap(code).splitlines() == ["None ENOMEM"] * 4 + ["EINVAL ENOMEM"]


def test_free_leaves_errno_alone() -> None:
    code = """
p = malloc(64 * MIB)
ctypes.memset(p, 1, 64 * MIB)
ctypes.set_errno(77)
free(p)
print(ctypes.get_errno(), figures()["returned_bytes"] > 0)
"""
    assert run_heap(code, SIRTAKI_HEAP_KEEP="0") == "77 True"


@pytest.mark.slow
@pytest.mark.job
def test_arrays_and_tensors_are_shared_without_a_change_of_the_program() -> None:
    code = """
import numpy as np, torch
a, t = np.zeros((1024, 1024), np.float32), torch.ones(1 << 20)
u = t.add(1)
print(*(shared(p) for p in (a.ctypes.data, t.data_ptr(), u.data_ptr())), a.sum(), u.sum().item())
"""
    assert run_heap(code) == "True True True 0.0 2097152.0"


def test_steps_that_use_the_same_sizes_again_touch_no_new_pages() -> None:
    code = """
import resource, numpy as np
def step():
    arrays = [np.ones(size * 100_000) for size in (5, 9, 14, 9, 30)]
    arrays[1] = arrays[0][:1000] + 1
    return sum(each.size for each in arrays)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
before = faults()
for _ in range(10):
    step()
# The arrays of a step lie on more than 13000 pages.
print(faults() - before < 1000)
"""
    assert run_heap(code) == "True"


def test_a_block_that_is_freed_twice_harms_nobody() -> None:
    code = """
p = malloc(MIB)
free(p)
free(p)
q, r = malloc(MIB), malloc(MIB)
print(q != r, figures()["live_allocations"])
"""
    assert run_heap(code) == "True 2"


def test_the_arena_is_in_no_core_dump() -> None:
    code = """
malloc(MIB)
maps = open("/proc/self/smaps").read().split("memfd:sirtaki-heap")[1]
print("dd" in next(line for line in maps.splitlines() if line.startswith("VmFlags")).split())
"""
    assert run_heap(code) == "True"
