"""TCP connections that notice when the other machine is gone."""

from __future__ import annotations

import socket

# A silent machine is given up after IDLE + INTERVAL * COUNT seconds. The kernel answers for a
# process that is merely stopped, so Ctrl-Z at the launcher is no reason. Ranks notice earlier
# (HOROVOD_HOST_TIMEOUT_SECONDS) and say which of them it was: they are to have the time for that.
_IDLE, _INTERVAL, _COUNT = 4, 2, 5


def keep_alive(sock: socket.socket) -> None:
    """Makes the kernel notice within seconds, even in silence, that the other machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _COUNT)
