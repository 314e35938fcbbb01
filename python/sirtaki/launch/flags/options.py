"""The flags that set the workers' variables: one table for command line and YAML file."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from sirtaki.launch.cores.processors import parse_cpus

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
_MIB = 1 << 20
Value = int | float | str


def whole(text: str, least: int = 0) -> int:
    """Accept a whole number of at least `least`."""
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
    """Accept a core, or a comma-separated list with one core per local rank."""
    numbers = [whole(part) for part in text.split(",")]
    return numbers[0] if len(numbers) == 1 else ",".join(map(str, numbers))


def ranks(text: str) -> frozenset[int]:
    """Accept a list of ranks such as 0,4-7."""
    try:
        return parse_cpus(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of ranks such as 0,4-7") from None


def plain(text: str) -> str:
    """Accept any text that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


class _Option:
    """A key of the YAML file, "section.name", with its flag and the workers' variable.

    named: the variable without HOROVOD_, if its name differs from the flag's.
    """

    def __init__(self, key: str, help: str, named: str) -> None:
        self.key = key
        self.help = help
        self.named = named

    @property
    def flag(self) -> str:
        """The long flag; of a pair, the one that switches on."""
        section, _, name = self.key.partition(".")
        words = (_PREFIXES.get(section, section), name.removesuffix("enabled"))
        return "--" + "-".join(filter(None, words)).replace("_", "-")

    @property
    def dest(self) -> str:
        """The name of the attribute of the parsed arguments."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def variable(self) -> str:
        """The name of the workers' variable."""
        return f"HOROVOD_{self.named or self.dest.upper()}"


class Knob(_Option):
    """A flag with a value that becomes a variable of the workers.

    convert: from text to the flag's value. factor: how many of the variable's units make one of
    the flag's.
    """

    def __init__(
        self,
        key: str,
        convert: Callable[[str], Value],
        help: str,
        named: str = "",
        factor: int = 1,
    ) -> None:
        super().__init__(key, help, named)
        self.convert = convert
        self.factor = factor

    def value(self, given: Value) -> str:
        """Return what the variable is set to."""
        return str(given) if isinstance(given, str) else str(given * self.factor)


class Switch(_Option):
    """A pair of flags, on and off, that becomes a variable of the workers.

    inverse: the variable means the opposite, as in HOROVOD_STALL_CHECK_DISABLE.
    """

    def __init__(self, key: str, help: str, named: str = "", inverse: bool = False) -> None:
        super().__init__(key, help, named)
        self.inverse = inverse

    def value(self, given: Value) -> str:
        """Return what the variable is set to."""
        return "1" if bool(given) != self.inverse else "0"


# The help of flags without effect begins with this.
ACCEPTED = "accepted for old scripts"
# The prefixes of flags of these sections; the prefix of others is the section's name.
_PREFIXES = {"params": "", "library_options": "", "logging": "log"}
# The headings in the help for the sections of the YAML file.
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
        "largest batch of tensors that are reduced together, in MiB (default: 128)",
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
        "number of tensors that are remembered between steps (default: 1024)",
    ),
    Knob(
        "autotune.log_file", plain, "write the values that were tried to this file", "AUTOTUNE_LOG"
    ),
    Knob("autotune.warmup_samples", whole, "samples to discard at the start (default: 3)"),
    Knob("autotune.steps_per_sample", whole, "steps per sample (default: 10)"),
    Knob("autotune.bayes_opt_max_samples", whole, "largest number of samples (default: 20)"),
    Knob(
        "autotune.gaussian_process_noise",
        fraction,
        "accepted for old scripts; values are tried one by one, without a model",
    ),
    Knob(
        "timeline.filename",
        plain,
        "write a timeline of all collectives to this file; DYNAMIC: when the script starts it",
        "TIMELINE",
    ),
    Knob(
        "stall_check.warning_time_seconds",
        whole,
        "warn when a collective has waited this long for some ranks (default: 10)",
        "STALL_CHECK_TIME_SECONDS",
    ),
    Knob(
        "stall_check.shutdown_time_seconds",
        whole,
        "fail a collective that has waited this long (default: 0, never)",
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
        "CPU for Sirtaki's threads: one, or a list with one for each rank of a host",
    ),
    Knob(
        "library_options.gloo_timeout_seconds",
        whole,
        "how long ranks wait for each other at the start, if longer than --start-timeout",
    ),
    Knob(
        "logging.level",
        level,
        f"lowest level that is logged: {', '.join(LEVELS)} (default: WARNING)",
    ),
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
    Switch("timeline.mark_cycles", "mark the cycles of the background thread in the timeline"),
    Switch(
        "stall_check.enabled",
        "warn about collectives that wait for some ranks (default; off: --no-stall-check)",
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

ROWS = (*KNOBS, *SWITCHES, LOG_TIME)

CONTROLLERS = ("gloo", "mpi")
