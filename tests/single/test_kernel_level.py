"""Reductions use the widest instructions that the processor has."""

from __future__ import annotations

from sirtaki import _core
from sirtaki.doctor import probe
from tests import processor


def test_the_core_uses_what_the_processor_has() -> None:
    assert _core.kernel_level() == processor.kernel_level()


def test_the_doctor_says_which_instructions_those_are() -> None:
    found = probe.probe_modules([probe.CORE_MODULE])[probe.CORE_MODULE]
    assert found.detail == f"loads, its reductions use {processor.kernel_level()}"
