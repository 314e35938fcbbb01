"""Showing a failed test before the session ends, because others may end the process."""

from __future__ import annotations

import pytest


def show(item: pytest.Item, report: pytest.TestReport, rank: object) -> None:
    """Print the failure now, and not again at the end."""
    reporter = item.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.ensure_newline()
    reporter.write_sep("=", f"rank {rank} failed {item.nodeid} ({report.when})")
    reporter.write_line(report.longreprtext)
    for name, text in report.sections:
        reporter.write_sep("-", name)
        reporter.write_line(text)
    reporter.flush()
    item.config.option.tbstyle = "no"
