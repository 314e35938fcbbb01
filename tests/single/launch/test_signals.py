"""How the launcher takes signals."""

from __future__ import annotations

import signal

import pytest

from sirtaki.launch import cli
from sirtaki.launch.doctor import doctor
from sirtaki.launch.processes.signals import SignalWatch


@pytest.mark.timeout(20)
def test_a_signal_that_was_taken_while_output_was_written_is_not_waited_for_again() -> None:
    with SignalWatch() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert signals.take() == signal.SIGUSR1
        assert signals.take() is None


def test_ctrl_c_ends_a_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "main", interrupted)
    assert cli.main(["doctor", "--hosts"]) == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")
