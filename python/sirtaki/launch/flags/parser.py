"""The command line of `horovodrun` and `sirtaki run`."""

from __future__ import annotations

import argparse
from typing import NoReturn

from sirtaki.launch.cores.shared_heap import shared_heap
from sirtaki.launch.cores.shares import bind_to
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.options import (
    GROUPS,
    KNOBS,
    LOG_TIME,
    SWITCHES,
    cores,
    decimal,
    positive,
    whole,
)

_LAST_PORT = 65535


class LaunchParser(argparse.ArgumentParser):
    """Reports mistakes as LaunchError."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        raise LaunchError(f"{message} (see {self.prog} --help)")


def port(text: str) -> int:
    """Accept the number of a TCP port."""
    value = positive(text)
    if value > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{value} must be <= {_LAST_PORT}")
    return value


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Make the parser of all flags; what begins with the first non-flag is `command`."""
    parser = LaunchParser(
        prog=prog,
        usage=f"{prog} -np NUM_PROC [flags] command …",
        description="Run a training script as several processes that work together.",
    )
    parser.add_argument("-v", "--version", action="store_true", help="print the version")
    parser.add_argument(
        "-np", "--num-proc", type=positive, metavar="NUM_PROC", help="how many processes to start"
    )
    parser.add_argument(
        "-cb", "--check-build", action="store_true", help="print what is available and exit"
    )
    parser.add_argument("--verbose", action="store_true", help="say what is started where")
    parser.add_argument("--config-file", metavar="YAML", help="read flags' values from this file")
    parser.add_argument(
        "--start-timeout",
        type=decimal,
        metavar="SECONDS",
        help="time for all processes to start (default: $HOROVOD_START_TIMEOUT or 30)",
    )
    parser.add_argument(
        "--output-filename",
        metavar="DIR",
        help="also write each rank's output to DIR/rank.<rank>/stdout and stderr",
    )
    parser.add_argument(
        "--tee",
        metavar="DIR",
        help="also write each rank's output, stdout and stderr together, to DIR/rank.<rank>.log",
    )
    parser.add_argument("--disable-cache", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--termination-grace-seconds", type=decimal, default=5.0, help=argparse.SUPPRESS
    )
    _add_metrics(parser)
    _add_hosts(parser)
    _add_network(parser)
    _add_controllers(parser)
    _add_knobs(parser)
    _add_elastic(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program and its arguments")
    return parser


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("metrics of the ranks on this host, while the job runs")
    group.add_argument(
        "--metrics-port",
        type=port,
        help="serve them to Prometheus on this port of 127.0.0.1, as /metrics",
    )
    group.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        help="the bearer token that Prometheus sends; created if it does not exist "
        "(default: ~/.config/sirtaki/metrics-token)",
    )
    group.add_argument(
        "--metrics-file", metavar="FILE", help="add a line of JSON to this file at each interval"
    )
    group.add_argument(
        "--metrics-interval", type=decimal, metavar="SECONDS", help="of that file (default: 10)"
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts")
    exclusive = add_hosts_and_ssh(group, "hosts and how many processes each may take")
    exclusive.add_argument(
        "--host-discovery-script", metavar="SCRIPT", help="(elastic) prints the hosts there are"
    )
    group.add_argument(
        "-x",
        dest="forward",
        action="append",
        metavar="NAME[=VALUE]",
        help="give the processes this variable, on all hosts (may be repeated); for a secret NAME "
        "alone, with the value in your environment",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print what would be started where, and exit"
    )
    group.add_argument(
        "--bind-to",
        type=bind_to,
        metavar="WHAT",
        help="bind the ranks of a host to equal shares of its cores (core, the default), to all of "
        "the NUMA nodes or packages of these (numa, socket), to CPUs listed for each (0-3:4-7), or "
        "not at all (none)",
    )
    _add_shared_heap(group)
    _add_nodes(parser)


def add_hosts_and_ssh(
    group: argparse._ArgumentGroup, hosts: str
) -> argparse._MutuallyExclusiveGroup:
    """Add flags that say which hosts, and how they are reached; returns the group of the first."""
    exclusive = group.add_mutually_exclusive_group()
    exclusive.add_argument("-H", "--hosts", metavar="NAME:SLOTS,…", help=hosts)
    exclusive.add_argument(
        "-hostfile", "--hostfile", metavar="FILE", help='the same as lines "name slots=N"'
    )
    group.add_argument("-p", "--ssh-port", type=port, help="port of ssh on the hosts")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="key for ssh")
    group.add_argument(
        "--remote-python",
        metavar="PATH",
        help="the Python with Sirtaki on the other hosts (default: the path of this one)",
    )
    return exclusive


