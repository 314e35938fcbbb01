"""How the launcher takes signals."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.processes.signals import SignalWatch, obey


@pytest.mark.timeout(20)
def test_a_signal_that_was_taken_while_output_was_written_is_not_waited_for_again() -> None:
    job, outcome = Mock(), Outcome()
    with SignalWatch() as signals:
        obey(signals, outcome, Mock(), Mock(), job)
    assert (outcome, job.mock_calls) == (Outcome(), [])
