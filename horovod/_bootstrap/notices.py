"""A worker's standing connection to the launcher of an elastic job: notices down, reports up.

A daemon thread of its own only moves messages; it is re-made without a word when it is lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from horovod._bootstrap.elastic_worker import ElasticWorker
from horovod._net.addresses import family_of
from horovod._net.frames import FrameError, FrameStream, Message
from horovod._net.handshake import AuthenticationError, Initiator, Session, authenticate, place_of
from horovod._net.keepalive import keep_alive

_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_UNSENT = 100  # reports kept for a launcher that does not take them; the oldest go first


def notices_purpose(worker: int) -> str:
    """What the connection of a worker is authenticated for."""
    return f"notices|{worker}"


class NoticeClient:
    """`on_message` is called in the thread with what the launcher sends."""

    def __init__(self, worker: ElasticWorker, on_message: Callable[[Message], None]) -> None:
        self._worker = worker
        self._on_message = on_message
        self._unsent: deque[Message] = deque(maxlen=_UNSENT)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._sock: socket.socket | None = None
        self._closed = False
        self.connected = False
        # No child is forked while there is a socket that it would not know of.
        self._opening = threading.Lock()
        os.register_at_fork(
            before=self._opening.acquire,
            after_in_parent=self._opening.release,
            after_in_child=self._opening.release,
        )
        self._thread = threading.Thread(target=self._run, name="hvd-notices", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Queues a report; never blocks and never fails."""
        self._unsent.append(message)
        self._wake()

    def close(self) -> None:
        """Ends connection and thread."""
        self._closed = True
        self._wake()
        self._thread.join(_SEND_SECONDS)

    def after_fork_in_child(self) -> None:
        """Closes this copy's descriptors: the thread is not here."""
        self._closed, self.connected = True, False
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
        for descriptor in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full wakes as well
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed:
            # Known before it is connected: a child that is forked meanwhile has to close it.
            with self._opening:
                sock = self._sock = socket.socket(family_of(self._worker.rendezvous[0]), socket.SOCK_STREAM)
            try:
                with sock:
                    session = self._connect(sock)
                    self.connected = True
                    pause = _FIRST_PAUSE
                    self._serve(sock, FrameStream(sock, session))
            except AuthenticationError:
                return  # the launcher does not know this worker any more
            except (OSError, EOFError, FrameError):
                pass
            finally:
                self.connected = False
                self._sock = None
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self, sock: socket.socket) -> Session:
        endpoint = self._worker.rendezvous
        sock.settimeout(_CONNECT_SECONDS)
        sock.connect(endpoint)
        keep_alive(sock)
        purpose = notices_purpose(self._worker.number)
        side = Initiator(self._worker.key, purpose, place_of(endpoint))
        return authenticate(sock, side, time.monotonic() + _CONNECT_SECONDS)

    def _serve(self, sock: socket.socket, frames: FrameStream) -> None:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while not self._closed:
            while self._unsent:
                message = self._unsent.popleft()
                try:
                    frames.send(message, time.monotonic() + _SEND_SECONDS)
                except OSError:
                    self._unsent.appendleft(message)  # for the next connection
                    raise
            for descriptor, _ in poller.poll():
                if descriptor == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                else:
                    for message in frames.receive_available():
                        self._on_message(message)

    def _sleep(self, seconds: float) -> None:
        if not self._closed:
            time.sleep(seconds)
