"""Nobody gets in without the key, and strangers can't keep the others out."""

from __future__ import annotations

import resource
import secrets
import socket
import threading
import time
from typing import Any

import pytest
from bootstrap_ranks import KEY, ranks
from util_lag import Lag

from horovod._bootstrap.rendezvous.protocol import PURPOSE
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._net import handshake
from horovod._net import listener as listeners
from horovod._net.frames import FrameStream
from horovod.common.exceptions import HorovodInternalError

OTHER_KEY = bytes(32)


def shake(initiator: handshake.Initiator, acceptor: handshake.Acceptor) -> None:
    proof = initiator.receive(acceptor.start())
    initiator.receive(acceptor.receive(proof))


def accepting(*purposes: str, key: bytes = KEY) -> handshake.Acceptor:
    return handshake.Acceptor(key, {handshake.purpose_tag(key, purpose): purpose for purpose in purposes})


def test_both_ends_agree_on_the_purpose() -> None:
    acceptor, initiator = (
        accepting("w|control|1|0", "w|control|2|0"),
        handshake.Initiator(KEY, "w|control|2|0"),
    )
    shake(initiator, acceptor)
    assert acceptor.purpose == "w|control|2|0"
    assert (acceptor.wanted, initiator.wanted) == (0, 0)


def test_both_ends_have_the_same_keys_and_no_two_connections_have() -> None:
    seen: set[bytes] = set()
    for _ in range(2):
        acceptor, initiator = accepting("p"), handshake.Initiator(KEY, "p")
        shake(initiator, acceptor)
        assert acceptor.session is not None and initiator.session is not None
        assert acceptor.session.send == initiator.session.receive
        assert acceptor.session.receive == initiator.session.send
        seen |= {acceptor.session.send, acceptor.session.receive}
        assert acceptor.session.send.hex() not in repr(acceptor.session)
    assert len(seen) == 4


def test_a_connection_passed_on_from_another_address_is_refused() -> None:
    expected = {handshake.purpose_tag(KEY, "p"): "p"}
    shake(handshake.Initiator(KEY, "p", "192.0.2.1 5"), handshake.Acceptor(KEY, expected, "192.0.2.1 5"))
    shake(
        handshake.Initiator(KEY, "p"), handshake.Acceptor(KEY, expected, "192.0.2.1 5")
    )  # it only knows a name
    for place in ("172.17.0.1 5", "192.0.2.1 6"):
        with pytest.raises(handshake.AuthenticationError):
            shake(handshake.Initiator(KEY, "p", place), handshake.Acceptor(KEY, expected, "192.0.2.1 5"))


def test_how_places_are_written() -> None:
    assert handshake.place_of(("192.0.2.1", 5)) == "192.0.2.1 5"
    assert handshake.place_of(("2001:DB8:0::1", 5, 0, 0)) == handshake.place_of(("2001:db8::1%eth0", 5))
    assert (
        handshake.place_of(("host.example", 5))
        == handshake.place_of("\0unix")
        == handshake.place_of(b"\0unix")
        == ""
    )


@pytest.mark.parametrize(
    ("key", "purpose"), [(OTHER_KEY, "w|control|1|0"), (KEY, "w|liveness|1|0"), (KEY, "v|control|1|0")]
)
def test_a_wrong_key_or_purpose_is_refused(key: bytes, purpose: str) -> None:
    acceptor = accepting("w|control|1|0")
    with pytest.raises(handshake.AuthenticationError):
        shake(handshake.Initiator(key, purpose), acceptor)
    assert acceptor.wanted and not acceptor.purpose


def test_the_right_tag_does_not_replace_the_proof() -> None:
    acceptor = accepting("p")
    message = handshake.purpose_tag(KEY, "p") + secrets.token_bytes(
        handshake.NONCE_BYTES + handshake.PROOF_BYTES
    )
    with pytest.raises(handshake.AuthenticationError):
        acceptor.receive(message)


def test_a_recorded_handshake_is_useless() -> None:
    first, initiator = accepting("p"), handshake.Initiator(KEY, "p")
    recorded = initiator.receive(first.start())
    first.receive(recorded)
    with pytest.raises(handshake.AuthenticationError):
        accepting("p").receive(recorded)


def test_a_proof_cannot_be_reflected() -> None:
    # The attacker has no key and plays acceptor; all it has is what the victim itself says.
    victim = handshake.Initiator(KEY, "p")
    message = victim.receive(handshake.MAGIC + secrets.token_bytes(handshake.NONCE_BYTES))
    with pytest.raises(handshake.AuthenticationError):
        victim.receive(message[-handshake.PROOF_BYTES :])


def test_an_impostor_of_the_server_is_noticed() -> None:
    victim = handshake.Initiator(KEY, "p")
    victim.receive(handshake.MAGIC + secrets.token_bytes(handshake.NONCE_BYTES))
    with pytest.raises(handshake.AuthenticationError, match="could not prove"):
        victim.receive(secrets.token_bytes(handshake.PROOF_BYTES))
    with pytest.raises(handshake.AuthenticationError, match="not part of a job"):
        handshake.Initiator(KEY, "p").receive(b"HTTP/1.1 400 Bad Request".ljust(40))


