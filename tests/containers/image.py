"""The image of docker/Dockerfile, built without a Docker engine and without a registry of images.

Its base is what debootstrap makes, kept under the name that the Dockerfile asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests import needs

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/sirtaki-test"
_BASE = "docker.io/library/debian:bookworm-slim"
_SUITE, _PYTHON = "bookworm", "3.11"
_PROGRAMS = ("podman", "buildah", "runc", "debootstrap", "catatonit", "ip", "nsenter", "unshare")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/libexec/podman"
_REQUIREMENTS = ("build", "run")


def reason_to_skip() -> str | None:
    """Why there can be no containers here; None when there can."""
    if os.geteuid() != 0:
        return needs.missing("root")
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    return needs.missing(", ".join(absent)) if absent else None


def build(folder: Path) -> None:
    """Build the image from this checkout's files; unchanged steps are taken from the last build."""
    if subprocess.run(["podman", "image", "exists", _BASE], check=False).returncode != 0:
        _make_base(folder)
    wheels, context, settings = folder / "wheels", folder / "context", folder / "pip.conf"
    requirements = [f"--requirement={ROOT}/tools/requirements-{name}.txt" for name in _REQUIREMENTS]
    pip = [str(ROOT / ".venv/bin/python"), "-m", "pip", "download", "--quiet"]
    _do(
        *pip,
        *("--only-binary=:all:", f"--python-version={_PYTHON}", f"--dest={wheels}"),
        *requirements,
    )
    settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    _copy_sources(context)
    mounts = (f"--volume={wheels}:/wheels:ro", f"--volume={settings}:/etc/pip.conf:ro")
    where = ("--tag", IMAGE, "--file", "docker/Dockerfile", str(context))
    _do(
        *("buildah", "bud", "--isolation", "chroot", "--layers", *mounts),
        *("--build-arg", "TORCH=torch", *where),
        folder=context,
    )


def _make_base(folder: Path) -> None:
    root = folder / "root"
    listed = _do("apt-get", "indextargets", "--format", "$(REPO_URI)").split()
    mirror = next(address for address in listed if "security" not in address)
    _do("debootstrap", "--variant=minbase", _SUITE, str(root), mirror)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["podman", "import", "-", _BASE], stdin=packed.stdout, check=True)
    shutil.rmtree(root)


def _copy_sources(context: Path) -> None:
    for name in _do("git", "ls-files", "-z", folder=ROOT).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _do(*command: str, folder: Path | None = None) -> str:
    return run(command, folder=folder).stdout


def run(
    command: Sequence[str], *, folder: Path | None = None, limit: float = 1200.0
) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done
