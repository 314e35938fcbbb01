"""How the launcher takes signals."""

from __future__ import annotations

import signal

import pytest

from sirtaki.launch.processes.signals import SignalWatch


@pytest.mark.timeout(20)
def test_a_signal_that_was_taken_while_output_was_written_is_not_waited_for_again() -> None:
    with SignalWatch() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert signals.take() == signal.SIGUSR1
        assert signals.take() is None
