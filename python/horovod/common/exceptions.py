"""The exceptions of collective operations."""

from sirtaki.core.errors import (
    CollectiveTimeoutError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    PeerLostError,
)


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Return the message for a framework of another version than the compiled one."""
    return f"Horovod was compiled against {name} {version}, but {installed_version} is installed."


class HorovodVersionMismatchError(ImportError):
    """Never raised: nothing is compiled against a framework's version."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
