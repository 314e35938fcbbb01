"""A library in C calls the engine through sirtaki.h, without linking the core."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import ffi
from sirtaki._core import KINDS

INVALID = 5


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed, as for the core"
    target = tmp_path_factory.mktemp("ffi") / "libsums.so"
    source = Path(__file__).with_name("sums.c")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(
        [compiler, *flags, f"-I{ffi.include_folder()}", source, "-o", target], check=True
    )
    loaded = ctypes.CDLL(str(target))
    loaded.request_bytes.restype = loaded.message_bytes.restype = ctypes.c_size_t
    return loaded


def table() -> ctypes.c_void_p:
    return ctypes.c_void_p(ffi.address())


def test_sums_from_several_threads_call_back_with_the_result(library: ctypes.CDLL) -> None:
    assert library.sum_from_threads(table(), 3) == 0


def sum_with_patience(
    library: ctypes.CDLL, seconds: float, then: Callable[[], None] = lambda: None
) -> int:
    callback = ctypes.CFUNCTYPE(None)(then)
    return library.sum_with_patience(table(), ctypes.c_int64(int(seconds * 1e9)), callback)


def test_a_patient_submit_returns_when_the_operation_is_done(library: ctypes.CDLL) -> None:
    assert sum_with_patience(library, 60) == 1


def test_a_rank_that_is_alone_is_done_whatever_its_patience(library: ctypes.CDLL) -> None:
    if hvd.size() > 1:
        pytest.skip("others may be late")
    assert [sum_with_patience(library, 1e-9) for _ in range(100)] == [1] * 100


def test_a_submit_whose_patience_ends_returns_before(library: ctypes.CDLL) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank waits for nobody")
    word = np.zeros(1)
    if hvd.rank() == 0:
        # Only once the submits of all others have returned.
        for other in range(1, hvd.size()):
            hvd.recv(word, other)
        assert sum_with_patience(library, 60) == 1
    else:
        assert sum_with_patience(library, 0.001, lambda: hvd.send(word, 0)) == 0


def test_results_go_where_the_caller_wants_them(library: ctypes.CDLL) -> None:
    size = hvd.size()
    memory = np.zeros(size * (size + 1) // 2, np.float32)
    assert library.gather_into(table(), memory.ctypes.data_as(ctypes.c_void_p)) == 0
    assert memory.tolist() == [float(rank) for rank in range(size) for _ in range(rank + 1)]


@pytest.mark.parametrize(
    ("process_set", "missing", "text"),
    [(77, 0, "process set 77"), (0, 8, "another version of the interface")],
)
def test_what_cannot_be_asked_for_is_an_operation_with_an_error(
    library: ctypes.CDLL, process_set: int, missing: int, text: str
) -> None:
    message = ctypes.create_string_buffer(400)
    size = ctypes.c_size_t(library.request_bytes() - missing)
    status = library.ask_for_nonsense(table(), process_set, size, message, ctypes.c_size_t(400))
    assert status == INVALID
    assert text in message.value.decode()


def test_messages_go_around(library: ctypes.CDLL) -> None:
    hvd.barrier()
    assert library.pass_around(table()) == 0
    hvd.barrier()


@pytest.mark.parametrize(
    ("missing", "text"),
    [(0, "has no such rank"), (8, "a message of .* bytes is of another version of the interface")],
)
def test_a_message_that_cannot_be_sent_is_an_operation_with_an_error(
    library: ctypes.CDLL, missing: int, text: str
) -> None:
    message = ctypes.create_string_buffer(400)
    size = ctypes.c_size_t(library.message_bytes() - missing)
    status = library.send_nowhere(table(), size, message, ctypes.c_size_t(400))
    assert status == INVALID
    assert re.search(text, message.value.decode())


def test_the_header_numbers_the_collectives_as_the_core_does() -> None:
    header = Path(ffi.include_folder(), "sirtaki.h").read_text()
    numbers = dict(re.findall(r"SIRTAKI_(\w+) = (\d+)", header))
    known = {name: int(numbers[name.upper()]) for name in KINDS if name.upper() in numbers}
    assert known == {name: KINDS[name] for name in known}
    assert len(known) >= 9


def test_the_capsule_holds_the_same_table() -> None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    assert pointer(ffi.capsule(), b"sirtaki.ffi") == ffi.address()
