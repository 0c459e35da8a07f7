"""Someone in between: listens, and passes everything on to another address, changed or not."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable

Address = tuple[str, int]
# The kind of connection, whether the bytes go towards the address, how many went before, and the bytes.
Change = Callable[[str, bool, int, bytes], bytes]


def unchanged(kind: str, forth: bool, before: int, data: bytes) -> bytes:
    return data


class Relay:
    """A context manager. `target` may depend on the connection. Without it every connection says itself, in a
    line, where it goes and why: that stands for a place on the network path, through which connections go
    without knowing.
    """

    def __init__(
        self,
        target: Address | Callable[[socket.socket], Address] | None = None,
        change: Change = unchanged,
        listen: Address = ("127.0.0.2", 0),
    ) -> None:
        self._target = target
        self._change = change
        self._listener = socket.create_server(listen)
        self.address: Address = self._listener.getsockname()
        self.connections = 0
        self.ended = 0  # of these
        self.most_passed = 0  # bytes in one direction of one connection
        self._closing = False
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._pass_on(near)
        self.ended += 1

    def _pass_on(self, near: socket.socket) -> None:
        kind = ""
        with near, contextlib.suppress(OSError):
            if self._target is None:
                host, port, kind = near.makefile("r", buffering=1, newline="\n").readline().split(" ", 2)
                target, kind = (host, int(port)), kind.strip()
            else:
                target = self._target(near) if callable(self._target) else self._target
            with socket.create_connection(target) as far, selectors.DefaultSelector() as selector:
                selector.register(near, selectors.EVENT_READ, far)
                selector.register(far, selectors.EVENT_READ, near)
                passed = {near: 0, far: 0}
                while True:
                    for key, _ in selector.select():
                        source, sink = key.fileobj, key.data
                        assert isinstance(source, socket.socket)
                        data = source.recv(1 << 16)
                        if not data:
                            return
                        sink.sendall(self._change(kind, source is near, passed[source], data))
                        passed[source] += len(data)
                        self.most_passed = max(self.most_passed, passed[source])
