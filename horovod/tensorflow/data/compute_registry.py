"""Where dispatchers and workers of the tf.data service are announced, so that the training finds
them.

A small server in the compute job and its client. Every connection is authenticated with the key of
the configuration before a byte is parsed, and so is every frame, like those of the job itself.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._net.connector import connect
from horovod._net.frames import FrameError, FrameStream, Message
from horovod._net.handshake import AuthenticationError, Session
from horovod.errors import HorovodInternalError

Addresses = Mapping[str, Sequence[tuple[str, int]]]  # by network interface

_PURPOSE = "tf.data compute service"
_REQUEST_SECONDS = 10.0  # for an exchange beside what the client wants to wait
_LONG_POLL_SECONDS = 20.0
_PAUSE_SECONDS = 0.2
_REQUEST_BYTES = 1 << 14

_logger = logging.getLogger("horovod.tensorflow.data")


class ComputeRegistry:
    """The server. `hosts` are the addresses to listen on. Also a context manager."""

    def __init__(
        self, key: bytes, hosts: Sequence[str], dispatchers: int, workers_per_dispatcher: int
    ) -> None:
        self._server = RendezvousServer(key, hosts)
        self._dispatchers = dispatchers
        self._wanted = workers_per_dispatcher
        self._changed = threading.Condition()
        self._addresses: dict[int, str] = {}
        self._workers: dict[int, set[int]] = {}
        self._shut_down = False

    def __enter__(self) -> ComputeRegistry:
        self._server.accept(_PURPOSE, self._on_open)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Addresses and ports."""
        return self._server.endpoints

    def _on_open(self, sock: socket.socket, session: Session) -> None:
        # In the server's thread, which must not wait.
        threading.Thread(
            target=self._serve, args=(sock, session), name="hvd-compute-registry", daemon=True
        ).start()

    def _serve(self, sock: socket.socket, session: Session) -> None:
        with sock:
            try:
                frames = FrameStream(sock, session, _REQUEST_BYTES)
                try:
                    answer = self._answer(frames.receive(time.monotonic() + _REQUEST_SECONDS))
                except FrameError as error:
                    answer = {"error": str(error)}
                    _logger.warning("a request to the compute service: %s", error)
                frames.send(answer, time.monotonic() + _REQUEST_SECONDS)
            except (OSError, EOFError, FrameError) as error:
                _logger.debug("a client of the compute service is gone: %s", error)

    def _answer(self, request: Message) -> Message:
        try:
            answer = self._answers[str(request.get("ask"))]
        except KeyError:
            return {"error": f"unknown request {request.get('ask')!r}: do the jobs have the same Horovod?"}
        try:
            with self._changed:
                return answer(self, request)
        except (KeyError, TypeError, ValueError) as error:
            return {"error": str(error)}

    def _dispatcher(self, request: Message) -> int:
        number = int(request["dispatcher"])
        if not 0 <= number < self._dispatchers:
            raise ValueError(f"there is no dispatcher {number}, only {self._dispatchers} from 0 on")
        return number

    def _register_dispatcher(self, request: Message) -> Message:
        number, address = self._dispatcher(request), str(request["address"])
        known = self._addresses.setdefault(number, address)
        if known != address:
            raise ValueError(f"dispatcher {number} is at {known} already, not at {address}")
        self._changed.notify_all()
        return {}

    def _register_worker(self, request: Message) -> Message:
        self._workers.setdefault(self._dispatcher(request), set()).add(int(request["worker"]))
        self._changed.notify_all()
        return {}

    def _wait(self, request: Message, ready: Callable[[], bool]) -> bool:
        seconds = min(_LONG_POLL_SECONDS, float(request["seconds"]))
        return self._changed.wait_for(lambda: ready() or self._shut_down, seconds)

    def _wait_for_dispatcher(self, request: Message) -> Message:
        number = self._dispatcher(request)
        self._wait(request, lambda: number in self._addresses)
        return {"address": self._addresses.get(number), "shut_down": self._shut_down}

    def _wait_for_workers(self, request: Message) -> Message:
        workers = self._workers.setdefault(self._dispatcher(request), set())
        self._wait(request, lambda: len(workers) >= self._wanted)
        return {"ready": len(workers) >= self._wanted, "count": len(workers), "shut_down": self._shut_down}

    def _shutdown(self, request: Message) -> Message:
        self._shut_down = True
        self._changed.notify_all()
        return {}

    def _wait_for_shutdown(self, request: Message) -> Message:
        self._wait(request, lambda: self._shut_down)
        return {"shut_down": self._shut_down}

    _answers: Mapping[str, Callable[[ComputeRegistry, Message], Message]] = {
        "register_dispatcher": _register_dispatcher,
        "register_worker": _register_worker,
        "wait_for_dispatcher": _wait_for_dispatcher,
        "wait_for_workers": _wait_for_workers,
        "shutdown": _shutdown,
        "wait_for_shutdown": _wait_for_shutdown,
    }


