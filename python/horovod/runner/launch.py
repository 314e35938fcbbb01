"""`horovodrun` as functions."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

from horovod.runner._arguments import _HorovodArgs
from sirtaki.launch import cli, command
from sirtaki.launch.api import NON_ZERO_STATUS, run
from sirtaki.launch.flags.flags import flags_of, read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import make_settings
from sirtaki.launch.starters import mpi


def parse_args() -> _HorovodArgs:
    """Return the arguments of this program as flags of `horovodrun`, with numbers converted.

    Raises ValueError.
    """
    found = _HorovodArgs()
    args = make_parser("horovodrun").parse_args(sys.argv[1:])
    flags = read_flags(args, {}, lambda text: warnings.warn(text, stacklevel=3))
    vars(found).update({**vars(args), **vars(flags), **flags.knobs})
    found.use_gloo, found.use_mpi, found.use_jsrun = (
        flags.controller == name for name in ("gloo", "mpi", "jsrun")
    )
    if flags.network_interfaces:
        found.nics = ",".join(flags.network_interfaces)
    return found


def _run(args: _HorovodArgs) -> list[Any] | None:
    """Start the job that `args` describe, and wait for it.

    Returns the result of `run_func` on each rank, None for a command. Raises RuntimeError when a
    rank fails, ValueError for contradictory arguments.
    """
    if args.run_func is None:
        _run_command(args)
        return None
    return run(
        args.run_func,
        num_proc=args.num_proc,
        hosts=args.hosts,
        hostfile=args.hostfile,
        start_timeout=args.start_timeout,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        output_filename=args.output_filename,
        verbose=args.verbose,
        use_gloo=args.use_gloo,
        use_mpi=args.use_mpi,
        mpi_args=args.mpi_args,
        network_interfaces=args.nics,
        executable=args.executable,
    )


def _run_command(args: _HorovodArgs) -> None:
    asked = {"mpi": args.use_mpi, "gloo": args.use_gloo, "jsrun": args.use_jsrun}
    args.controller = next((name for name, wanted in asked.items() if wanted), None)
    args.network_interfaces = [args.nics] if args.nics else None
    if args.use_mpi:
        # As a child process, because the caller has more to do.
        launch = mpi.prepare(make_settings(flags_of(vars(args)), os.environ), os.environ)
        code = subprocess.call(launch.argv, env=launch.variables)
    else:
        code = command.run_parsed(args, "horovodrun")
    if code != 0:
        raise RuntimeError(f"{NON_ZERO_STATUS} (exit code of the launcher: {code})")


def run_commandline() -> None:
    """Run `horovodrun` with the arguments of this program; raises SystemExit on failure."""
    code = cli.horovodrun()
    if code != 0:
        sys.exit(code)


if __name__ == "__main__":
    run_commandline()
