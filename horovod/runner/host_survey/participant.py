"""The agent's part in finding out which hosts reach each other, and at which addresses.

It listens on all addresses that come into question, tells the launcher, tries the launcher's
addresses and later those of the other hosts. An address counts only if the right host proves there
that it knows the job key: the same private address may exist on several machines.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from horovod._bootstrap.rendezvous.protocol import PURPOSE
from horovod._net.addresses import Endpoint, elsewhere, family_of, own_addresses, show
from horovod._net.connector import Connector
from horovod._net.handshake import Session, purpose_tag
from horovod._net.keepalive import keep_alive
from horovod._net.listener import Crowd, Listener

_BETTER_WITHIN = 0.3  # seconds that the first choice gets after another address has answered
_ATTEMPTS = 3


def reach_purpose(host: str) -> str:
    """What a connection is authenticated for that only tries whether ``host`` can be reached."""
    return f"reach|{host}"


def keepalive_purpose(host: str) -> str:
    """The same for the connection that tells both ends when a machine is gone."""
    return f"keepalive|{host}"


@dataclass(frozen=True)
class SurveyRequest:
    """What the launcher wants to know. Holds the job key: never log it."""

    host: str
    key: str  # hexadecimal
    interfaces: list[str]
    launcher: list[Endpoint]
    remote: bool
    seconds: float  # for each of the two rounds
    host_timeout: float = 10.0  # seconds of silence of the launcher's machine

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> SurveyRequest:
        data = json.loads(text)
        data["launcher"] = [(host, port) for host, port in data["launcher"]]
        return SurveyRequest(**data)


class ReachabilityTest:
    """Tries several addresses of several hosts at once."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        key: bytes,
        targets: Mapping[str, Sequence[Endpoint]],
        purpose: Callable[[str], str],
        seconds: float,
    ) -> None:
        now = time.monotonic()
        self._deadline = now + seconds
        self._targets = targets
        self._answered: dict[str, set[Endpoint]] = {name: set() for name in targets}
        self._first_answer: dict[str, float] = {}
        self._connectors = {
            (name, endpoint): Connector(
                selector,
                key,
                purpose(name),
                [(family_of(endpoint[0]), endpoint)],
                self._note(name, endpoint),
                rounds=_ATTEMPTS,
            )
            for name, endpoints in targets.items()
            for endpoint in endpoints
        }

    def reached(self, name: str) -> list[Endpoint]:
        """The addresses of ``name`` that answered, in the order of the targets."""
        return [endpoint for endpoint in self._targets[name] if endpoint in self._answered[name]]

    def problems(self, name: str) -> str:
        """What happened at each address of ``name``."""
        return ", ".join(
            f"{show(endpoint)}: {self._connectors[name, endpoint].problem}"
            for endpoint in self._targets[name]
        )

    def finished(self, now: float) -> bool:
        return now >= self._deadline or all(self._settled(name, now) for name in self._targets)

    def tick(self, now: float) -> None:
        for connector in self._connectors.values():
            connector.tick(now)

    def next_wait(self, now: float) -> float:
        waits = [wait for each in self._connectors.values() if (wait := each.next_wait(now)) is not None]
        waits += [
            at + _BETTER_WITHIN - now for at in self._first_answer.values() if at + _BETTER_WITHIN > now
        ]
        return max(0.0, min([self._deadline - now, *waits]))

    def close(self) -> None:
        for connector in self._connectors.values():
            connector.close()

    def _note(self, name: str, endpoint: Endpoint) -> Callable[[socket.socket, Session], None]:
        def on_open(sock: socket.socket, _: Session) -> None:
            sock.close()
            self._answered[name].add(endpoint)
            self._first_answer.setdefault(name, time.monotonic())

        return on_open

    def _settled(self, name: str, now: float) -> bool:
        answered = self._answered[name]
        if answered and (
            self._targets[name][0] in answered or now >= self._first_answer[name] + _BETTER_WITHIN
        ):
            return True
        return all(
            endpoint in answered or self._connectors[name, endpoint].gave_up
            for endpoint in self._targets[name]
        )


