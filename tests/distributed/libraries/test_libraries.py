"""Libraries on `torch.distributed` learn on our groups what they learn on Gloo's.

`make test-libraries` runs them, in an environment of its own. Each program says in its first lines
how it asks for a backend; docs/reference/torch-libraries.md says the same to users.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.jobs import ROOT, torchrun

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 300
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2 * LIMIT + 60)]

# Those that are told our name, and those that must believe that it is Gloo.
BY_NAME = [
    *(("ddp", kind) for kind in ("views", "static graph", "hook", "local SGD")),
    *(("lightning_fit", kind) for kind in ("each batch", "accumulation")),
    *(("deepspeed_steps", stage) for stage in "0123"),
]
KERAS = ("fit", "data parallel", "distributed optimizer", "later")
BY_VARIABLE = ["accelerate_steps", "trainer", "ignite_steps"]


def learned(backend: str, program: str, *arguments: str, stands_in: bool = False) -> object:
    """What a program learns on two ranks, whose groups must be of the backend."""
    return told_by(backend, program, *arguments, stands_in=stands_in)["learned"]


def told_by(
    backend: str, program: str, *arguments: str, stands_in: bool = False, ranks: int = 2
) -> dict[str, Any]:
    """What a program tells at its end."""
    done = subprocess.run(
        torchrun(ranks, str(PROGRAMS / f"{program}.py"), *arguments),
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "ACCELERATE_USE_CPU": "1",
            "TORCH_EXTENSIONS_DIR": str(ROOT / "build" / "torch_extensions"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SIRTAKI_TORCH_DEFAULT": str(int(stands_in)),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaked" not in done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("@"))
    told: dict[str, Any] = json.loads(line.removeprefix("@"))
    assert told["moved by"] == backend
    assert told["equal"]
    return told


@pytest.mark.parametrize(("program", "kind"), BY_NAME, ids=map(" ".join, BY_NAME))
def test_a_library_that_takes_any_name_learns_the_same_on_our_groups(
    program: str, kind: str
) -> None:
    ours = learned("sirtaki", program, "sirtaki", kind)
    assert ours == pytest.approx(learned("gloo", program, "gloo", kind), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("program", BY_VARIABLE)
def test_a_library_that_knows_gloo_alone_learns_the_same_on_our_groups(program: str) -> None:
    ours = learned("sirtaki", program, stands_in=True)
    assert ours == pytest.approx(learned("gloo", program), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", KERAS)
def test_fit_of_keras_learns_what_one_process_learns_and_exchanges_gradients_once(
    kind: str,
) -> None:
    told = told_by("sirtaki", "keras_fit", "sirtaki", kind)
    expected = told_by("sirtaki", "keras_fit", "sirtaki", kind, ranks=1)
    for what in ("learned", "losses"):
        assert told[what] == pytest.approx(expected[what], rel=1e-5, abs=1e-6)
    steps = 12
    metrics = told["reduced"] - steps * told["gradients"]
    assert 0 <= metrics < told["gradients"]
