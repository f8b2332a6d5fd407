"""A long cable that delays or loses frames, also on kernels without netem.

It consists of two TAP devices, and a thread that carries frames from one to the other.
"""

import fcntl
import os
import random
import select
import struct
import threading
import time
from collections import deque
from contextlib import suppress

_TUNSETIFF = 0x400454CA  # linux/if_tun.h, as the constants below
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_MAX_FRAME_BYTES = 1 << 16


def open_tap(name: str) -> int:
    """Return the descriptor of a new TAP device in the network namespace of this thread. Raises OSError."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class SlowCable:
    """A cable between two TAP devices, which it closes at its end."""

    def __init__(self, ends: tuple[int, int], delay_s: float, loss: float) -> None:
        """`delay_s`: of one direction. `loss`: the share of frames that are lost."""
        self._others = {ends[0]: ends[1], ends[1]: ends[0]}
        self._delay_s = delay_s
        self._loss = loss
        self._rng = random.Random(1)
        self._under_way: deque[tuple[float, int, bytes]] = deque()  # by arrival: all take as long
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End the cable. Frames under way are lost."""
        os.close(self._wake)
        self._thread.join()
        for descriptor in (self._woken, *self._others):
            os.close(descriptor)

    def _run(self) -> None:
        while True:
            wait = max(self._under_way[0][0] - time.monotonic(), 0) if self._under_way else None
            readable, _, _ = select.select([self._woken, *self._others], [], [], wait)
            if self._woken in readable:
                return
            for end in readable:
                self._take(end)
            self._deliver(time.monotonic())

    def _take(self, end: int) -> None:
        with suppress(OSError):  # the device is down
            frame = os.read(end, _MAX_FRAME_BYTES)
            if self._rng.random() >= self._loss:
                self._under_way.append((time.monotonic() + self._delay_s, self._others[end], frame))

    def _deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            _, end, frame = self._under_way.popleft()
            with suppress(OSError):
                os.write(end, frame)
