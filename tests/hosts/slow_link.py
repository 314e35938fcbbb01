"""Forwards frames between two TAP devices late, and loses some, as netem does.

python slow_link.py TAP TAP SECONDS LOSS SEED, in the namespace that is to have the devices; prints
"up" when they are there, and they go with the process.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_MOST_BYTES = 1 << 16


def open_tap(name: str) -> int:
    """Make a TAP device, from which frames are read and to which they are written."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


def forward(devices: tuple[int, int], seconds: float, loss: float, chance: random.Random) -> None:
    """Pass on what comes in at one device at the other, for ever."""
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select(devices, (), (), pause)
        now = time.monotonic()
        for device in readable:
            frame = os.read(device, _MOST_BYTES)
            if chance.random() >= loss:
                count += 1
                other = devices[device == devices[0]]
                heapq.heappush(waiting, (now + seconds, count, other, frame))
        while waiting and waiting[0][0] <= now:
            _, _, other, frame = heapq.heappop(waiting)
            try:
                os.write(other, frame)
            except OSError:
                # The device is down or full: a network may lose what it likes.
                continue


if __name__ == "__main__":
    taps = (open_tap(sys.argv[1]), open_tap(sys.argv[2]))
    print("up", flush=True)
    forward(taps, float(sys.argv[3]), float(sys.argv[4]), random.Random(sys.argv[5]))
