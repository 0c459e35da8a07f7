"""The rendezvous server: runs in the launcher, lets the ranks of a job find each other."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from horovod._bootstrap.rendezvous.enlistment import Enlistments, Event
from horovod._bootstrap.rendezvous.membership import EndedScope, Membership, Outgoing, failure
from horovod._bootstrap.rendezvous.protocol import CROWDED_SECONDS, PURPOSE
from horovod._net.addresses import family_of
from horovod._net.frames import Body, Decoder, FrameError, Message, Sealer, encode
from horovod._net.handshake import Session, check_key, purpose_tag
from horovod._net.listener import Crowd, Listener

_BACKLOG = 4096
_TICK_SECONDS = 0.1
_LINGER_SECONDS = 5.0  # at least, to join after authenticating, and to close after the last message
_REQUEST_BYTES = 1 << 14  # no honest request is larger
_FAILED_SECONDS = 60.0  # for late members of a world that has failed to hear of it
_LATE_SECONDS = 0.5  # a wake-up this late means that the launcher itself was stopped


class _Connection:
    """An authenticated client."""

    def __init__(self, sock: socket.socket, session: Session, client: int, deadline: float) -> None:
        self.sock = sock
        self.client = client
        self.sealer = Sealer(session.send)
        self.decoder = Decoder(session.receive, _REQUEST_BYTES)
        self.outgoing: deque[memoryview] = deque()
        self.events = selectors.EVENT_READ
        self.joined = False
        self.finished = False  # the last message is on its way; what still arrives is ignored
        self.deadline: float | None = deadline  # to be dropped at; None while it is a member


class RendezvousServer:
    """Serves any number of worlds one after another or at once, in one daemon thread.

    `key` is the job's 32 bytes; `hosts` are the addresses to listen on, of which each worker must
    be able to reach one; `port` is the port there, 0 for any that is free. `clients` are expected
    at the same time. `threads` of this process have listeners, see Crowd. The methods may be called
    from any thread. Also a context manager.
    """

    def __init__(
        self,
        key: bytes,
        hosts: str | Sequence[str] = "127.0.0.1",
        port: int = 0,
        clients: int = 0,
        threads: int = 1,
    ) -> None:
        self._linger = max(_LINGER_SECONDS, CROWDED_SECONDS * clients)
        self._crowd = Crowd(clients, threads)
        self._key = check_key(key)
        self._hosts = [hosts] if isinstance(hosts, str) else list(hosts)
        self._port = port
        self._ports: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._commands: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._retiring = False
        self._wake_sender: socket.socket | None = None
        # Everything below belongs to the thread.
        self._membership = Membership()
        self._enlistments = Enlistments()
        self._on_event: Callable[[Event], None] | None = None  # set in an elastic job
        self._expected = {purpose_tag(self._key, PURPOSE): PURPOSE}
        self._handlers: dict[str, Callable[[socket.socket, Session], None]] = {}
        self._listeners: dict[str, Listener] = {}  # by address
        self._connections: dict[int, _Connection] = {}
        self._next_client = 0
        self._ticked = 0.0
        self._looked = 0.0

    @property
    def port(self) -> int:
        """The TCP port on the first address; start() chooses it."""
        return next(iter(self.endpoints))[1]

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """The addresses and ports that it listened on when it was started."""
        if not self._ports:
            raise RuntimeError("the rendezvous server has not been started")
        return list(self._ports.items())

    def start(self) -> RendezvousServer:
        """Listens and starts the thread; OSError if one of `hosts` is not an own address."""
        if self._thread is not None:
            raise RuntimeError("the rendezvous server can only be started once")
        with contextlib.ExitStack() as opened:
            sockets = {host: opened.enter_context(_listen(host, self._port)) for host in self._hosts}
            self._ports = {host: sock.getsockname()[1] for host, sock in sockets.items()}
            wake_receiver, wake_sender = socket.socketpair()
            opened.enter_context(wake_receiver)
            opened.enter_context(wake_sender)
            self._selector = selectors.DefaultSelector()
            opened.callback(self._selector.close)
            wake_receiver.setblocking(False)
            wake_sender.setblocking(False)
            self._selector.register(wake_receiver, selectors.EVENT_READ, lambda: _drain(wake_receiver))
            for host, sock in sockets.items():
                self._listeners[host] = Listener(
                    self._selector, sock, self._key, self._expected, self._on_open, self._crowd
                )
            # From here on the thread closes everything.
            self._thread = threading.Thread(
                target=self._run, args=(opened.pop_all(),), name="hvd-rendezvous", daemon=True
            )
            self._thread.start()
        self._wake_sender = wake_sender
        self._wake()  # for what was posted before
        return self

    def rank_failed(self, rank: int, text: str) -> None:
        """Fails every world being built that includes `rank`, and later ones until that rank joins
        again.

        `text` says what happened, for example "killed by signal 9 on host a, pid 5".
        """
        self._post(lambda: self._send(self._membership.rank_failed(rank, text, time.monotonic())))

    def clear_failures(self) -> None:
        """Forgets rank_failed(), for when rank numbers are given to other processes."""
        self._post(self._membership.clear_failures)

    def listen_only_on(self, hosts: Iterable[str]) -> None:
        """Closes the listeners on all other addresses: nobody needs them."""
        kept = set(hosts)

        def narrow() -> None:
            for host in self._listeners.keys() - kept:
                self._listeners.pop(host).close()

        self._post(narrow)

    def listen_also_on(self, hosts: Iterable[str]) -> None:
        """Listens on further addresses, from now on among `endpoints`; OSError if one is not an own
        one.
        """
        for host in hosts:
            if host in self._ports:
                continue
            sock = _listen(host, self._port)
            self._ports[host] = sock.getsockname()[1]

            def widen(host: str = host, sock: socket.socket = sock) -> None:
                self._listeners[host] = Listener(
                    self._selector, sock, self._key, self._expected, self._on_open, self._crowd
                )

            self._post(widen)

    def on_elastic(self, handler: Callable[[Event], None]) -> None:
        """Serves an elastic job: workers enlist, and join only what they are assigned to.

        `handler` is called in the server's thread and must not block.
        """

        def begin() -> None:
            self._on_event = handler

        self._post(begin)

    def expect(self, worker: int) -> None:
        """A worker of this number may enlist."""
        self._post(lambda: self._enlistments.expect(worker))

    def assign(self, assignments: Mapping[int, Message]) -> None:
        """Gives the members of a generation, by worker, their places in it."""

        def send() -> None:
            self._membership.clear_failures()
            out, failed = self._enlistments.assign(assignments)
            self._send(out)
            self._fail(failed)

        self._post(send)

    def refuse(self, worker: int, text: str) -> None:
        """A worker gets no place any more; it is told so at once if it waits for one."""
        self._post(lambda: self._send(self._enlistments.refuse(worker, text)))

    def worker_ended(self, worker: int, text: str) -> None:
        """Its process is gone: a world that it was to be in fails, and its number is refused."""
        self._post(lambda: self._fail(self._enlistments.ended(worker, text)))

    def accept(self, purpose: str, handler: Callable[[socket.socket, Session], None]) -> None:
        """Also takes connections authenticated for `purpose`; `handler` becomes the owner of each.

        It is called in the server's thread and must not block. For connections that are not about
        building a world, but should come through the same door.
        """

        def expect() -> None:
            self._handlers[purpose] = handler
            self._expected[purpose_tag(self._key, purpose)] = purpose

        self._post(expect)

    def forget(self, purpose: str) -> None:
        """The opposite of accept()."""

        def refuse() -> None:
            self._handlers.pop(purpose, None)
            self._expected.pop(purpose_tag(self._key, purpose), None)

        self._post(refuse)

    def retire(self) -> None:
        """Stops listening; the thread ends when the clients have got their last messages."""

        def close() -> None:
            self._retiring = True
            for host in list(self._listeners):
                self._listeners.pop(host).close()

        self._post(close)

    def stop(self) -> None:
        """Closes all connections and ends the thread; worlds being built fail.

        Harmless if not started.
        """
        if self._thread is None:
            return
        self._stopping = True
        self._wake()
        self._thread.join(_LINGER_SECONDS)

    def __enter__(self) -> RendezvousServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _post(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        # A full buffer wakes it as well; a closed socket belongs to a stopped server.
        if self._wake_sender is not None:
            with contextlib.suppress(OSError):
                self._wake_sender.send(b"x")

    def _run(self, opened: contextlib.ExitStack) -> None:
        with opened:
            self._ticked = time.monotonic()
            try:
                while not self._stopping and (self._connections or not self._retiring):
                    self._turn()
            finally:
                for listener in self._listeners.values():
                    listener.close()
                for connection in list(self._connections.values()):
                    self._close(connection)

    def _turn(self) -> None:
        now = time.monotonic()
        waits = [
            each for listener in self._listeners.values() if (each := listener.next_wait(now)) is not None
        ]
        if self._connections or not self._membership.idle:
            waits.append(_TICK_SECONDS)
        wait = min(waits, default=None)
        events = self._selector.select(wait)
        for key, _ in events:
            key.data()
        while self._commands:
            self._commands.popleft()()
        now = time.monotonic()
        late = now - self._ticked - (wait or 0.0)
        if wait is not None and late > _LATE_SECONDS:
            self._membership.postpone(late)
            self._enlistments.postpone(late)
        self._ticked = now
        for listener in self._listeners.values():
            listener.tick(now)
        if now < self._looked + _TICK_SECONDS / 2:
            return  # looking at all of them at every event would be the square of their number
        self._looked = now
        self._send(self._membership.tick(now))
        pings, silent = self._enlistments.tick(now)
        self._send(pings)
        self._fail(silent)
        for connection in list(self._connections.values()):
            if connection.deadline is not None and now >= connection.deadline:
                self._close(connection)

    def _on_open(self, sock: socket.socket, purpose: str, session: Session) -> None:
        if purpose != PURPOSE:
            self._handlers[purpose](sock, session)
            return
        self._next_client += 1
        connection = _Connection(sock, session, self._next_client, time.monotonic() + self._linger)
        self._connections[connection.client] = connection
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, connection.events, lambda: self._serve(connection))

    def _serve(self, connection: _Connection) -> None:
        if connection.client not in self._connections:
            return  # closed earlier in the same turn
        self._flush(connection)
        try:
            data = connection.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, f"lost its connection to the launcher ({error.strerror})")
            return
        if not data:
            self._lose(connection, "ended or lost its connection while the ranks were connecting")
            return
        if connection.finished:
            return
        now = time.monotonic()
        self._membership.heard(connection.client, now)
        self._enlistments.heard(connection.client, now)
        try:
            for message in connection.decoder.feed(data):
                self._send(self._handle(connection, message, now))
        except (FrameError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            text = f"broke the rendezvous protocol ({error})"
            self._fail(self._enlistments.leave(connection.client, text))
            told = self._membership.leave(connection.client, text, now)
            self._send(told or [failure(connection.client, f"the rendezvous server heard: {error}")])

    def _handle(self, connection: _Connection, message: Message, now: float) -> list[Outgoing]:
        kind = message.get("type")
        if kind == "join" and not connection.joined:
            connection.joined = True
            connection.deadline = None
            elastic = self._on_event is not None
            if elastic and (problem := self._enlistments.join(connection.client, message)):
                known = self._membership.failure_of(str(message.get("scope")))
                return [failure(connection.client, known or problem)]
            return self._membership.join(connection.client, message, now)
        if kind == "enlist" and not connection.joined and self._on_event is not None:
            connection.deadline = None
            return self._enlistments.enlist(connection.client, message, now)
        if kind == "pong":
            return []
        if kind == "share":
            return self._membership.share(connection.client, message, now)
        if kind == "leave":
            other = message.get("unreached")
            unreached = None if other is None else int(other)
            return self._membership.give_up(connection.client, str(message["text"]), unreached, now)
        raise FrameError(f"unknown message type {kind!r}")

    def _send(self, messages: list[Outgoing]) -> None:
        # What is the same for all ranks, or some, is encoded once
        encoded: dict[int, Body] = {}
        for out in messages:
            connection = self._connections.get(out.client)
            if connection is None or connection.finished:
                continue
            identity = id(out.message)
            if identity not in encoded:
                encoded[identity] = encode(out.message)
            body = encoded[identity]
            connection.outgoing += [memoryview(connection.sealer.head(body)), memoryview(body.content)]
            if out.last:
                connection.finished = True
                connection.deadline = time.monotonic() + self._linger
            self._flush(connection)
        for scope in self._membership.take_ended():
            self._enlistments.on_ended(scope)
        events, self._enlistments.events = self._enlistments.events, []
        for event in events:
            assert self._on_event is not None
            self._on_event(event)

    def _fail(self, scopes: Sequence[EndedScope]) -> None:
        """Fails scopes of an elastic job, of which nobody, or only some, may have joined yet."""
        now = time.monotonic()
        for scope in scopes:
            out = self._membership.fail(scope, now, now + _FAILED_SECONDS)
            if not out:
                self._enlistments.on_ended(scope)
            self._send(out)
        self._send([])

    def _flush(self, connection: _Connection) -> None:
        waiting = bool(connection.outgoing)
        try:
            while connection.outgoing:
                more = socket.MSG_MORE if len(connection.outgoing) > 1 else 0
                sent = connection.sock.send(connection.outgoing[0], more)
                if sent < len(connection.outgoing[0]):
                    connection.outgoing[0] = connection.outgoing[0][sent:]
                else:
                    connection.outgoing.popleft()
            if waiting and connection.finished:
                # Not close(): an answer still under way would make it a reset, which may overtake
                # our message.
                connection.sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            connection.outgoing.clear()  # reading tells what happened
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outgoing else 0)
        if events != connection.events:
            connection.events = events
            self._selector.modify(connection.sock, events, lambda: self._serve(connection))

    def _lose(self, connection: _Connection, text: str) -> None:
        self._close(connection)
        self._send(self._membership.leave(connection.client, text, time.monotonic()))
        self._fail(self._enlistments.leave(connection.client, text))

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.client, None) is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()


def _listen(host: str, port: int) -> socket.socket:
    sock = socket.socket(family_of(host), socket.SOCK_STREAM)
    try:
        if port:  # may have been in use a moment ago
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _drain(sock: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while sock.recv(4096):
            pass
