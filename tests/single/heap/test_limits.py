"""The shared heap where something is missing, wrong or full, and what it does not do in time."""

from __future__ import annotations

import ctypes.util
import resource
import subprocess
from pathlib import Path

import pytest

from sirtaki.core.world.shared_heap import LIBRARY
from tests import needs
from tests.single.heap.programs import run_heap

pytestmark = pytest.mark.job

_SAY = """
p = data(MIB)
ctypes.memset(p, 1, MIB)
print(shared(p), ctypes.string_at(p, MIB) == bytes([1]) * MIB)
print(_core.heap_line())
"""


def said(preload: str = str(LIBRARY), **variables: str) -> list[str]:
    return run_heap(_SAY, preload, **variables).splitlines()


def test_a_heap_that_works_says_how_large_it_is() -> None:
    assert said(SIRTAKI_HEAP_SPAN=str(64 << 20)) == [
        "True True",
        "shared heap: an arena of 64 MiB",
    ]


def test_a_full_arena_gives_way_to_the_ordinary_heap() -> None:
    code = """
blocks = [data(MIB) for _ in range(12)]
print([shared(p) for p in blocks].count(True), figures()["fallbacks"])
for p in blocks:
    ctypes.memset(p, 1, MIB)
    free(p)
print(shared(data(8 * MIB)))
"""
    assert run_heap(code, SIRTAKI_HEAP_SPAN=str(8 << 20)).splitlines() == ["8 4", "True"]


@pytest.mark.parametrize("value", ["much", "-1", "1.5", "12MiB", "0x10", "99999999999999999999999"])
@pytest.mark.parametrize("name", ["SIRTAKI_HEAP_KEEP", "SIRTAKI_HEAP_SPAN"])
def test_nonsense_is_named_and_the_default_holds(name: str, value: str) -> None:
    works, line = said(**{name: value})
    assert works == "True True"
    assert line.endswith(f"MiB; {name}='{value}' is no number of bytes, and the default holds")


def test_what_is_kept_is_as_much_as_was_said() -> None:
    code = """
p = data(64 * MIB)
ctypes.memset(p, 1, 64 * MIB)
free(p)
print(figures()["kept_bytes"] // MIB, figures()["returned_bytes"] // MIB)
"""
    assert run_heap(code, SIRTAKI_HEAP_KEEP=str(16 << 20)) == "16 48"


def test_memory_that_goes_back_is_no_longer_resident() -> None:
    code = """
def resident():
    status = open("/proc/self/status").read()
    return int(status.split("RssShmem:")[1].split()[0]) // 1024
p = data(64 * MIB)
ctypes.memset(p, 1, 64 * MIB)
full = resident()
free(p)
print(full >= 64, resident() < 8)
"""
    assert run_heap(code, SIRTAKI_HEAP_KEEP="0") == "True True"


def test_a_limit_on_files_leaves_the_ordinary_heap_and_is_named() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    works, line = run_heap(_SAY, prepare=limit).splitlines()
    assert works == "False True"
    assert line.startswith("shared heap: none; ")
    assert "ulimit -f" in line


def test_a_limit_on_addresses_leaves_the_ordinary_heap_and_is_named() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    works, line = run_heap(_SAY, prepare=limit).splitlines()
    assert works == "False True"
    assert "addresses are limited (ulimit -v); SIRTAKI_HEAP_SPAN=BYTES" in line
    span = str(256 << 20)
    assert run_heap(_SAY, prepare=limit, SIRTAKI_HEAP_SPAN=span).startswith("True")


def test_a_system_without_files_in_memory_leaves_the_ordinary_heap_and_is_named() -> None:
    def limit() -> None:
        # No descriptor is left for one.
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    code = """
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print(shared(data(MIB)), _core.heap_line())
"""
    said = run_heap(code, prepare=limit)
    assert said.startswith("False shared heap: none; the file in memory cannot be made (")


