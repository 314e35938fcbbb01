"""Host discovery for elastic jobs."""

from __future__ import annotations

from sirtaki.launch.elastic.discovery import hosts_of_script


class HostDiscovery:
    """Finds the hosts currently available to a job; base class for users."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the number of slots by host name."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Runs a script that prints a line "host" or "host:slots" for each host.

    Args:
        discovery_script: The command, run by a shell.
        slots: The slots of hosts for which the script prints none; default: 1.
    """

    def __init__(self, discovery_script: str, slots: int | None = None) -> None:
        self._script = discovery_script
        self._slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the script.

        Raises:
            LaunchError: It fails or prints an invalid host; also a ValueError.
        """
        return hosts_of_script(self._script, self._slots or 1)


class FixedHosts(HostDiscovery):
    """A fixed set of hosts.

    Args:
        available_hosts: The number of slots by host name.
    """

    def __init__(self, available_hosts: dict[str, int]) -> None:
        self._hosts = dict(available_hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the hosts."""
        return dict(self._hosts)

    def set(self, available_hosts: dict[str, int]) -> None:
        """Replace the hosts."""
        self._hosts = dict(available_hosts)