class SurveyParticipant:
    """Serves one request on a selector of its own, whose fileno() becomes readable when turn() has
    work.

    ``report(name, data)`` is called with "listening" and, after reach(), with "reached".
    ``on_keepalive(socket)`` becomes the owner of the connection that lives as long as the
    launcher's machine does; None if there is one already.
    """

    def __init__(
        self,
        request: SurveyRequest,
        report: Callable[[str, dict[str, object]], None],
        on_keepalive: Callable[[socket.socket], None] | None,
    ) -> None:
        self._request = request
        self._key = bytes.fromhex(request.key)
        self._report = report
        self._on_keepalive = on_keepalive
        self._selector = selectors.DefaultSelector()
        self._listeners: list[Listener] = []
        self._test: ReachabilityTest | None = None
        self._after_test: Callable[[ReachabilityTest], None] | None = None
        self._keepalive: Connector | None = None
        self._listening: dict[str, object] = {}
        self._begin()

    def fileno(self) -> int:
        return self._selector.fileno()

    def turn(self) -> None:
        """Does what is due."""
        for key, _ in self._selector.select(0):
            key.data()
        now = time.monotonic()
        for listener in self._listeners:
            listener.tick(now)
        if self._test is not None:
            self._test.tick(now)
            if self._test.finished(now):
                test, self._test = self._test, None
                test.close()
                assert self._after_test is not None
                self._after_test(test)
        if self._keepalive is not None:
            self._keepalive.tick(now)
            if self._keepalive.gave_up:
                self._fail(f"it lost the launcher while connecting to it: {self._keepalive.problem}")
                self._keepalive = None

    def next_wait(self, now: float) -> float | None:
        """Seconds until turn() is due without an event."""
        waits = [listener.next_wait(now) for listener in self._listeners]
        if self._test is not None:
            waits.append(self._test.next_wait(now))
        if self._keepalive is not None:
            waits.append(self._keepalive.next_wait(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def reach(self, peers: Mapping[str, Sequence[Endpoint]]) -> None:
        """Tries the other hosts."""
        peers = {name: elsewhere(endpoints) for name, endpoints in peers.items()}

        def report(test: ReachabilityTest) -> None:
            found = {name: [address for address, _ in test.reached(name)] for name in peers}
            missing = {name: test.problems(name) for name in peers if not found[name]}
            self._report("reached", {"reached": found, "problems": missing})

        self._start_test(peers, reach_purpose, report)

    def close(self) -> None:
        """Closes the listeners and whatever is under way."""
        for listener in self._listeners:
            listener.close()
        if self._test is not None:
            self._test.close()
        if self._keepalive is not None:
            self._keepalive.close()
        self._selector.close()

    def _begin(self) -> None:
        request = self._request
        # client address and port, server address and port, as sshd saw them: the user's own choice
        # of network
        connection = os.environ.get("SSH_CONNECTION", "").split() if request.remote else []
        theirs, ours = (connection[0], connection[2]) if len(connection) == 4 else ("", "")
        try:
            own = own_addresses(request.interfaces, ours)
        except ValueError as error:
            self._fail(str(error))
            return
        tag = purpose_tag(self._key, reach_purpose(request.host))
        expected = {tag: reach_purpose(request.host)}
        offered: list[tuple[str, str, int]] = []
        crowd = Crowd()
        for interface, address in own:
            sock = socket.socket(family_of(address), socket.SOCK_STREAM)
            try:
                sock.bind((address, 0))
                sock.listen(128)
            except OSError:
                sock.close()  # tentative IPv6 addresses, for example
                continue
            offered.append((interface, address, sock.getsockname()[1]))
            self._listeners.append(
                Listener(self._selector, sock, self._key, expected, lambda sock, *_: sock.close(), crowd)
            )
        if not offered:
            self._fail("it has no network address besides loopback")
            return
        self._listening = {"offered": offered}
        launcher = sorted(request.launcher, key=lambda endpoint: endpoint[0] != theirs)
        if request.remote:
            launcher = elsewhere(launcher)
        self._start_test({"launcher": launcher}, lambda _: PURPOSE, self._connect_keepalive)

    def _connect_keepalive(self, test: ReachabilityTest) -> None:
        reached = test.reached("launcher")
        if not reached:
            self._fail(
                f"it cannot reach the launcher ({test.problems('launcher')}): check firewall and routes, "
                "or choose another network with --network-interfaces"
            )
            return
        self._listening["launcher"] = reached[0]
        on_keepalive = self._on_keepalive
        if on_keepalive is None:
            self._report("listening", self._listening)
            return

        def opened(sock: socket.socket, _: Session) -> None:
            self._keepalive = None
            keep_alive(sock, self._request.host_timeout)
            on_keepalive(sock)
            self._report("listening", self._listening)

        target = (family_of(reached[0][0]), reached[0])
        self._keepalive = Connector(
            self._selector, self._key, keepalive_purpose(self._request.host), [target], opened
        )

    def _start_test(
        self,
        targets: Mapping[str, Sequence[Endpoint]],
        purpose: Callable[[str], str],
        then: Callable[[ReachabilityTest], None],
    ) -> None:
        self._after_test = then
        self._test = ReachabilityTest(self._selector, self._key, targets, purpose, self._request.seconds)

    def _fail(self, text: str) -> None:
        self._report("listening", {"problem": text})
