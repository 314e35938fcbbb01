"""How the launcher takes signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirtaki.doctor import doctor
from sirtaki.launch import cli
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.rendezvous.host.presence import stat_of


@pytest.mark.timeout(20)
def test_a_signal_that_was_taken_while_output_was_written_is_not_waited_for_again() -> None:
    with SignalWatch() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert signals.take() == signal.SIGUSR1
        assert signals.take() is None


def test_copies_of_a_signal_are_dropped_and_others_kept() -> None:
    with SignalWatch() as signals:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            signal.raise_signal(number)
        assert signals.take() == signal.SIGTERM
        signals.drop_copies(signal.SIGTERM)
        assert [signals.take(), signals.take()] == [signal.SIGUSR1, None]


def test_ctrl_c_ends_a_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "main", interrupted)
    assert cli.main(["doctor", "--hosts"]) == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_ends_a_search_for_hosts(tmp_path: Path) -> None:
    found = tmp_path / "pid"
    script = f"echo $$ > {found}.new; mv {found}.new {found}; exec sleep 1000"
    flags = ["-np", "1", "--min-np", "1", "--host-discovery-script", script]
    launcher = [sys.executable, "-m", "sirtaki.launch.cli", "run", *flags, "true"]
    with subprocess.Popen(launcher, start_new_session=True) as process:
        while not found.exists():
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 128 + signal.SIGINT
        assert time.monotonic() - began < 30  # the script's own limit is 60
    assert stat_of(found.read_text().strip()).state in ("", "Z")


def test_a_signal_of_the_callers_own_goes_to_the_caller() -> None:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    reader.settimeout(20)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer.fileno())
    try:
        with SignalWatch() as signals:
            signal.raise_signal(signal.SIGCHLD)
            assert signals.take() is None
        assert reader.recv(8) == bytes([signal.SIGCHLD])
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        reader.close()
        writer.close()


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space")])
def test_output_that_finds_no_reader_or_no_room_is_no_traceback(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(arguments: object) -> int:
        raise error

    monkeypatch.setattr(doctor, "main", fails)
    code = 128 + signal.SIGPIPE if isinstance(error, BrokenPipeError) else 1
    assert cli.main(["doctor"]) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [(), ("--help",), ("ps",), ("submit", "--help"), ("completion", "bash"), ("no",)]
)
@pytest.mark.parametrize("closed", [1, 2])
def test_a_pipe_that_nobody_reads_is_no_traceback(words: tuple[str, ...], closed: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    streams = {1: subprocess.PIPE, 2: subprocess.PIPE, closed: writer}
    run = "import sys; from sirtaki.launch import cli; sys.exit(cli.main())"
    with subprocess.Popen(
        [sys.executable, "-c", run, *words], stdout=streams[1], stderr=streams[2], text=True
    ) as done:
        os.close(writer)
        said = "".join(each or "" for each in done.communicate(timeout=60))
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert done.returncode in (0, 2, 128 + signal.SIGPIPE)


def test_a_command_without_standard_output_is_no_traceback() -> None:
    run = "import sys; from sirtaki.launch import cli; sys.exit(cli.main())"
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", run, "doctor", "--quick"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
