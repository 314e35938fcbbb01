"""What the main thread waits for, as the kernel knows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, select, threading, time
from sirtaki.questions.place import place

def tell():
    while not (call := place()["call"]):
        time.sleep(0.01)
    print(call, flush=True)
    os._exit(0)

end, _ = os.pipe()
lock = threading.Lock()
lock.acquire()
threading.Timer(0.1, tell).start()
{}
"""


@pytest.mark.parametrize(
    ("wait", "call"),
    [
        ("time.sleep(60)", "sleep"),
        # As `time.sleep` does on Python 3.10.
        ("select.select([], [], [], 60)", "sleep"),
        ("select.poll().poll(60_000)", "sleep"),
        ("select.select([end], [], [], 60)", "read"),
        ("polled = select.poll(); polled.register(end); polled.poll(60_000)", "read"),
        ("os.read(end, 1)", "read"),
        ("lock.acquire()", "lock"),
    ],
)
def test_each_kind_of_wait_is_recognized(wait: str, call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(wait)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{call}\n", done.stderr
