"""The flags that set variables of the workers: one table for command line and YAML file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from sirtaki.records import dataclass

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
_MIB = 1 << 20
Value = int | float | str


def whole(text: str, least: int = 0) -> int:
    """Accept a whole number that is not negative."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} must be >= {least}")
    return number


def positive(text: str) -> int:
    """Accept a whole number of at least one."""
    return whole(text, least=1)


def decimal(text: str) -> float:
    """Accept a finite number that is not negative."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text} must be >= 0")
    return number


def fraction(text: str) -> float:
    """Accept a number from 0 to 1."""
    number = decimal(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"{text} must be in [0, 1]")
    return number


def level(text: str) -> str:
    """Accept the name of a log level, in any case."""
    if text.upper() not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(LEVELS)}")
    return text.upper()


def cores(text: str) -> int | str:
    """Accept a core, or a comma-separated list of one a local rank."""
    numbers = [whole(part) for part in text.split(",")]
    return numbers[0] if len(numbers) == 1 else ",".join(map(str, numbers))


def plain(text: str) -> str:
    """Accept any text that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


class _Option:
    """What a row of the YAML file, "section.name", says of flags and of the workers' variable.

    named: the variable without HOROVOD_, where it is not called as the flag.
    """

    key: str
    named: str

    @property
    def flag(self) -> str:
        """The long flag, that switches on."""
        section, _, name = self.key.partition(".")
        words = (_PREFIXES.get(section, section), name.removesuffix("enabled"))
        return "--" + "-".join(filter(None, words)).replace("_", "-")

    @property
    def dest(self) -> str:
        """The name of the attribute of the parsed arguments."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def variable(self) -> str:
        """What the workers see."""
        return f"HOROVOD_{self.named or self.dest.upper()}"


@dataclass(frozen=True)
class Knob(_Option):
    """A flag with a value that becomes a variable of the workers.

    convert: from text to the flag's value. factor: how many of the variable's units are one of the
    flag's.
    """

    key: str
    convert: Callable[[str], Value]
    help: str
    named: str = ""
    factor: int = 1

    def value(self, given: Value) -> str:
        """What the variable is set to."""
        return str(given) if isinstance(given, str) else str(given * self.factor)


@dataclass(frozen=True)
class Switch(_Option):
    """A pair of flags, on and off, that becomes a variable of the workers.

    inverse: the variable says the opposite, as in HOROVOD_STALL_CHECK_DISABLE.
    """

    key: str
    help: str
    named: str = ""
    inverse: bool = False

    def value(self, is_on: bool) -> str:
        """What the variable is set to."""
        return "1" if is_on != self.inverse else "0"


# How flags of these sections begin; others begin with the section.
_PREFIXES = {"params": "", "library_options": "", "logging": "log"}
# The headings in the help, of the sections in the YAML file.
GROUPS = {
    "params": "tunable parameters",
    "autotune": "autotuning",
    "timeline": "timeline",
    "stall_check": "stall check",
    "library_options": "library options",
    "logging": "logging",
}

KNOBS = (
    Knob(
        "params.fusion_threshold_mb",
        whole,
        "most MiB of tensors reduced in one batch (default: 128)",
        "FUSION_THRESHOLD",
        factor=_MIB,
    ),
    Knob(
        "params.cycle_time_ms",
        decimal,
        "accepted for old scripts; work starts when it arrives, without cycles",
        "CYCLE_TIME",
    ),
    Knob(
        "params.cache_capacity",
        whole,
        "how many tensors are remembered between steps (default: 1024)",
    ),
    Knob("autotune.log_file", plain, "file that receives the values tried", "AUTOTUNE_LOG"),
    Knob("autotune.warmup_samples", whole, "samples thrown away at the start (default: 3)"),
    Knob("autotune.steps_per_sample", whole, "steps a sample takes (default: 10)"),
    Knob("autotune.bayes_opt_max_samples", whole, "most samples to take (default: 20)"),
    Knob(
        "autotune.gaussian_process_noise",
        fraction,
        "accepted for old scripts; values are tried one by one, without a model",
    ),
    Knob(
        "timeline.filename",
        plain,
        "file that receives a timeline of all collectives, or DYNAMIC",
        "TIMELINE",
    ),
    Knob(
        "stall_check.warning_time_seconds",
        whole,
        "warn when a collective waits that long for some ranks (default: 10)",
        "STALL_CHECK_TIME_SECONDS",
    ),
    Knob(
        "stall_check.shutdown_time_seconds",
        whole,
        "fail a collective that waits that long (default: 0, never)",
        "STALL_SHUTDOWN_TIME_SECONDS",
    ),
    Knob(
        "library_options.num_nccl_streams",
        whole,
        "accepted for old scripts; NCCL works on PyTorch's streams",
    ),
    Knob(
        "library_options.thread_affinity",
        cores,
        "CPU of the engine's threads: one, or a list with one for each rank of a host",
    ),
    Knob(
        "library_options.gloo_timeout_seconds",
        whole,
        "how long ranks wait for each other at the start, where longer than --start-timeout",
    ),
    Knob("logging.level", level, f"least severity shown: {', '.join(LEVELS)} (default: WARNING)"),
)

SWITCHES = (
    Switch(
        "params.hierarchical_allreduce",
        "accepted for old scripts; always so where there are several hosts",
    ),
    Switch(
        "params.hierarchical_allgather",
        "accepted for old scripts; always so where there are several hosts",
    ),
    Switch(
        "params.torus_allreduce",
        "accepted for old scripts; always in two levels where there are several hosts",
    ),
    Switch("autotune.enabled", "search for the best parameters while training"),
    Switch("timeline.mark_cycles", "mark the rounds of the engine in the timeline"),
    Switch(
        "stall_check.enabled",
        "watch for collectives that wait for some ranks (default)",
        "STALL_CHECK_DISABLE",
        inverse=True,
    ),
    Switch("library_options.mpi_threads_disable", "initialise MPI without threads"),
)

# Its flags share a group with the launcher's own -prefix-timestamp and have older names.
LOG_TIME = Switch(
    "logging.with_timestamp",
    "begin log lines with the time (default)",
    "LOG_HIDE_TIME",
    inverse=True,
)

CONTROLLERS = ("gloo", "mpi")
