"""Who gets the shared heap from the launcher, and what it says of that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import sirtaki
from sirtaki.core.config import Config
from sirtaki.core.world.shared_heap import LIBRARY
from sirtaki.launch.cores.shared_heap import described, with_heap
from sirtaki.launch.errors import LaunchError
from tests.single.launching import LIMIT, Job, python

_TWO = {"HOROVOD_LOCAL_SIZE": "2"}
_SAY = """if True:
    import ctypes, os
    from sirtaki import _core
    allocate = ctypes.CDLL(None).aligned_alloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
    print(_core.heap_holds(allocate(64, 1 << 20), 1), os.environ.get("LD_PRELOAD"))
"""


def heap(value: str, **variables: str) -> dict[str, str]:
    return with_heap({**_TWO, "SIRTAKI_SHARED_HEAP": value, **variables})


def ranks(
    job: Job, *flags: str, command: tuple[str, ...] = python(_SAY), **extra: str
) -> list[str]:
    done = job.run("-np", "2", *flags, *command, **extra)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("value", ["1", "on", "TRUE", "yes", "auto"])
def test_a_rank_that_is_to_have_the_heap_preloads_it(value: str) -> None:
    assert heap(value) == {"LD_PRELOAD": str(LIBRARY)}


@pytest.mark.parametrize("value", ["0", "off", "no", ""])
def test_a_rank_that_is_not_to_have_it_preloads_nothing(value: str) -> None:
    assert heap(value) == {}
    assert with_heap(_TWO) == {}
    assert described(_TWO) == ""


def test_what_the_user_preloads_stays_in_front() -> None:
    assert heap("1", LD_PRELOAD="/lib/a.so b.so") == {"LD_PRELOAD": f"/lib/a.so b.so:{LIBRARY}"}


def test_a_rank_alone_on_its_host_gets_it_only_when_told() -> None:
    alone = {"HOROVOD_LOCAL_SIZE": "1"}
    assert heap("auto", **alone) == {}
    assert heap("1", **alone) != {}
    said = described({"SIRTAKI_SHARED_HEAP": "auto", **alone})
    assert said == ", no shared heap: the rank is alone on its host"


@pytest.mark.parametrize("other", ["libjemalloc.so.2", "/usr/lib/libtcmalloc_minimal.so.4"])
def test_by_itself_the_launcher_leaves_another_allocator_alone(other: str) -> None:
    preload = f"/lib/libother.so:{other}"
    assert heap("auto", LD_PRELOAD=preload) == {}
    said = described({**_TWO, "SIRTAKI_SHARED_HEAP": "auto", "LD_PRELOAD": preload})
    assert said == f", no shared heap: {other} is preloaded"


def test_without_files_in_memory_auto_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refused)
    said = described({**_TWO, "SIRTAKI_SHARED_HEAP": "auto"})
    assert said == ", no shared heap: no file in memory can be made (Operation not permitted)"


@pytest.mark.parametrize("value", ["2", "maybe", "on off"])
def test_another_value_is_refused_by_launcher_and_rank(value: str) -> None:
    words = f"SIRTAKI_SHARED_HEAP='{value}' must be 1, 0 or auto"
    with pytest.raises(LaunchError, match=words):
        heap(value)
    with pytest.raises(ValueError, match=words):
        Config.from_env({"SIRTAKI_SHARED_HEAP": value})


def test_ranks_have_the_heap_and_what_they_execute_has_not(job: Job) -> None:
    assert ranks(job, "--shared-heap") == ["[0]<stdout>:True None", "[1]<stdout>:True None"]


def test_without_the_flag_ranks_have_ordinary_memory(job: Job) -> None:
    assert ranks(job) == ["[0]<stdout>:False None", "[1]<stdout>:False None"]


def test_the_variable_does_what_the_flag_does_and_the_flag_beats_it(job: Job) -> None:
    assert ranks(job, SIRTAKI_SHARED_HEAP="1")[0].startswith("[0]<stdout>:True")
    assert ranks(job, "--shared-heap=off", SIRTAKI_SHARED_HEAP="1")[0].startswith(
        "[0]<stdout>:False"
    )


def test_a_file_of_settings_can_say_it(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for word, has_it in (("on", True), ("off", False), ("auto", True)):
        file.write_text(f"shared_heap: {word}\n")
        first = ranks(job, "--config-file", str(file))[0]
        assert first.startswith(f"[0]<stdout>:{has_it}")
    file.write_text("shared_heap: 3\n")
    done = job.run("-np", "2", "--config-file", str(file), "true")
    assert (
        f"shared_heap in the config file '{file}': '3' is not one of on, off, auto" in done.stderr
    )


def test_a_script_around_the_rank_hands_it_on(job: Job) -> None:
    shell = ("sh", "-c", '"$@"; true', "sh", *python(_SAY))
    assert ranks(job, "--shared-heap", command=shell)[0] == "[0]<stdout>:True None"


def test_the_processes_around_the_ranks_do_not_have_it(job: Job) -> None:
    code = """if True:
        import os, pathlib
        parent = pathlib.Path(f"/proc/{os.getppid()}/maps").read_text()
        print("sirtaki_heap" in parent)
    """
    assert ranks(job, "--shared-heap", command=python(code))[0] == "[0]<stdout>:False"


def test_a_function_that_is_run_on_ranks_has_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_it() -> bool:
        return "libsirtaki_heap" in Path("/proc/self/maps").read_text()

    monkeypatch.setenv("SIRTAKI_SHARED_HEAP", "1")
    assert sirtaki.run(has_it, num_proc=2) == [True, True]


def test_a_dry_run_and_a_verbose_one_say_who_gets_it(job: Job) -> None:
    said = job.run("-np", "2", "--shared-heap", "--dry-run", "true").stdout
    assert [line.rpartition(", ")[2] for line in said.splitlines() if line.startswith("rank")] == [
        "shared heap",
        "shared heap",
    ]
    assert "variable SIRTAKI_SHARED_HEAP=1" in said
    told = job.run("-np", "2", "--shared-heap", "--verbose", "true").stderr
    assert told.count(", shared heap\n") == 2


def test_the_log_says_what_a_rank_has(job: Job) -> None:
    code = "import sirtaki; sirtaki.init()"
    said = job.run("-np", "2", "--shared-heap", "--log-level", "INFO", *python(code)).stderr
    assert said.count("info: shared heap: an arena of ") == 2


def test_what_is_wrong_is_said_once_a_host(job: Job) -> None:
    code = "import sirtaki; sirtaki.init()"
    said = job.run("-np", "3", "--shared-heap", *python(code), SIRTAKI_HEAP_KEEP="much").stderr
    (line,) = said.splitlines()
    assert "rank 0 " in line
    assert "warning: shared heap: an arena of " in line
    assert line.endswith("; SIRTAKI_HEAP_KEEP='much' is no number of bytes, and the default holds")


_EXAMINE = """
from sirtaki.launch.doctor import probe
print(probe.shared_heap(probe.probe_module(probe.CORE_MODULE)).detail)
"""


def examine(**variables: str) -> str:
    """What the doctor says of the shared heap, without all else that it looks at."""
    done = subprocess.run(
        [*python(_EXAMINE)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout.rstrip("\n")


def test_the_doctor_says_whether_it_is_on_why_not_and_what_it_holds() -> None:
    on = examine(LD_PRELOAD=str(LIBRARY), SIRTAKI_HEAP_SPAN=str(64 << 20))
    assert on.startswith("an arena of 64 MiB; ")
    assert "blocks, " in on
    assert "; it is not preloaded; " in examine()
    assert examine(SIRTAKI_SHARED_HEAP="0") == "none; SIRTAKI_SHARED_HEAP=0"
