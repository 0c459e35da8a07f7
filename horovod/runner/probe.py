"""The agent's part in finding out which hosts reach each other, and at which addresses.

It listens on all addresses that come into question, tells the launcher, tries the launcher's addresses and
later those of the other hosts. An address counts only if the right host proves there that it knows the job
key: the same private address may exist on several machines.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from horovod._bootstrap.auth import Session, purpose_tag
from horovod._bootstrap.dialer import Dialer, elsewhere, family_of
from horovod._bootstrap.doorway import Crowd, Doorway
from horovod._bootstrap.protocol import PURPOSE
from horovod.runner.network import Endpoint, addresses, keep_alive

_BETTER_WITHIN = 0.3  # seconds that the first choice gets after another address has answered
_ATTEMPTS = 3


def reach_purpose(host: str) -> str:
    """What a connection is authenticated for that only tries whether ``host`` can be reached."""
    return f"reach|{host}"


def watch_purpose(host: str) -> str:
    """The same for the connection between agent and launcher that tells when one of the machines is gone."""
    return f"watch|{host}"


@dataclass(frozen=True)
class ProbeRequest:
    """What the launcher wants to know. Holds the job key: never log it."""

    host: str
    key: str  # hexadecimal
    interfaces: list[str]
    launcher: list[Endpoint]
    remote: bool
    seconds: float  # for each of the two rounds

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> ProbeRequest:
        data = json.loads(text)
        data["launcher"] = [(host, port) for host, port in data["launcher"]]
        return ProbeRequest(**data)


class Survey:
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
        self._dialers = {
            (name, endpoint): Dialer(
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
            f"{show(endpoint)}: {self._dialers[name, endpoint].problem}" for endpoint in self._targets[name]
        )

    def finished(self, now: float) -> bool:
        return now >= self._deadline or all(self._settled(name, now) for name in self._targets)

    def tick(self, now: float) -> None:
        for dialer in self._dialers.values():
            dialer.tick(now)

    def next_wait(self, now: float) -> float:
        waits = [wait for each in self._dialers.values() if (wait := each.next_wait(now)) is not None]
        waits += [
            at + _BETTER_WITHIN - now for at in self._first_answer.values() if at + _BETTER_WITHIN > now
        ]
        return max(0.0, min([self._deadline - now, *waits]))

    def close(self) -> None:
        for dialer in self._dialers.values():
            dialer.close()

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
            endpoint in answered or self._dialers[name, endpoint].gave_up for endpoint in self._targets[name]
        )


class Probe:
    """Serves one request on a selector of its own, whose fileno() becomes readable when turn() has work.

    ``report(name, data)`` is called with "listening" and, after reach(), with "reached". ``on_watch(socket)``
    becomes the owner of the connection that lives as long as the launcher's machine does.
    """

    def __init__(
        self,
        request: ProbeRequest,
        report: Callable[[str, dict[str, object]], None],
        on_watch: Callable[[socket.socket], None],
    ) -> None:
        self._request = request
        self._key = bytes.fromhex(request.key)
        self._report = report
        self._on_watch = on_watch
        self._selector = selectors.DefaultSelector()
        self._doorways: list[Doorway] = []
        self._survey: Survey | None = None
        self._after_survey: Callable[[Survey], None] | None = None
        self._watch: Dialer | None = None
        self._listening: dict[str, object] = {}
        self._begin()

    def fileno(self) -> int:
        return self._selector.fileno()

    def turn(self) -> None:
        """Does what is due."""
        for key, _ in self._selector.select(0):
            key.data()
        now = time.monotonic()
        for doorway in self._doorways:
            doorway.tick(now)
        if self._survey is not None:
            self._survey.tick(now)
            if self._survey.finished(now):
                survey, self._survey = self._survey, None
                survey.close()
                assert self._after_survey is not None
                self._after_survey(survey)
        if self._watch is not None:
            self._watch.tick(now)
            if self._watch.gave_up:
                self._fail(f"it lost the launcher while connecting to it: {self._watch.problem}")
                self._watch = None

    def next_wait(self, now: float) -> float | None:
        """Seconds until turn() is due without an event."""
        waits = [doorway.next_wait(now) for doorway in self._doorways]
        if self._survey is not None:
            waits.append(self._survey.next_wait(now))
        if self._watch is not None:
            waits.append(self._watch.next_wait(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def reach(self, peers: Mapping[str, Sequence[Endpoint]]) -> None:
        """Tries the other hosts."""
        peers = {name: elsewhere(endpoints) for name, endpoints in peers.items()}

        def report(survey: Survey) -> None:
            found = {name: [address for address, _ in survey.reached(name)] for name in peers}
            missing = {name: survey.problems(name) for name in peers if not found[name]}
            self._report("reached", {"reached": found, "problems": missing})

        self._start_survey(peers, reach_purpose, report)

    def close(self) -> None:
        """Closes the listeners and whatever is under way."""
        for doorway in self._doorways:
            doorway.close()
        if self._survey is not None:
            self._survey.close()
        if self._watch is not None:
            self._watch.close()
        self._selector.close()

    def _begin(self) -> None:
        request = self._request
        # client address and port, server address and port, as sshd saw them: the user's own choice of network
        connection = os.environ.get("SSH_CONNECTION", "").split() if request.remote else []
        theirs, ours = (connection[0], connection[2]) if len(connection) == 4 else ("", "")
        try:
            own = addresses(request.interfaces, ours)
        except ValueError as error:
            self._fail(str(error))
            return
        tag = purpose_tag(self._key, reach_purpose(request.host))
        expected = {tag: reach_purpose(request.host)}
        offered: list[tuple[str, str, int]] = []
        crowd = Crowd()
        for interface, address in own:
            listener = socket.socket(family_of(address), socket.SOCK_STREAM)
            try:
                listener.bind((address, 0))
                listener.listen(128)
            except OSError:
                listener.close()  # tentative IPv6 addresses, for example
                continue
            offered.append((interface, address, listener.getsockname()[1]))
            self._doorways.append(
                Doorway(self._selector, listener, self._key, expected, lambda sock, *_: sock.close(), crowd)
            )
        if not offered:
            self._fail("it has no network address besides loopback")
            return
        self._listening = {"offered": offered}
        launcher = sorted(request.launcher, key=lambda endpoint: endpoint[0] != theirs)
        if request.remote:
            launcher = elsewhere(launcher)
        self._start_survey({"launcher": launcher}, lambda _: PURPOSE, self._connect_watch)

    def _connect_watch(self, survey: Survey) -> None:
        reached = survey.reached("launcher")
        if not reached:
            self._fail(
                f"it cannot reach the launcher ({survey.problems('launcher')}): check firewall and routes, "
                "or choose another network with --network-interfaces"
            )
            return
        self._listening["launcher"] = reached[0]

        def opened(sock: socket.socket, _: Session) -> None:
            self._watch = None
            keep_alive(sock)
            self._on_watch(sock)
            self._report("listening", self._listening)

        target = (family_of(reached[0][0]), reached[0])
        self._watch = Dialer(self._selector, self._key, watch_purpose(self._request.host), [target], opened)

    def _start_survey(
        self,
        targets: Mapping[str, Sequence[Endpoint]],
        purpose: Callable[[str], str],
        then: Callable[[Survey], None],
    ) -> None:
        self._after_survey = then
        self._survey = Survey(self._selector, self._key, targets, purpose, self._request.seconds)

    def _fail(self, text: str) -> None:
        self._report("listening", {"problem": text})


def show(endpoint: Endpoint) -> str:
    """An endpoint for messages."""
    return f"[{endpoint[0]}]:{endpoint[1]}" if ":" in endpoint[0] else f"{endpoint[0]}:{endpoint[1]}"
