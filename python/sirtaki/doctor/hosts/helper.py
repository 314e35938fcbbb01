"""The doctor's part on each host: `python -u -m sirtaki.doctor.hosts.helper`.

It reads requests as lines of JSON from standard input, and answers with lines of JSON. A mark
precedes each answer, because a shell's start-up files may print something too.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sirtaki
from sirtaki.doctor.examination import examine
from sirtaki.doctor.hosts.link import LinkListener, measure
from sirtaki.doctor.network import links, routes_of
from sirtaki.frameworks import frameworks
from sirtaki.rendezvous.host.control_groups import text_of
from sirtaki.rendezvous.network.interfaces import candidates

MARK = "\x1esirtaki "


def main() -> int:
    """Answer until the input ends."""
    _say({"version": sirtaki.__version__})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _REQUESTS[request["do"]](request)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            answer = {"error": str(error) or repr(error)}
        _say(answer)
    return 0


def _say(answer: Mapping[str, Any]) -> None:
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


def _examine(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check this host. towards: the asker's addresses. interfaces: the only ones to use, if any."""
    towards = [(address, 0) for address in request["towards"]]
    return {
        **examine(request["quick"]),
        "versions": versions(),
        "addresses": candidates(towards, request["interfaces"]),
        "interfaces": [asdict(link) for link in links(Path("/sys"))],
        "routes": routes_of(text_of(Path("/proc/net/route"))),
    }


def versions() -> dict[str, str]:
    """Return the versions that must agree on all hosts; "" if not installed."""
    found = {"python": platform.python_version()}
    for package in (*frameworks(), "cloudpickle"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def _clock(_: Mapping[str, Any]) -> dict[str, Any]:
    return {"now": time.time()}


def _listen(request: Mapping[str, Any]) -> dict[str, Any]:
    token = bytes.fromhex(request["token"])
    listener = LinkListener(request["addresses"], token, request["seconds"])
    listener.start()
    return {"endpoints": listener.endpoints}


def _measure(request: Mapping[str, Any]) -> dict[str, Any]:
    endpoints = [(str(host), int(port)) for host, port in request["endpoints"]]
    return measure(endpoints, bytes.fromhex(request["token"]), request["seconds"])


_REQUESTS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "examine": _examine,
    "clock": _clock,
    "listen": _listen,
    "measure": _measure,
}


if __name__ == "__main__":
    sys.exit(main())
