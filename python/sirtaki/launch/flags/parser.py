"""The command line of `horovodrun` and `sirtaki run`."""

from __future__ import annotations

import argparse
from typing import NoReturn

from sirtaki.launch.cores.shares import bind_to
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.guesses import with_guess
from sirtaki.launch.flags.options import (
    ACCEPTED,
    GROUPS,
    KNOBS,
    LOG_TIME,
    SWITCHES,
    cores,
    decimal,
    positive,
    ranks,
    whole,
)
from sirtaki.rendezvous.words import NO_SHARED_HEAP

_LAST_PORT = 65535
# The flags that `--help` shows, in this order.
_MOST_USED = (
    "-np",
    "-H",
    "--hostfile",
    "-p",
    "-x",
    "--network-interface",
    "--output-filename",
    "--min-np",
    "--dry-run",
    "--verbose",
    "--help-all",
    "--version",
)
_EXAMPLES = """\
examples:
  {0} -np 4 python train.py                    four processes on this machine
  {0} -np 8 -H node1:4,node2:4 python train.py four on each of two machines

In a job of a scheduler the hosts are known, and -np has a default."""


class LaunchParser(argparse.ArgumentParser):
    """Reports mistakes as LaunchError."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        raise LaunchError(f"{with_guess(message, self)} (see {self.prog} --help)")


class _RunParser(LaunchParser):
    """Shows only the most used flags in its help."""

    def format_help(self) -> str:
        """See `argparse.ArgumentParser.format_help`."""
        formatter = argparse.RawDescriptionHelpFormatter(self.prog)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section("flags")
        formatter.add_arguments([self._option_string_actions[flag] for flag in _MOST_USED])
        formatter.end_section()
        formatter.add_text(_EXAMPLES.format(self.prog))
        return formatter.format_help()


class _SharedHeap(argparse.Action):
    """Refuses a flag that earlier versions had."""

    def __call__(self, *_: object) -> NoReturn:
        raise LaunchError(f"--shared-heap is refused: {NO_SHARED_HEAP}")


class _HelpAll(argparse.Action):
    """Prints the help of all flags but those that only old scripts need, and leaves."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


