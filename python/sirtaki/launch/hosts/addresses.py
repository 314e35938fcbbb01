"""The addresses at which the hosts of a job can reach this one."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.rendezvous.network.interfaces import Interface, interfaces, routes
from sirtaki.rendezvous.network.tcp_socket import listen


def own_addresses(hosts: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return this machine's addresses on the routes to `hosts`, or all if a host has no route.

    chosen: names of interfaces that override the routes; of their addresses, those of the family,
    IPv4 or IPv6, of the routes. Raises LaunchError when this machine has none of the interfaces,
    or no address that another host could use.
    """
    ways = [_on_the_way_to(host) for host in hosts]
    if chosen:
        found = _of_interfaces(chosen)
        kinds = {":" in address for way in ways for address in way}
        return [address for address in found if (":" in address) in kinds] or found
    if not all(ways):
        # ssh may know the host by its own configuration.
        ways.extend(_by_interface().values())
    leading = {address for way in ways for address in way}
    if not leading:
        raise LaunchError("this machine has no address that other hosts can reach")
    return sorted(leading)


def all_addresses(chosen: Sequence[str]) -> list[str]:
    """Return all addresses of this machine that other hosts can use now, IPv4 and IPv6.

    chosen: the only interfaces to consider, if any. Raises LaunchError when there is no address.
    """
    present = _by_interface()
    found = _of_interfaces(chosen) if chosen else [a for own in present.values() for a in own]
    usable = [address for address in sorted(set(found)) if _can_listen(address)]
    if not usable:
        raise LaunchError("this machine has no address that other hosts can reach")
    return usable


def _can_listen(address: str) -> bool:
    # The system may still be checking an address that it has just assigned (DAD).
    try:
        listen(address).close()
    except OSError:
        return False
    return True


def require_interfaces(chosen: Sequence[str]) -> None:
    """Raise LaunchError when this machine has none of the interfaces that were chosen."""
    present = {interface.name: list(interface.addresses) for interface in _present()}
    if present.keys().isdisjoint(chosen):
        raise _no_such(chosen, present)


def _on_the_way_to(host: str) -> list[str]:
    return [source for _target, source in routes(host) if _is_of_use(source)]


def _of_interfaces(names: Sequence[str]) -> list[str]:
    present = _by_interface()
    found = [address for name in names for address in present.get(name, [])]
    if not found:
        raise _no_such(names, present)
    return found


def _no_such(names: Sequence[str], present: Mapping[str, Sequence[str]]) -> LaunchError:
    has = "; ".join(f"{name}: {', '.join(own)}" for name, own in sorted(present.items()))
    return LaunchError(
        f"--network-interfaces {','.join(names)}: no such interface with an address here; "
        f"there are {has or 'none'}"
    )


def _present() -> list[Interface]:
    try:
        return interfaces()
    except OSError as error:
        raise LaunchError(f"cannot list this machine's network interfaces: {error}") from None


def _by_interface() -> dict[str, list[str]]:
    present = _present()
    useful = {i.name: [address for address in i.addresses if _is_of_use(address)] for i in present}
    return {name: addresses for name, addresses in useful.items() if addresses}


def _is_of_use(address: str) -> bool:
    """Return whether other hosts can use an address; a link-local one depends on the interface."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return "%" not in address and not (parsed.is_loopback or parsed.is_link_local)
