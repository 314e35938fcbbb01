"""Conversion of flags and the YAML file of `--config-file` to the workers' variables."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from sirtaki.launch.flags import options
from sirtaki.launch.flags.config_file import config_values
from sirtaki.launch.flags.flags import flags_of
from sirtaki.launch.flags.settings import knob_variables

NCCL_IB_DISABLE = "NCCL_IB_DISABLE"
LOG_LEVELS = list(options.LEVELS)
# HOROVOD_FUSION_THRESHOLD and so on: a name for every variable.
globals().update({row.variable: row.variable for row in options.ROWS})


def set_args_from_config(
    args: argparse.Namespace, config: Mapping[str, Any], override_args: Collection[str]
) -> None:
    """Set flags from the file's content.

    Args:
        args: The flags, as attributes.
        config: The content: sections of keys and values.
        override_args: Names of flags that keep their values, since they were given.

    Raises:
        ValueError: A value is invalid.
    """
    told = lambda text: warnings.warn(text, stacklevel=2)  # noqa: E731
    for name, value in config_values(dict(config), "the configuration", told).items():
        if name not in override_args:
            setattr(args, name, value)
    if "controller" in config:
        args.use_gloo, args.use_mpi = (args.controller == name for name in ("gloo", "mpi"))


def validate_config_args(args: argparse.Namespace) -> None:
    """Raise ValueError for a flag with an invalid value."""
    for knob in options.KNOBS:
        value = getattr(args, knob.dest, None)
        if value is not None:
            try:
                knob.convert(str(value))
            except argparse.ArgumentTypeError as error:
                raise ValueError(f"{knob.dest}={value}: {error}") from None


def set_env_from_args(
    env: MutableMapping[str, str], args: argparse.Namespace
) -> MutableMapping[str, str]:
    """Put the flags that are set into an environment as variables; return it."""
    env.update(knob_variables(flags_of(vars(args))))
    if getattr(args, "tcp", False):
        env[NCCL_IB_DISABLE] = "1"
    return env