class ComputeClient:
    """Talks to the registry. `timeout`: seconds to reach it."""

    def __init__(self, addresses: Addresses, key: bytes, timeout: float, verbose: int = 1) -> None:
        self._endpoints = [(host, int(port)) for entries in addresses.values() for host, port in entries]
        if not self._endpoints:
            raise ValueError("the configuration of the compute service has no address")
        self._key = key
        self._timeout = timeout
        self._verbose = verbose

    def own_address(self) -> str:
        """The address of this host that leads to the compute job."""
        sock, _ = self._connect()
        with sock:
            return str(sock.getsockname()[0])

    def register_dispatcher(self, dispatcher_id: int, address: str) -> None:
        """Announces a dispatcher."""
        self._say(f"dispatcher {dispatcher_id} is at {address}")
        self._ask("register_dispatcher", dispatcher=dispatcher_id, address=address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """A dispatcher's address.

        TimeoutError if it has not been announced after `timeout` seconds.
        """
        answer = self._wait("wait_for_dispatcher", timeout, lambda a: bool(a["address"]), dispatcher_id)
        if not answer["address"]:
            raise _late(f"dispatcher {dispatcher_id} has not been started", timeout, answer)
        return str(answer["address"])

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Announces a worker that has joined a dispatcher."""
        self._ask("register_worker", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits for all workers of a dispatcher; TimeoutError."""
        answer = self._wait("wait_for_workers", timeout, lambda a: bool(a["ready"]), dispatcher_id)
        if not answer["ready"]:
            raise _late(f"dispatcher {dispatcher_id} has only {answer['count']} workers", timeout, answer)

    def shutdown(self) -> None:
        """Ends the compute job: dispatchers, workers and the registry."""
        self._say("the compute service is to end")
        self._ask("shutdown")

    def wait_for_shutdown(self) -> None:
        """Waits until someone has called shutdown().

        HorovodInternalError if the registry is gone.
        """
        while not self._ask("wait_for_shutdown", _LONG_POLL_SECONDS, seconds=_LONG_POLL_SECONDS)["shut_down"]:
            pass

    def _wait(self, what: str, timeout: float, done: Callable[[Message], bool], dispatcher: int) -> Message:
        deadline = time.monotonic() + timeout
        while True:
            seconds = max(0.0, min(_LONG_POLL_SECONDS, deadline - time.monotonic()))
            answer = self._ask(what, seconds, dispatcher=dispatcher, seconds=seconds)
            if done(answer) or answer["shut_down"] or time.monotonic() >= deadline:
                return answer

    def _ask(self, what: str, patience: float = 0.0, /, **arguments: Any) -> Message:
        sock, session = self._connect()
        with sock:
            deadline = time.monotonic() + patience + _REQUEST_SECONDS
            try:
                frames = FrameStream(sock, session, _REQUEST_BYTES)
                frames.send({"ask": what, **arguments}, deadline)
                answer = frames.receive(deadline)
            except (OSError, EOFError, FrameError) as error:
                raise HorovodInternalError(f"the compute service {self._where()} is gone: {error}") from error
        if "error" in answer:
            raise ValueError(f"the compute service {self._where()}: {answer['error']}")
        return answer

    def _connect(self) -> tuple[socket.socket, Session]:
        deadline = time.monotonic() + self._timeout
        while True:
            for endpoint in self._endpoints:
                try:
                    return self._connect_to(endpoint, deadline)
                except AuthenticationError as error:
                    raise HorovodInternalError(
                        f"the compute service {self._where()}: {error}; is the file that of another run?"
                    ) from error
                except OSError as error:
                    problem = error
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise HorovodInternalError(
                    f"cannot reach the compute service {self._where()} in {self._timeout:g} s: {problem}; "
                    "is the compute job running, and does a firewall lie between?"
                ) from problem
            time.sleep(_PAUSE_SECONDS)

    def _connect_to(self, endpoint: tuple[str, int], deadline: float) -> tuple[socket.socket, Session]:
        share = max(0.1, (deadline - time.monotonic()) / len(self._endpoints))
        return connect(endpoint, self._key, _PURPOSE, share)

    def _where(self) -> str:
        return "at " + " or ".join(f"{host}:{port}" for host, port in self._endpoints)

    def _say(self, text: str) -> None:
        if self._verbose > 1:
            _logger.info(text)


def _late(what: str, timeout: float, answer: Message) -> Exception:
    if answer["shut_down"]:
        return HorovodInternalError(f"{what}: the compute service has been shut down")
    return TimeoutError(
        f"{what} after {timeout:g} s; look at the output of the compute job, or give it a longer timeout"
    )
