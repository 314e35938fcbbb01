"""A Python for another processor: Debian's, unpacked into a folder and run by QEMU.

Nothing of it is installed on this machine, and nothing needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = """\
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "0";
APT::Sandbox::User "";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/debian.sources";
Dir::Etc::sourceparts "-";
"""
_SOURCES = """\
Types: deb
URIs: {archive}
Suites: {suite}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@dataclass(frozen=True)
class Emulated:
    """A Python that runs in an emulator; version as in 3.13, command: a script that starts it."""

    version: str
    command: Path


def why_not() -> str | None:
    """Return what is missing here, None where `make` can do its work."""
    for name in ("apt-get", "dpkg-deb"):
        if shutil.which(name) is None:
            return name
    return None if _archive() else "Debian's package lists: apt-get update"


def make(folder: Path, suite: str) -> Emulated:
    """Unpack a Debian's Python for aarch64, unless that has been done.

    Args:
        folder: Where everything goes.
        suite: Debian's name, such as trixie.
    """
    root = folder / suite / "root"
    emulator = _unpacked(folder / "emulator", "qemu-user-static", "")
    _unpacked(folder / suite, "python3 libstdc++6", suite)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    (python,) = (
        path for path in (root / "usr" / "bin").glob("python3.*") if path.suffix[1:].isdigit()
    )
    packages = folder / suite / "packages"
    script = folder / suite / "python"
    script.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={packages} PYTHONDONTWRITEBYTECODE=1 exec "
        f'{emulator}/usr/bin/qemu-aarch64-static -L {root} {python} "$@"\n'
    )
    script.chmod(0o755)
    return Emulated(python.name.removeprefix("python"), script)


def install(pip: str, emulated: Emulated, *what: str) -> None:
    """Install wheels for the emulated Python, by another Python's pip."""
    packages = emulated.command.parent / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 28)]
    command = [pip, "-m", "pip", "install", "--quiet", "--target", str(packages), "--no-compile"]
    choice = ["--only-binary=:all:", "--python-version", emulated.version, *platforms]
    subprocess.run([*command, *choice, *what], check=True)


def _archive() -> str:
    """Return where this machine has Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"]
    done = subprocess.run(
        [*command, "Created-By: Packages"], capture_output=True, text=True, check=False
    )
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Debian ")]
    return next((uri for uri in found if "security" not in uri), "")


def _unpacked(folder: Path, packages: str, suite: str) -> Path:
    """Return where packages lie unpacked, those of a suite for aarch64 with what they need."""
    root = folder / "root"
    if root.exists():
        return root
    fetched = folder / "cache" / "archives"
    for needed in (folder / "state" / "lists" / "partial", fetched / "partial"):
        needed.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ)
    if suite:
        (folder / "status").write_text("")
        (folder / "debian.sources").write_text(_SOURCES.format(archive=_archive(), suite=suite))
        settings = folder / "apt.conf"
        settings.write_text(_SETTINGS.format(architecture="arm64", folder=folder))
        environ["APT_CONFIG"] = str(settings)
        get = ["install", "--yes", "--download-only", *packages.split()]
        subprocess.run(["apt-get", "--quiet", "update"], check=True, env=environ)
    else:
        get = ["download", packages]
    subprocess.run(["apt-get", "--quiet", *get], check=True, env=environ, cwd=fetched)
    # Half of it must not be taken for all of it.
    partly = folder / "unpacking"
    shutil.rmtree(partly, ignore_errors=True)
    for package in sorted(fetched.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(partly)], check=True)
    partly.rename(root)
    return root
