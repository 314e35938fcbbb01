"""A job with a launcher on each node: node 0's waits for the others, which act as agents."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.nodes import Nodes, leave_node
from sirtaki.launch.hosts.slots import is_local
from sirtaki.launch.processes.agent_server import AgentServer, NodeChannel
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.processes.connecting_agent import serve
from sirtaki.rendezvous.network.tcp_socket import format_endpoints
from sirtaki.rendezvous.stores.tcp_store import TLS_SCHEME

# The share of the start timeout, so that a node can still report why it could not connect.
_CALL_SHARE = 0.9


@contextlib.contextmanager
def called_by_nodes(nodes: Nodes, addresses: Sequence[str]) -> Iterator[list[Channel]]:
    """Accept the launchers of all nodes but the first. Raises LaunchError.

    addresses: of this machine, at which they can reach it.
    """
    try:
        server = AgentServer(
            addresses, nodes.secret, nodes.names()[1:], complete=lambda: None, port=nodes.port
        )
    except OSError as error:
        raise LaunchError(
            f"cannot listen for the other nodes at port {nodes.port} of {', '.join(addresses)}: "
            f"{error.strerror or error}; choose another with --master-port"
        ) from None
    with server:
        yield [NodeChannel(server, number) for number in range(nodes.total - 1)]


def join(nodes: Nodes, settings: Settings) -> int:
    """Start the ranks of this node for the launcher of node 0; returns the exit code.

    Raises LaunchError when that launcher cannot be reached.
    """
    kept = leave_node(os.environ)
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    if is_local(nodes.address):
        print(
            f"sirtaki: {nodes.names()[nodes.rank]} looks for node 0 on this machine, which is "
            f"--master-addr {nodes.address}; if node 0 is another machine, give its address",
            file=sys.stderr,
        )
    call = {
        "address": TLS_SCHEME + format_endpoints([nodes.address], nodes.port),
        "seconds": settings.start_timeout * _CALL_SHARE,
    }
    agent = serve(call, nodes.secret, nodes.rank - 1, patient=True)
    if agent.orphaned:
        print(
            f"sirtaki: {nodes.names()[nodes.rank]}: the launcher of {nodes.names()[0]} has ended "
            "or cannot be reached any more, so the ranks here were ended; its output says why",
            file=sys.stderr,
        )
    return FAILED if agent.orphaned or agent.has_failed else 0
