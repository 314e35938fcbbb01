"""`sirtaki completion`: words that a shell completes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sirtaki.launch.completion import main
from tests.single.launching import LIMIT, SIRTAKI

pytestmark = pytest.mark.job


def completed(words: str) -> list[str]:
    """What bash offers for the last of the words."""
    script = f"""
eval "$({sys.executable} -m sirtaki.launch.cli completion bash)"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_{words.split()[0]}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return done.stdout.split()


def test_subcommands_and_flags_are_completed() -> None:
    assert {"run", "new", "doctor", "stacks"} <= set(completed("sirtaki ''"))
    assert "--host-discovery-script" in completed("sirtaki run --host")
    assert completed("horovodrun --network-interfaces")[0] == "--network-interfaces"
    assert "tensorflow" in completed("sirtaki new t")


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err


def test_an_unknown_shell_is_refused() -> None:
    done = subprocess.run(
        [*SIRTAKI, "completion", "sh"], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    assert "invalid choice: 'sh'" in done.stderr
