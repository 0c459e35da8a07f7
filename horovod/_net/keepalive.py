"""TCP connections that notice when the other machine is gone."""

from __future__ import annotations

import math
import socket

_STEPS = 60  # probes within the given time, at most: the kernel does not count far beyond 100
_LONGEST = 1e6  # seconds; nor does it take intervals of any length


def keep_alive(sock: socket.socket, seconds: float = 10.0) -> None:
    """Makes the kernel notice, even in silence, that the other machine is gone.

    It is given up one to two seconds later than ``seconds``, the time after which ranks give each
    other up (HOROVOD_HOST_TIMEOUT_SECONDS): they notice first and say which of them it was. The
    kernel answers for a process that is stopped or starved, so Ctrl-Z at the launcher is no reason.
    """
    seconds = min(seconds, _LONGEST)
    step = max(1, math.ceil(seconds / _STEPS))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, step)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, step)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, math.ceil(seconds / step) + 1)
