"""When init() makes the C library keep freed memory, and what `sirtaki doctor` says of it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

# Says whether 256 MiB that were written and freed are still resident, and what the doctor says.
PROGRAM = """
import ctypes, mmap, sirtaki, threading
from sirtaki.doctor import probe
{start}
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
size = 256 << 20
def use():
    block = ctypes.c_void_p(library.malloc(ctypes.c_size_t(size)))
    ctypes.memset(block, 1, size)
    library.free(block)
{use}
pages = int(open("/proc/self/statm").read().split()[1])
print("kept" if pages * mmap.PAGESIZE > size else "given back")
print(next(f.detail for f in probe.system() if f.name == "freed memory"))
"""
KEPT = ["kept", "kept for the next gradients"]


PACKAGES = sysconfig.get_path("purelib")


@pytest.fixture
def systems_python() -> str:
    """Debian's, say, which has a fixed address: there `malloc` has an address in the program."""
    path = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(path).exists():
        pytest.skip("the system has no Python of this version")
    return path


IN_A_THREAD = "thread = threading.Thread(target=use); thread.start(); thread.join()"


def freed_memory(
    start: str = "sirtaki.init()",
    use: str = "use()",
    python: str = sys.executable,
    **variables: str,
) -> list[str]:
    """Run a process with these variables; return what becomes of its memory and what is said."""
    chosen = ("MALLOC_", "GLIBC_TUNABLES", "SIRTAKI_KEEP_MEMORY", "LD_PRELOAD")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(chosen)}
    done = subprocess.run(
        [python, "-c", PROGRAM.format(start=start, use=use)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.splitlines()


def test_init_makes_the_c_library_keep_freed_memory() -> None:
    assert freed_memory() == KEPT


def test_memory_freed_by_a_thread_that_starts_after_init_is_kept_too() -> None:
    assert freed_memory(use=IN_A_THREAD) == KEPT


def test_memory_is_kept_by_a_program_at_a_fixed_address(systems_python: str) -> None:
    assert freed_memory(python=systems_python, PYTHONPATH=PACKAGES) == KEPT


def test_without_init_freed_memory_is_given_back() -> None:
    assert freed_memory(start="")[0] == "given back"


def test_memory_is_left_alone_on_request() -> None:
    expected = ["given back", "left alone because of SIRTAKI_KEEP_MEMORY=0"]
    assert freed_memory(SIRTAKI_KEEP_MEMORY="0") == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MALLOC_MMAP_THRESHOLD_", "65536"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_TOP_PAD_", "0"),
        ("MALLOC_MMAP_MAX_", "65536"),
        ("MALLOC_ARENA_MAX", "2"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2"),
    ],
)
def test_memory_is_left_to_a_user_who_sets_malloc_himself(variable: str, value: str) -> None:
    expected = ["given back", f"left alone because of {variable} in the environment"]
    assert freed_memory(**{variable: value}) == expected


def test_tunables_of_other_parts_of_the_c_library_do_not_count() -> None:
    assert freed_memory(GLIBC_TUNABLES="glibc.rtld.nns=4") == KEPT


@pytest.fixture
def other_allocator(tmp_path: Path) -> str:
    """A library that has a `malloc`."""
    source, library = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text(
        "#include <stddef.h>\n"
        "void *__libc_malloc(size_t bytes);\n"
        "void *malloc(size_t bytes) { return __libc_malloc(bytes); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_another_allocator_is_left_alone(other_allocator: str) -> None:
    expected = ["given back", f"left alone because of malloc, which is that of {other_allocator}"]
    assert freed_memory(LD_PRELOAD=other_allocator) == expected


def test_another_allocator_is_left_alone_by_a_program_at_a_fixed_address(
    other_allocator: str, systems_python: str
) -> None:
    told = freed_memory(python=systems_python, PYTHONPATH=PACKAGES, LD_PRELOAD=other_allocator)
    assert told == [
        "given back",
        f"left alone because of malloc, which is that of {other_allocator}",
    ]
