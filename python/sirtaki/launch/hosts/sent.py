"""Which of our variables the ranks on other hosts get: nearly all, as with Horovod."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sirtaki.schedulers.table import is_of_a_host

# Variables specific to a host, a login, or a start by another launcher.
_OWN_NAMES = frozenset(
    (
        *("HOME", "USER", "LOGNAME", "SHELL", "MAIL", "HOSTNAME", "HOST", "HOSTTYPE", "MACHTYPE"),
        *("PWD", "OLDPWD", "SHLVL", "_", "TERM", "TMPDIR", "TMP", "TEMP", "DISPLAY", "XAUTHORITY"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WINDOWID", "WAYLAND_DISPLAY"),
    )
)
_OWN = re.compile(
    r"(BASH_FUNC_|SSH_|XDG_|DBUS_|GPG_|SUDO_|TMUX|STY$|LC_TERMINAL|VSCODE_)"
    r"|.*VISIBLE_DEVICES$|.*\.|.*%%$"
)
# Words that indicate a secret, at the beginning or end of a word in a name.
_SECRET = re.compile(
    r"SECRET|PASSW|PASSPHRASE|CREDENTIAL|(^|_)\w*(TOKEN|APIKEY)(S?)(_|$)|(^|_)(PASS|PWD|AUTH)(_|$)"
    r"|KEYS?(_ID)?$|COOKIE|CONNECTION_STRING|(^|_)(DSN|SAS)(_|$)"
)
# scheme://name:password@host
_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]+@")


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable's name, or a password in its URL, makes it look like a secret."""
    return bool(_SECRET.search(name.upper()) or _WITH_PASSWORD.search(value))


def sent(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that ranks on other hosts get."""
    return {
        name: value
        for name, value in environ.items()
        if not _is_a_hosts_own(name) and not may_be_secret(name, value)
    }


def kept_back(environ: Mapping[str, str], named: Iterable[str]) -> str:
    """Return a message about variables that are not sent because they look like secrets, or "".

    named: those named by -x.
    """
    found = sorted(
        name
        for name, value in environ.items()
        if may_be_secret(name, value) and not _is_a_hosts_own(name) and name not in named
    )
    if not found:
        return ""
    return (
        f"processes on other hosts do not get {', '.join(found)}, which look like secrets: name "
        f"those that they need, as with -x {found[0]}"
    )


def _is_a_hosts_own(name: str) -> bool:
    return name in _OWN_NAMES or is_of_a_host(name) or _OWN.match(name) is not None