@pytest.fixture(scope="module")
def other_allocator(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with a malloc of its own, as jemalloc is."""
    folder = tmp_path_factory.mktemp("allocator")
    source, library = folder / "other.c", folder / "libother.so"
    source.write_text(
        "#include <stddef.h>\n"
        "void *__libc_malloc(size_t), *__libc_realloc(void *, size_t);\n"
        "void *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);\n"
        "void __libc_free(void *);\n"
        "void *malloc(size_t n) { return __libc_malloc(n); }\n"
        "void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }\n"
        "void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }\n"
        "void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }\n"
        "void *aligned_alloc(size_t a, size_t n) { return __libc_memalign(a, n); }\n"
        "int posix_memalign(void **p, size_t a, size_t n)\n"
        "{ *p = __libc_memalign(a, n); return *p ? 0 : 12; }\n"
        "void free(void *p) { __libc_free(p); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.mark.parametrize("order", ["{other}:{ours}", "{ours}:{other}"])
def test_another_allocator_wins_and_is_named(order: str, other_allocator: str) -> None:
    works, line = said(order.format(other=other_allocator, ours=LIBRARY))
    assert works == "False True"
    assert line.endswith(f"; malloc is that of {other_allocator}")


@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc_minimal", "mimalloc"])
@pytest.mark.parametrize("order", ["{other}:{ours}", "{ours}:{other}"])
def test_an_allocator_that_people_preload_wins_and_works(name: str, order: str) -> None:
    other = ctypes.util.find_library(name)
    if other is None:
        pytest.skip(needs.missing(f"lib{name}"))
    works, line = said(order.format(other=other, ours=LIBRARY))
    assert works == "False True"
    assert "; malloc is that of " in line
    assert name in line


def test_beside_another_allocator_arrays_can_still_be_shared(other_allocator: str) -> None:
    code = "import sirtaki; array = sirtaki.empty(1000); print(shared(array.ctypes.data))"
    assert run_heap(code, f"{other_allocator}:{LIBRARY}") == "True"


@pytest.mark.slow
def test_memory_stays_flat_while_a_model_trains_and_sizes_change() -> None:
    code = """
import torch
torch.manual_seed(0)
def resident():
    status = open("/proc/self/status").read()
    return sum(int(status.split(f"{name}:")[1].split()[0]) for name in ("RssAnon", "RssShmem"))
def model(width):
    return torch.nn.Sequential(torch.nn.Linear(512, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, 512))
def batch(samples):
    return torch.ones(samples, 512)
def train(width, samples):
    net = model(width)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch(samples)).square().mean().backward()
        optimizer.step()
    extra = torch.ones(samples * 3000)
    extra.resize_(samples * 5000)
    extra.resize_(100)
def cycle():
    for width, samples in ((600, 50), (2500, 20), (1100, 300), (3700, 10), (900, 100)):
        train(width, samples)
for _ in range(3):
    cycle()
early = resident()
for _ in range(12):
    cycle()
late = resident()
print(late < early * 1.1 + 8192 or (early, late))
print(figures()["fallbacks"])
"""
    assert run_heap(code).splitlines() == ["True", "0"]


def test_freed_memory_of_the_c_library_is_kept_too() -> None:
    code = """
import sirtaki
from sirtaki.launch.doctor import probe
sirtaki.init()
blocks = [malloc(512 << 10) for _ in range(100)]
before = {p for p in blocks}
for p in blocks:
    ctypes.memset(p, 1, 512 << 10)
print(any(shared(p) for p in blocks))
for p in blocks:
    free(p)
pages = int(open("/proc/self/statm").read().split()[1])
print(pages * 4096 > 50 * MIB)
print(next(f.detail for f in probe.system() if f.name == "freed memory"))
"""
    assert run_heap(code).splitlines() == ["False", "True", "kept for the next gradients"]


def test_the_library_needs_nothing_but_the_c_library() -> None:
    done = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True)
    needed = [line for line in done.stdout.splitlines() if "NEEDED" in line]
    assert needed
    assert [line for line in needed if "libc.so" not in line and "ld-linux" not in line] == []
    assert Path(LIBRARY).stat().st_size < 1 << 20