def test_nothing_beyond_the_handshake_is_read() -> None:
    near, far = socket.socketpair()
    with near, far:
        initiator = handshake.Initiator(KEY, "p")
        far.settimeout(30)

        def other_end() -> None:
            far.sendall(initiator.receive(far.recv(initiator.wanted)) + b"data")

        thread = threading.Thread(target=other_end)
        thread.start()
        handshake.authenticate(near, accepting("p"), time.monotonic() + 30)
        thread.join()
        assert near.recv(100) == b"data"


def test_a_slow_drip_ends_at_the_deadline() -> None:
    near, far = socket.socketpair()
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            try:
                far.send(b"x")
            except OSError:
                return

    with near, far:
        thread = threading.Thread(target=drip)
        thread.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            handshake.authenticate(near, accepting("p"), start + 0.3)
        assert time.monotonic() - start >= 0.3
        stop.set()
        thread.join()


def test_keys_have_the_right_size() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        RendezvousServer(b"short")


def test_a_worker_of_another_job_is_told_so() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start(rank=0, size=2, port=server.port, transport="auto", key=OTHER_KEY.hex())
        (result,) = running.results()
        assert result["kind"] == HorovodInternalError.__name__
        assert "it belongs to another job" in result["error"]
        assert not server._connections


def test_the_server_drops_what_is_not_a_proof() -> None:
    with RendezvousServer(KEY) as server:
        for junk in (b"GET / HTTP/1.1\r\n" * 10, secrets.token_bytes(4096), b"\x80\x04" + bytes(500)):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
                sock.sendall(junk)
                received = b""
                try:
                    while data := sock.recv(4096):
                        received += data
                except ConnectionResetError:
                    pass
                # The challenge, and at most a refusal: nothing that depends on the key.
                assert received[len(handshake.MAGIC) + handshake.NONCE_BYTES :] in (b"", handshake.REFUSAL)
        assert not server._connections and not server._listeners["127.0.0.1"]._strangers


def test_a_silent_connection_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 0.5)
    with (
        RendezvousServer(KEY) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock,
    ):
        start = time.monotonic()
        assert len(sock.recv(100)) == len(handshake.MAGIC) + handshake.NONCE_BYTES
        assert sock.recv(1) == b""
        assert time.monotonic() - start > 0.4


def test_a_member_that_never_joins_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovod._bootstrap.rendezvous.server._LINGER_SECONDS", 0.5)
    with (
        RendezvousServer(KEY) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock,
    ):
        handshake.authenticate(sock, handshake.Initiator(KEY, PURPOSE), time.monotonic() + 30)
        sock.settimeout(30)
        assert sock.recv(1) == b""


def test_one_of_many_that_joins_late_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of ranks that start on few processors wait for a turn more than once."""
    monkeypatch.setattr("horovod._bootstrap.rendezvous.server._LINGER_SECONDS", 0.2)
    with (
        RendezvousServer(KEY, clients=1000) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock,
    ):
        handshake.authenticate(sock, handshake.Initiator(KEY, PURPOSE), time.monotonic() + 5)
        sock.settimeout(1)
        with pytest.raises(TimeoutError):
            sock.recv(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": "²-1:2.0"},
        {"scope": "9" * 5000 + ":2.0"},
        {"scope": ["a"]},
        {"rank": "x"},
        {"pid": None},
        {"pid": "9" * 5000},
        {"timeout": {}},
        {"agree": 3},
        {"type": ["join"]},
        {"type": "share", "stage": {"a": 1}},
        {"type": "share", "stage": "ready", "of": [[0, 1 << 60]]},
        {"type": "share"},
    ],
)
def test_nonsense_from_a_member_does_not_end_the_server(wrong: dict[str, Any]) -> None:
    honest = {
        "type": "join",
        "scope": "s",
        "rank": 0,
        "size": 2,
        "timeout": 10.0,
        "remaining": 10.0,
        "peer_timeout": 3.0,
        "host": "h",
        "pid": 1,
        "agree": {},
    }
    with (
        RendezvousServer(KEY) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock,
        ranks() as running,
    ):
        session = handshake.authenticate(sock, handshake.Initiator(KEY, PURPOSE), time.monotonic() + 30)
        FrameStream(sock, session).send({**honest, **wrong}, time.monotonic() + 30)
        running.start_all(2, port=server.port, transport="tcp", scope="t")
        assert all("error" not in result for result in running.results())


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_world_is_built_during_a_flood(lag: Lag, transport: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 6000:
        pytest.skip("needs 6000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    begin = time.monotonic()
    flood: list[socket.socket] = []
    try:
        with RendezvousServer(KEY) as server, ranks() as running:
            for number in range(2000):
                if number == 1000:
                    running.start_all(3, port=server.port, transport=transport, timeout=50)
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", server.port))
                flood.append(sock)
            assert len(server._listeners["127.0.0.1"]._strangers) <= listeners.default_capacity()
            for result in running.results(60):
                assert "error" not in result, result
                assert result["seconds"][0] < 10 + lag.allowance_since(begin)
    finally:
        for sock in flood:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_descriptors_does_not_stop_the_server() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    flood: list[socket.socket] = []
    with RendezvousServer(KEY) as server:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))
            with pytest.raises(OSError):
                for _ in range(200):
                    flood.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        finally:
            for sock in flood:
                sock.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with ranks() as running:
            running.start_all(2, port=server.port, transport="shm")
            assert all("error" not in result for result in running.results())