def port(text: str) -> int:
    """Accept the number of a TCP port."""
    value = positive(text)
    if value > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{value} must be <= {_LAST_PORT}")
    return value


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Make the parser of all flags; the first non-flag and all after it are `command`."""
    parser = _RunParser(
        prog=prog,
        usage=f"{prog} -np NUM_PROC [flags] command …",
        description="Run a training script as several processes that work together.",
    )
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all flags and exit")
    parser.add_argument("-v", "--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        *("-np", "--num-proc", "--np"),
        dest="num_proc",
        type=positive,
        metavar="NUM_PROC",
        help="number of processes to start (default: one per slot of the hosts)",
    )
    parser.add_argument(
        "-cb", "--check-build", action="store_true", help="print what is available and exit"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print what is started where, and full tracebacks"
    )
    parser.add_argument("--config-file", metavar="YAML", help="read values of flags from this file")
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
    # --output-filename with both streams in one file; hidden, because one way is enough.
    parser.add_argument("--tee", metavar="DIR", help=argparse.SUPPRESS)
    _add_choice_of_ranks(parser)
    parser.add_argument("--disable-cache", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--termination-grace-seconds",
        type=decimal,
        default=5.0,
        metavar="SECONDS",
        help="seconds from one signal to the next, of which the last is SIGKILL (default: 5)",
    )
    _add_metrics(parser)
    _add_hosts(parser)
    _add_network(parser)
    _add_controllers(parser)
    _add_knobs(parser)
    _add_elastic(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program and its arguments")
    return parser


def _add_choice_of_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output-ranks",
        type=ranks,
        metavar="LIST",
        help="show only the output of these ranks, such as 0 or 0,4-7, and the tracebacks of all",
    )
    parser.add_argument(
        "--debug-rank",
        type=whole,
        metavar="RANK",
        help="give this rank the terminal, for a debugger such as pdb; no hang is reported "
        "meanwhile, and Ctrl-C ends the job",
    )


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("metrics of all ranks, while the job runs")
    group.add_argument(
        "--metrics-port",
        type=port,
        help="serve them to Prometheus at http://127.0.0.1:PORT/metrics",
    )
    group.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        help="file with the bearer token that Prometheus sends; created if it does not exist "
        "(default: ~/.config/sirtaki/metrics-token)",
    )
    group.add_argument(
        "--metrics-file", metavar="FILE", help="append a line of JSON to this file at each interval"
    )
    group.add_argument(
        "--metrics-interval",
        type=decimal,
        metavar="SECONDS",
        help="interval of --metrics-file (default: 10)",
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts")
    exclusive = add_hosts_and_ssh(group, "hosts, and how many processes each of them takes")
    exclusive.add_argument(
        "--host-discovery-script",
        metavar="SCRIPT",
        help="(elastic) program that prints the hosts that are available",
    )
    group.add_argument(
        "-x",
        dest="forward",
        action="append",
        metavar="NAME[=VALUE]",
        help="set this environment variable for the processes on all hosts (repeatable); for a "
        "secret give NAME alone, which takes the value from your environment",
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
    group.add_argument("--shared-heap", nargs="?", action=_SharedHeap, help=argparse.SUPPRESS)
    _add_nodes(parser)


def add_hosts_and_ssh(
    group: argparse._ArgumentGroup, hosts: str
) -> argparse._MutuallyExclusiveGroup:
    """Add flags for the hosts and how they are reached; returns the group of the hosts."""
    exclusive = group.add_mutually_exclusive_group()
    exclusive.add_argument("-H", "--hosts", metavar="NAME:SLOTS[@PORT],…", help=hosts)
    exclusive.add_argument(
        "-hostfile",
        "--hostfile",
        metavar="FILE",
        help='file with the hosts, as lines "name slots=N"',
    )
    group.add_argument("-p", "--ssh-port", type=port, help="ssh port of the hosts")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="private key for ssh")
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
        help="network interface to use (repeatable, or a comma-separated list)",
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("nodes that each run this command, such as pods")
    group.add_argument("--nnodes", type=positive, metavar="N", help="number of nodes ($PET_NNODES)")
    group.add_argument(
        "--node-rank",
        type=whole,
        metavar="N",
        help="number of this node, from 0 ($PET_NODE_RANK, $JOB_COMPLETION_INDEX)",
    )
    group.add_argument(
        "--nproc-per-node",
        metavar="N",
        help="processes on each node: a number, gpu, cpu or auto ($PET_NPROC_PER_NODE, else 1)",
    )
    group.add_argument(
        "--master-addr", metavar="NAME", help="address of node 0 ($PET_MASTER_ADDR, $MASTER_ADDR)"
    )
    group.add_argument(
        "--master-port",
        type=port,
        metavar="PORT",
        help="port on which node 0 listens ($PET_MASTER_PORT, $MASTER_PORT, else 29500)",
    )


def _add_network(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network")
    add_interfaces(group)
    group.add_argument(
        "--tls", action="store_true", help="encrypt the traffic between hosts (SIRTAKI_TLS)"
    )
    group.add_argument("--tcp", action="store_true", help="NCCL over TCP only (NCCL_IB_DISABLE)")


def _add_controllers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("transport")
    exclusive = group.add_mutually_exclusive_group()
    for name, text in (
        ("gloo", "use Sirtaki's own transport (default)"),
        ("mpi", "start the processes with mpirun"),
        ("jsrun", "start the processes with jsrun (the default in LSF jobs that have it)"),
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
                text = _hidden_if_old(knob.help)
                group.add_argument(
                    knob.flag, type=knob.convert, metavar=_metavar(knob.convert), help=text
                )
        for switch in SWITCHES:
            if switch.key.startswith(f"{section}."):
                pair = group.add_mutually_exclusive_group()
                text = _hidden_if_old(switch.help)
                pair.add_argument(
                    switch.flag, dest=switch.dest, action="store_true", default=None, help=text
                )
                pair.add_argument(
                    f"--no-{switch.flag[2:]}",
                    dest=switch.dest,
                    action="store_false",
                    default=None,
                    help=argparse.SUPPRESS,
                )
        if section == "logging":
            _add_timestamps(group)


def _hidden_if_old(text: str) -> str:
    return argparse.SUPPRESS if text.startswith(ACCEPTED) else text


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
        help="begin every line of output with the time",
    )


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("elastic training (lost processes are replaced)")
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        dest="min_num_proc",
        type=positive,
        help="elastic training: continue while at least this many processes are left",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        dest="max_num_proc",
        type=positive,
        help="start at most this many processes where hosts have slots (default: NUM_PROC)",
    )
    group.add_argument(
        "--spares",
        type=whole,
        metavar="N",
        help="keep this many idle processes ready to replace lost ones (default: 0)",
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
        help="end the job after fewer than --min-np processes were ready for this long "
        "(default: 600)",
    )
    group.add_argument(
        "--unresponsive-seconds",
        dest="unresponsive",
        type=positive,
        metavar="SECONDS",
        help="replace a process that is stopped or silent for this long; a host is lost after "
        "min(SECONDS, 5) seconds of silence (default: 5)",
    )
    group.add_argument(
        "--leave-seconds",
        type=positive,
        metavar="SECONDS",
        help="after SIGTERM or SIGUSR1, processes have this long to finish their step, commit and "
        "write a checkpoint (default: 25)",
    )
    group.add_argument(
        "--reset-limit",
        type=positive,
        help="end the job after it has restarted this many times (default: no limit)",
    )
    group.add_argument(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=whole,
        nargs=2,
        metavar=("MIN", "MAX"),
        help="seconds for which a failed host is not used; they double with each failure "
        "(default: 1 60)",
    )
