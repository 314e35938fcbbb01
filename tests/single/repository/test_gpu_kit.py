"""The kit for machines with a GPU goes on after a failure and keeps every result."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.gpu import kit
from tests.single.launching import Job

WAITS = "import time; print('begun', flush=True); time.sleep(600)"


def python(name: str, code: str, limit: float = 60) -> kit.Check:
    return kit.Check(name, [sys.executable, "-c", code], limit)


def test_a_check_that_fails_or_hangs_does_not_end_the_others(tmp_path, capsys):
    report = tmp_path / "gpu.json"
    chosen = [
        python("fails", "print('because'); raise SystemExit(3)"),
        python("hangs", WAITS, limit=2),
        python("passes", "print('[0]<stdout>:figure ratio 1.25')"),
        python("is too long", "", limit=1000),
        python("lacks something", "raise SystemExit('[0]<stderr>:not tried: it is not here')"),
    ]
    assert kit.run_all(chosen, 120, report, {"torch": "2.13.0"}) == 3
    written = json.loads(report.read_text())
    assert written["machine"] == {"torch": "2.13.0"}
    found = {result.pop("name"): result for result in written["checks"]}
    assert found["fails"]["outcome"] == "failed"
    assert found["fails"]["exit_code"] == 3
    assert found["fails"]["output"] == ["because"]
    assert found["hangs"]["outcome"] == "timed out"
    assert found["hangs"]["output"] == ["begun"]
    assert found["passes"] == {
        "outcome": "passed",
        "seconds": found["passes"]["seconds"],
        "exit_code": 0,
        "figures": {"ratio": 1.25},
        "output": [],
    }
    assert found["is too long"]["outcome"] == "skipped"
    assert found["lacks something"]["outcome"] == "not tried"
    assert found["lacks something"]["output"] == ["it is not here"]
    assert "1 of 4 checks passed" in capsys.readouterr().out


def test_what_a_check_started_ends_with_it(monkeypatch):
    job = Job()
    monkeypatch.setattr(os, "environ", job.environment)
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAITS!r}])"
    assert kit.run_check(python("leaves a process", code), 60).outcome == "passed"
    job.wait_until_gone()


def test_every_check_has_a_limit_within_the_kits_eight_minutes():
    for devices in (1, 2, 8):
        chosen = kit.checks(devices)
        assert len({check.name for check in chosen}) == len(chosen)
        assert all(check.limit <= 90 for check in chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "collectives, 2 ranks on NCCL, one card",
        "lifetime, 2 ranks on NCCL, one card",
        "mixed_precision, 2 ranks on NCCL, one card",
        "killed, 2 ranks on NCCL, one card",
        "elastic, a rank is killed, 3 ranks on NCCL, one card",
        "torch.distributed on sirtaki, 2 ranks on NCCL, one card",
        "does_nothing, 3 ranks on NCCL, one card",
        "many_ranks, 2 ranks",
    ],
)
def test_a_check_passes_without_a_gpu(name, monkeypatch):
    """Gloo stands for NCCL. The checks of graphs, speed and memory need a GPU."""
    monkeypatch.setattr(kit, "APART", kit.HERE / "stand_in.py")
    monkeypatch.setattr(kit, "MANY_RANKS", (2,))
    (check,) = (check for check in kit.checks(devices=1) if check.name == name)
    result = kit.run_check(check, 300)
    assert result.outcome == "passed", "\n".join(result.output)
