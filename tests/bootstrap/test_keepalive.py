"""How long a machine may be silent."""

from __future__ import annotations

import math
import socket

import pytest

from horovod._net.keepalive import keep_alive


@pytest.mark.parametrize("seconds", [0.2, 1.0, 3.0, 3.5, 10.0, 60.0, 61.0, 126.0, 3600.0, 1e9, math.inf])
def test_a_machine_is_given_up_after_the_ranks_have_given_it_up(seconds: float) -> None:
    with socket.socket() as sock:
        keep_alive(sock, seconds)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, count = (sock.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # The last sign of life was up to `idle` seconds before the silence.
    earliest, latest = interval * count, idle + interval * count
    assert earliest >= min(seconds, 1e6) + 1
    if seconds <= 60:
        assert latest <= seconds + 3
