"""A bed of virtual hosts on one machine: own network, names, processes and a real sshd each.

Every host is a set of namespaces with an address 192.168.11.x on a common bridge, which has a
namespace of its own, so that the machine's network stays as it is. All of it hangs on processes
that die with the one that made the bed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests import needs

SSH_PORT = 12345
_LIMIT = 150.0
_POLL = 0.02
_NUMBERS = (3, 5, 6, *range(7, 200))
_PROGRAMS = ("bridge", "ip", "nsenter", "setpriv", "ssh", "ssh-keygen", "unshare")
_ROOT_SSH = Path("/root/.ssh")
# Whoever ignores the end of its children has them buried by the kernel, the adopted ones too.
_INIT = (
    "import signal\n"
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "while True: signal.pause()"
)
_SSHD_CONFIG = f"""\
Port {SSH_PORT}
HostKey {{folder}}/host_key
PidFile {{folder}}/sshd.pid
AuthorizedKeysFile {{folder}}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 200
"""


def reason_to_skip() -> str | None:
    """Why there can be no bed here; None when there can."""
    if os.geteuid() != 0:
        return needs.missing("root")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if _sshd() is None:
        missing.append("sshd")
    if missing:
        return needs.missing(", ".join(missing))
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "true"], capture_output=True
    )
    return None if probe.returncode == 0 else needs.missing(f"namespaces: {probe.stderr!r}")


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Namespaces:
    """Fresh namespaces with a process that keeps them; all in them dies when it is closed."""

    def __init__(self, *kinds: str) -> None:
        self._enter = [f"--{kind}" for kind in kinds]
        command = [
            *("setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child=KILL"),
            *(f"--{kind}" for kind in kinds),
            *(["--mount-proc"] if "pid" in kinds else []),
            *("--", sys.executable, "-I", "-S", "-c", _INIT),
        ]
        self._keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == "up\n"
        self.pid = child_of(self._keeper.pid)

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` inside, in the folder where we are."""
        enter = [f"--target={self.pid}", *self._enter, f"--wd={Path.cwd()}"]
        return ["nsenter", *enter, "--", *command]

    def do(self, *command: str) -> str:
        """Run a command inside that must succeed; returns what it prints."""
        done = subprocess.run(self.command(*command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """Kill everything inside."""
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()


def children_of(pid: int) -> list[int]:
    """The children that a process has now."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(pid: int) -> int:
    """The first child of a process, as soon as there is one."""
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        if children := children_of(pid):
            return children[0]
        time.sleep(_POLL)
    raise AssertionError(f"process {pid} started no other")


class VirtualHost:
    """One host of a bed. name: its own host name. address: on the common network."""

    def __init__(self, number: int, bed: Bed) -> None:
        self.name = f"node{number}"
        self.address = f"192.168.11.{number}"
        self.address6 = f"fd00:11::{number}"
        self.folder = bed.folder / self.name
        self._bed = bed
        self._port = f"port{number}"
        self._space = Namespaces("net", "uts", "mount", "pid")
        self._sshd: subprocess.Popen[bytes] | None = None
        self._undo_link = contextlib.ExitStack()
        self.folder.mkdir()

    # ---- Set-up ----

    def set_up(self, hosts: Sequence[VirtualHost], rate: str | None) -> None:
        """Connect to the bridge, learn the others' names, and serve ssh."""
        switch, inside = self._bed.switch, self._space
        veth = ("type", "veth", "peer", "name", "eth0", "netns", str(inside.pid))
        switch.do("ip", "link", "add", self._port, *veth)
        switch.do("ip", "link", "set", self._port, "master", "bridge", "up")
        inside.do("hostname", self.name)
        inside.do("ip", "link", "set", "lo", "up")
        inside.do("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        inside.do("ip", "address", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        inside.do("ip", "link", "set", "eth0", "up")
        if rate is not None:
            # So much passes at any speed after a pause: with more, whole messages on slow links.
            burst = "64kb" if rate.endswith("mbit") else "256kb"
            shape = ("root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")
            switch.do("tc", "qdisc", "add", "dev", self._port, *shape)
            inside.do("tc", "qdisc", "add", "dev", "eth0", *shape)
        self._write_hosts_file(hosts)
        self._make_ssh_folders()
        self.start_sshd()

    def _write_hosts_file(self, hosts: Sequence[VirtualHost]) -> None:
        # Many systems let the own name mean a loopback address that no other host can reach.
        lines = ["127.0.0.1 localhost", f"127.0.1.1 {self.name}"]
        lines += [f"{host.address} {host.name}" for host in hosts if host is not self]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        self._space.do("mount", "--bind", str(self.folder / "hosts"), "/etc/hosts")

    def _make_ssh_folders(self) -> None:
        host_key, user = self.folder / "host_key", self.folder / "user"
        make_key(host_key)
        user.mkdir(mode=0o700)
        for name in ("id_ed25519", "id_ed25519.pub"):
            shutil.copy(self._bed.folder / name, user / name)
        shutil.copy(self._bed.folder / "id_ed25519.pub", self.folder / "authorized_keys")
        (self.folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=self.folder))
        # ssh looks for its files in the user's home whatever $HOME says.
        self._space.do("mount", "--bind", str(user), str(_ROOT_SSH))
        # What this machine's shell does at its start is not the tests' subject, and may be slow.
        (self.folder / "empty").touch()
        for name in (".bashrc", ".zshenv"):
            if (_ROOT_SSH.parent / name).exists():
                start_up = str(_ROOT_SSH.parent / name)
                self._space.do("mount", "--bind", str(self.folder / "empty"), start_up)

    # ---- Use ----

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` on this host."""
        return self._space.command(*command)

    def run(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        timeout: float = _LIMIT,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end."""
        return subprocess.run(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env,
            check=False,
        )

    @contextlib.contextmanager
    def running(
        self, *command: str, env: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command on this host meanwhile; its output is one pipe. `signal_to` reaches it."""
        process = subprocess.Popen(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        with process:
            try:
                yield process
            finally:
                kill(process)

    def processes(self) -> dict[int, str]:
        """The command lines of what runs on this host, by the machine's process ids.

        Its first process and sshd are left out.
        """
        space = Path(f"/proc/{self._space.pid}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            # A process may end at any time between being listed and being read.
            with contextlib.suppress(OSError, ValueError):
                if int(entry.name) == self._space.pid or (entry / "ns/pid").readlink() != space:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if command and "sshd" not in command.split()[0]:
                    found[int(entry.name)] = command
        return found

    def start_sshd(self) -> None:
        """Serve ssh on SSH_PORT; returns when it answers."""
        sshd = _sshd()
        assert sshd is not None
        config, log = str(self.folder / "sshd_config"), str(self.folder / "sshd.log")
        self._sshd = subprocess.Popen(self.command(sshd, "-D", "-f", config, "-E", log))
        deadline = time.monotonic() + _LIMIT
        while f"port {SSH_PORT}" not in (Path(log).read_text() if Path(log).exists() else ""):
            assert self._sshd.poll() is None, "sshd did not start; see sshd.log"
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(_POLL)

    def kill_sshd(self) -> None:
        """Kill sshd and all its sessions, but not what they have started."""
        self._space.do("pkill", "-KILL", "-x", "sshd")
        assert self._sshd is not None
        self._sshd.wait(_LIMIT)
        (self.folder / "sshd.log").unlink()

    def stop(self) -> None:
        """Stop all processes but the first, sshd too, as a machine that is suspended."""
        self._space.do("kill", "-STOP", "--", "-1")

    def resume(self) -> None:
        self._space.do("kill", "-CONT", "--", "-1")
        if self._sshd is not None:  # nsenter, which has stopped with sshd
            self._sshd.send_signal(signal.SIGCONT)

    def cut_off(self) -> None:
        """Pull the cable."""
        self._bed.switch.do("ip", "link", "set", self._port, "down")

    def set_apart(self) -> None:
        """Let it reach no other host that is set apart."""
        self._bed.switch.do("bridge", "link", "set", "dev", self._port, "isolated", "on")

    def cut_one_way(self, inwards: bool) -> None:
        """Lose all that comes to it, or all that comes from it."""
        # No frame fits into so short a queue.
        lose = ("root", "bfifo", "limit", "1")
        device, where = (self._port, self._bed.switch) if inwards else ("eth0", self._space)
        where.do("tc", "qdisc", "add", "dev", device, *lose)
        self._undo_link.callback(where.do, "tc", "qdisc", "del", "dev", device, "root")

    def slow_down(self, seconds: float, loss: float, seed: int) -> None:
        """Let frames to and from it come later, and some not at all: a share of `loss`."""
        switch, number = self._bed.switch, self._port.removeprefix("port")
        lan, here, there = (f"{name}{number}" for name in ("lan", "here", "there"))
        forwarder = subprocess.Popen(
            switch.command(
                *(sys.executable, str(Path(__file__).with_name("slow_link.py"))),
                *(here, there, str(seconds), str(loss), str(seed)),
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._undo_link.callback(switch.do, "ip", "link", "del", lan)
        self._undo_link.enter_context(forwarder)
        self._undo_link.callback(forwarder.kill)
        self._undo_link.callback(switch.do, "ip", "link", "set", self._port, "master", "bridge")
        assert forwarder.stdout is not None
        assert forwarder.stdout.readline() == "up\n"
        switch.do("ip", "link", "add", lan, "type", "bridge")
        for device, bridge in ((here, lan), (there, "bridge"), (self._port, lan)):
            switch.do("ip", "link", "set", device, "master", bridge, "up")
        switch.do("ip", "link", "set", lan, "up")

    def throttle(self, rate: str) -> None:
        """Let no more bytes go to and from it."""
        shape = ("root", "tbf", "rate", rate, "burst", "4kb", "latency", "500ms")
        for device, where in ((self._port, self._bed.switch), ("eth0", self._space)):
            where.do("tc", "qdisc", "add", "dev", device, *shape)
            self._undo_link.callback(where.do, "tc", "qdisc", "del", "dev", device, "root")

    def reconnect(self) -> None:
        """Put the cable back."""
        self._undo_link.close()
        self._bed.switch.do("ip", "link", "set", self._port, "up")
        self._bed.switch.do("bridge", "link", "set", "dev", self._port, "isolated", "off")

    def close(self) -> None:
        """End all that runs there."""
        self.reconnect()
        self._space.close()
        if self._sshd is not None:
            self._sshd.wait(_LIMIT)


def signal_to(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to what `running` runs; the process itself is only the way in."""
    os.kill(child_of(process.pid), number)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill what `running` runs, which may be ending."""
    deadline = time.monotonic() + _LIMIT
    while process.poll() is None:
        assert time.monotonic() < deadline, f"process {process.pid} does not end"
        with contextlib.suppress(ProcessLookupError):
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
        time.sleep(_POLL)


def make_key(path: Path) -> None:
    """Make a pair of keys without a passphrase."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class Bed:
    """`count` hosts on one bridge, usable as a context.

    folder: empty, receives keys and logs. rate: of every link in both directions, as tc has it
    ("1gbit"), unlimited when None.
    """

    def __init__(self, count: int, folder: Path, rate: str | None = None) -> None:
        self.folder = folder
        self.hosts: list[VirtualHost] = []
        self._undo = contextlib.ExitStack()
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        # It stays: removing it would take away what other beds have mounted on it.
        _ROOT_SSH.mkdir(mode=0o700, exist_ok=True)
        try:
            self._make(count, rate)
        except BaseException:
            self.close()
            raise

    def _make(self, count: int, rate: str | None) -> None:
        make_key(self.folder / "id_ed25519")
        self.switch = Namespaces("net")
        self._undo.callback(self.switch.close)
        self.switch.do("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.do("ip", "link", "set", "bridge", "up")
        for number in _NUMBERS[:count]:
            host = VirtualHost(number, self)
            self._undo.callback(host.close)
            self.hosts.append(host)
        for host in self.hosts:
            host.set_up(self.hosts, rate)

    def wait_until_idle(self) -> None:
        """Return once nothing but sshd runs on any host; fail when that lasts very long."""
        deadline = time.monotonic() + _LIMIT
        while left := {host.name: host.processes() for host in self.hosts if host.processes()}:
            if time.monotonic() > deadline:
                for pid in (pid for found in left.values() for pid in found):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"still alive: {left}")
            time.sleep(_POLL)

    def close(self) -> None:
        """End all that runs in the bed, and the bed."""
        self._undo.close()

    def __enter__(self) -> Bed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
