"""How ranks find rank 0: through files and keys that nobody else can have made or read."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from started_by import environment
from started_by import rank as started
from util_paths import ROOT

from horovod._bootstrap.discovery import network_file, shared_file
from horovod._bootstrap.discovery.endpoint import RendezvousEndpoint
from horovod._bootstrap.discovery.first_rank import discovered
from horovod._bootstrap.discovery.fixed_address import derived_key, derived_ports, read_key_file
from horovod._bootstrap.discovery.network_file import NetworkFile
from horovod._bootstrap.discovery.shared_file import SharedFile, host_directories, shared_directory
from horovod._bootstrap.identity import DiscoveryHints, Identity
from horovod.common.exceptions import HorovodInternalError

ENDPOINT = RendezvousEndpoint((("127.0.0.1", 1),), b"k" * 32)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def rank(number: int) -> Identity:
    return Identity(
        number, 2, 0, 1, 0, 1, "h", discovery=DiscoveryHints("test", "NOBODY_HAS_THIS", local=(number, 2))
    )


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path / ".horovod" / "meetings"


def test_what_a_crashed_job_has_left_behind(home: Path) -> None:
    with discovered(rank(0), rank(0), [0, 1], "s", 5) as (first, _):
        (endpoint,) = home.iterdir()
        assert endpoint.stat().st_mode & 0o777 == 0o600
        shutil.copy2(endpoint, home / "kept")
    (home / "kept").rename(endpoint)
    for name, age in (("job-killed", 90000), ("job-starting", 60), ("of the user", 90000)):
        (home / name).touch()
        os.utime(home / name, (time.time() - age,) * 2)
    found: list[Identity] = []

    def other() -> None:
        with discovered(rank(1), rank(1), [0, 1], "s", 60) as (identity, _):
            found.append(identity)

    thread = threading.Thread(target=other)
    thread.start()  # sees the old endpoint first
    with discovered(rank(0), rank(0), [0, 1], "s", 60) as (second, _):
        thread.join(60)
    assert found[0].key == second.key != first.key
    assert found[0].rendezvous == second.rendezvous
    assert sorted(path.name for path in home.iterdir()) == ["job-starting", "of the user"]


class Neighbours:
    """Ranks of one host that wait for the endpoint of another host's rank 0, by a clock of their own."""

    def __init__(self, directory: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.looks = 0  # at the directory that all hosts see
        self.changes = 0  # of it
        self.shared = directory / "shared"
        clock = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        for module in (shared_file, network_file):
            monkeypatch.setattr(module, "time", clock)
        self.ranks = [self.rank(directory / "local", count) for _ in range(count)]

    def rank(self, local: Path, count: int) -> NetworkFile:
        file = SharedFile([self.shared], "job-n", count)
        poll, draft = file.poll, file._draft

        def counted_look() -> RendezvousEndpoint | None:
            self.looks += 1
            return poll()

        def counted_draft(content: bytes) -> str:
            self.changes += 1
            return draft(content)

        file.poll, file._draft = counted_look, counted_draft  # type: ignore[method-assign]
        return NetworkFile(file, SharedFile([local], "job-n"), count)

    def wait(self, seconds: float) -> list[RendezvousEndpoint | None]:
        """Each looks every quarter of a second; what they see at the end."""
        found: list[RendezvousEndpoint | None] = []
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            found = [rank.poll() for rank in self.ranks]
        return found


def test_many_ranks_do_not_crowd_a_file_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Neighbours(tmp_path, 16, monkeypatch)
    assert ranks.wait(60) == [None] * 16
    assert ranks.looks < 16 * 60  # each for itself: four times that
    assert ranks.changes < 60  # each for itself: eight times that
    looks = ranks.looks
    with SharedFile([tmp_path / "shared"], "job-n").publish(ENDPOINT):
        assert ranks.wait(15) == [ENDPOINT] * 16
    assert ranks.looks - looks < 16 * 15  # the copy does
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["job-n"]
    for rank in ranks.ranks:
        rank.close()
    assert not list((tmp_path / "local").iterdir())


def test_a_copy_that_was_left_behind_does_not_hide_the_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = RendezvousEndpoint((("127.0.0.1", 2),), b"o" * 32)
    ranks = Neighbours(tmp_path, 4, monkeypatch)
    with (
        SharedFile([tmp_path / "local"], "job-n").publish(old),
        SharedFile([tmp_path / "shared"], "job-n").publish(ENDPOINT),
    ):
        assert ranks.wait(0.25) == [old] * 4
        assert ranks.wait(15) == [ENDPOINT] * 4


def test_ranks_of_several_hosts_with_a_common_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    hints = DiscoveryHints("test", "NOBODY_HAS_THIS", job="j", local=(0, 2))
    places = [Identity(number, 4, 0, 1, 0, 1, f"h{number // 2}", discovery=hints) for number in range(4)]
    found: list[Identity] = []
    together = threading.Barrier(4)

    def other(place: Identity) -> None:
        with discovered(place, place, [0, 1, 2, 3], "s", 20) as (identity, _):
            found.append(identity)
            together.wait(20)

    threads = [threading.Thread(target=other, args=(place,)) for place in places[1:]]
    for thread in threads:
        thread.start()
    with discovered(places[0], places[0], [0, 1, 2, 3], "s", 20) as (first, _):
        together.wait(20)
        for thread in threads:
            thread.join(20)
    assert [identity.key for identity in found] == [first.key] * 3
    assert not list(home.iterdir()) and not list((tmp_path / "run" / "horovod").iterdir())


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = secrets.token_hex(32)
    monkeypatch.setenv("_HOROVOD_SECRET_KEY", secret)
    ports = derived_ports(derived_key(secret.encode(), "j", "s"))
    assert all(20000 <= port < 30000 for port in ports)
    assert ports != derived_ports(derived_key(b"t" * 64, "j", "s"))  # of another secret
    hints = DiscoveryHints(
        "test", "NOBODY_HAS_THIS", job="j", address="127.0.0.1", address_from="HOROVOD_GLOO_RENDEZVOUS_ADDR"
    )
    places = [Identity(number, 2, 0, 1, 0, 1, f"h{number}", discovery=hints) for number in range(2)]
    found: list[Identity] = []

    def other() -> None:
        with discovered(places[1], places[1], [0, 1], "s", 20) as (identity, _):
            found.append(identity)

    with socket.create_server(("127.0.0.1", ports[0])):
        thread = threading.Thread(target=other)
        thread.start()
        with discovered(places[0], places[0], [0, 1], "s", 20) as (first, _):
            thread.join(20)
    assert found[0].rendezvous == first.rendezvous
    assert first.rendezvous is not None and first.rendezvous[1] in ports[1:]


def test_rank_0_does_not_come() -> None:
    with (
        pytest.raises(
            HorovodInternalError, match=r"rank 1 .* has not found rank 0 within 0.2 s: its endpoint"
        ),
        discovered(rank(1), rank(1), [0, 1], "s", 0.2),
    ):
        pass


def test_no_place_is_taken_from_others(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o755, parents=True)
    home.chmod(0o755)
    with pytest.raises(ValueError, match="chmod 700"):
        SharedFile([home], "n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="link: "):
        SharedFile([link], "n")
    file = SharedFile([home, link, elsewhere], "n")  # the first that is usable
    assert file.path == elsewhere / "n"
    file.close()
    assert host_directories()[0] == home


@needs_root
def test_a_directory_of_someone_else(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o700)
    os.chown(tmp_path / "d", 12345, -1)
    with pytest.raises(ValueError, match="belongs to someone else"):
        SharedFile([tmp_path / "d"], "n")


def test_a_false_notice(tmp_path: Path) -> None:
    file = SharedFile([tmp_path / "d"], "n")
    assert file.poll() is None
    file.path.write_text("{}")
    file.path.chmod(0o644)
    with pytest.raises(ValueError, match="readable by you only"):
        file.poll()
    file.path.chmod(0o600)
    with pytest.raises(ValueError, match="not the endpoint"):
        file.poll()
    target = tmp_path / "target"
    target.touch(0o600)
    target.write_bytes(ENDPOINT.encode())
    file.path.unlink()
    file.path.symlink_to(target)
    with pytest.raises(ValueError, match="symbolic links"):
        file.poll()
    with file.publish(ENDPOINT):  # takes the place of the link, and does not write through it
        assert file.poll() == ENDPOINT and not file.path.is_symlink()
    assert file.poll() is None
    file.close()
    assert "6b6b" not in repr(ENDPOINT) and "kkk" not in repr(ENDPOINT)


def test_key_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    variable = {"HOROVOD_SECRET_KEY_FILE": str(file)}
    assert read_key_file({}) is None
    with pytest.raises(ValueError, match=r"HOROVOD_SECRET_KEY_FILE=.*No such file"):
        read_key_file(variable)
    file.touch(0o600)
    for content in (b"short", b"x" * 5000):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="openssl rand -hex 32"):
            read_key_file(variable)
    file.write_bytes(b"s" * 64 + b"\n")
    assert read_key_file(variable) == b"s" * 64
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(ValueError, match="chmod 600"):
            read_key_file(variable)
    assert derived_key(b"s" * 64, "job 1", "2.0") != derived_key(b"s" * 64, "job 2", "2.0")


@needs_root
def test_key_file_mounted_by_root_for_a_group() -> None:
    """As Kubernetes mounts a secret for a pod with an fsGroup, whose container is not root."""
    code = (
        "import os, sys\n"
        "from horovod._bootstrap.discovery.fixed_address import read_key_file\n"
        "os.setgroups([]); os.setgid(12345); os.setuid(12345)\n"
        "print(read_key_file({'HOROVOD_SECRET_KEY_FILE': sys.argv[1]}))\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        file = Path(directory) / "key"
        file.write_bytes(b"s" * 64)
        os.chown(file, 0, 12345)
        for mode, fits in ((0o440, True), (0o640, True), (0o444, False), (0o460, False)):
            file.chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", code, file],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode == 0) == fits, done.stderr
            assert ("s" * 64 in done.stdout) == fits and (fits or "chmod 600" in done.stderr)


def test_a_directory_of_the_original_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps a cache in ~/.horovod, which anybody may read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".horovod").mkdir()
    (tmp_path / ".horovod").chmod(0o755)
    SharedFile([shared_directory()], "n").close()
    assert (tmp_path / ".horovod").stat().st_mode & 0o777 == 0o755
    assert shared_directory().stat().st_mode & 0o777 == 0o700


def test_the_same_secret_and_flags_give_other_keys_each_time(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_bytes(b"s" * 64)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    seen = set()
    for _ in range(2):
        processes = [
            subprocess.Popen(
                list(map(str, started("key"))),
                env=environment(
                    JOB_COMPLETION_INDEX=str(number),
                    HOROVOD_SIZE="2",
                    HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
                    HOROVOD_GLOO_RENDEZVOUS_PORT=port,
                    HOROVOD_SECRET_KEY_FILE=str(file),
                ),
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        outputs = [process.communicate(timeout=100)[0] for process in processes]
        assert outputs[0] == outputs[1] and outputs[0].startswith("key ")
        seen.add(outputs[0])
    assert len(seen) == 2


@needs_root
def test_key_file_of_someone_else(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_bytes(b"s" * 64)
    os.chown(file, 12345, -1)
    with pytest.raises(ValueError, match="must belong to you"):
        read_key_file({"HOROVOD_SECRET_KEY_FILE": str(file)})