def add_interfaces(group: argparse._ArgumentGroup) -> None:
    """Add the flag that names network interfaces."""
    group.add_argument(
        "--network-interface",
        "--network-interfaces",
        dest="network_interfaces",
        action="append",
        metavar="NAME",
        help="network interface to use (may be repeated, or a comma-separated list)",
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("nodes that each start this command, such as pods")
    group.add_argument("--nnodes", type=positive, metavar="N", help="how many ($PET_NNODES)")
    group.add_argument(
        "--node-rank",
        type=whole,
        metavar="N",
        help="which of them this is, from 0 ($PET_NODE_RANK, $JOB_COMPLETION_INDEX)",
    )
    group.add_argument(
        "--nproc-per-node",
        metavar="N",
        help="processes of each: a number, gpu, cpu or auto ($PET_NPROC_PER_NODE, else 1)",
    )
    group.add_argument(
        "--master-addr", metavar="NAME", help="where node 0 is ($PET_MASTER_ADDR, $MASTER_ADDR)"
    )
    group.add_argument(
        "--master-port",
        type=port,
        metavar="PORT",
        help="where it waits for the others ($PET_MASTER_PORT, $MASTER_PORT, else 29500)",
    )


def _add_shared_heap(group: argparse._ArgumentGroup) -> None:
    """Add a flag whose value may be missing, and is never the word behind it: the command."""
    flag = "--shared-heap"
    for value in ("on", "off", "auto"):
        spellings = (flag, f"{flag}=on") if value == "on" else (f"{flag}={value}",)
        group.add_argument(
            *spellings,
            dest="shared_heap",
            action="store_const",
            const=shared_heap(value),
            help="give the ranks large blocks of memory that their host's other ranks read and "
            "write, so that tensors are not copied (=off, the default; =auto: where a host has "
            "several ranks and no other allocator)"
            if value == "on"
            else argparse.SUPPRESS,
        )


def _add_network(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network")
    add_interfaces(group)
    group.add_argument(
        "--tls", action="store_true", help="encrypt what goes between hosts (SIRTAKI_TLS)"
    )
    group.add_argument("--tcp", action="store_true", help="NCCL over TCP only (NCCL_IB_DISABLE)")


def _add_controllers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("transport")
    exclusive = group.add_mutually_exclusive_group()
    for name, text in (
        ("gloo", "the native transport (default)"),
        ("mpi", "start the processes with mpirun"),
        ("jsrun", "in LSF jobs with jsrun on the PATH: the default; elsewhere refused"),
    ):
        exclusive.add_argument(
            f"--{name}", dest="controller", action="store_const", const=name, help=text
        )
    group.add_argument("--mpi-args", metavar="ARGS", help="more arguments for mpirun")
    group.add_argument("--binding-args", metavar="ARGS", help="binding arguments for mpirun")


def _add_knobs(parser: argparse.ArgumentParser) -> None:
    for section, title in GROUPS.items():
        group = parser.add_argument_group(title)
        for knob in KNOBS:
            if knob.key.startswith(f"{section}."):
                group.add_argument(
                    knob.flag, type=knob.convert, metavar=_metavar(knob.convert), help=knob.help
                )
        for switch in SWITCHES:
            if switch.key.startswith(f"{section}."):
                pair = group.add_mutually_exclusive_group()
                pair.add_argument(
                    switch.flag,
                    dest=switch.dest,
                    action="store_true",
                    default=None,
                    help=switch.help,
                )
                pair.add_argument(
                    f"--no-{switch.flag[2:]}", dest=switch.dest, action="store_false", default=None
                )
        if section == "logging":
            _add_timestamps(group)


def _metavar(convert: object) -> str:
    if convert is whole or convert is cores:
        return "N"
    return "X" if convert is decimal else "VALUE"


def _add_timestamps(group: argparse._ArgumentGroup) -> None:
    exclusive = group.add_mutually_exclusive_group()
    dest = LOG_TIME.dest
    for flag, action, text in (
        (LOG_TIME.flag, "store_true", LOG_TIME.help),
        ("--log-without-timestamp", "store_false", "begin log lines without the time"),
        ("--log-hide-timestamp", "store_false", argparse.SUPPRESS),
        ("--no-log-hide-timestamp", "store_true", argparse.SUPPRESS),
    ):
        exclusive.add_argument(flag, dest=dest, action=action, default=None, help=text)
    exclusive.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        dest="prefix_timestamp",
        action="store_true",
        help="begin every line of the workers' output with the time",
    )


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("elastic training: lost processes are replaced")
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        dest="min_num_proc",
        type=positive,
        help="go on as long as so many processes are left (default: NUM_PROC)",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        dest="max_num_proc",
        type=positive,
        help="start no more than so many where hosts have slots (default: NUM_PROC)",
    )
    group.add_argument(
        "--spares",
        type=whole,
        metavar="N",
        help="keep so many more processes that wait to take a lost place (default: 0)",
    )
    group.add_argument(
        "--slots-per-host",
        dest="slots",
        type=positive,
        help="slots of a host that the discovery script prints without a number (default: 1)",
    )
    _add_elastic_limits(group)


def _add_elastic_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--elastic-timeout",
        type=positive,
        metavar="SECONDS",
        help="end the job when fewer than --min-np processes are ready for so long (default: 600)",
    )
    group.add_argument(
        "--unresponsive-seconds",
        dest="unresponsive",
        type=positive,
        metavar="SECONDS",
        help="end and replace a process that is stopped, or its engine silent, for so long, and "
        "give up a host of which nothing is heard for so long, at most 5 s (default: 5)",
    )
    group.add_argument(
        "--leave-seconds",
        type=positive,
        metavar="SECONDS",
        help="when SIGTERM or SIGUSR1 asks the job to leave, processes may take so long to finish "
        "their step, commit and write a checkpoint (default: 25)",
    )
    group.add_argument(
        "--reset-limit",
        type=positive,
        help="end the job when more new worlds than that were made (default: no limit)",
    )
    group.add_argument(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=whole,
        nargs=2,
        metavar=("MIN", "MAX"),
        help="seconds that a host takes no process after a failure; they double with each failure "
        "(default: 1 60)",
    )
