"""Rank 0's endpoint in a file that only its owner can read, for ranks that share a directory.

The directory belongs to the user and nobody else can look into it, so nobody can put a false file
there. One that a crashed job has left behind does no harm: nobody answers at its address, and the
next job replaces it.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from horovod._bootstrap.discovery.endpoint import MAX_BYTES, RendezvousEndpoint, decode

NAME_PREFIX, _DRAFT_PREFIX = "job-", ".draft-"
_PREFIXES = (NAME_PREFIX, _DRAFT_PREFIX)
_REFRESH_SECONDS = 2.0  # on average, all that read from one host together
_OLD_SECONDS = 86400.0  # ranks connect within minutes


def shared_directory() -> Path:
    """Where hosts with a common home directory see the same files."""
    # Not ~/.horovod itself: other programs keep things there and leave it open for others to read.
    return Path(os.path.expanduser("~")) / ".horovod" / "meetings"


def host_directories() -> list[Path]:
    """Places that processes of one host see, best first."""
    *own, last = local_directories()
    return [*own, shared_directory(), last]


def local_directories() -> list[Path]:
    """Those that no other host sees; in the last one others could have taken our name."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = [Path(runtime) / "horovod"] if runtime.startswith("/") else []
    return [*own, Path(f"/tmp/horovod-{os.geteuid()}")]


class SharedFile:
    """A file in the first usable directory, made if it isn't there. ValueError if none is usable.

    `readers` of this host wait for the file of another one; 0: rank 0 is on this host.
    """

    def __init__(self, directories: Sequence[Path], name: str, readers: int = 0) -> None:
        problems: list[str] = []
        for path in directories:
            try:
                self._directory = _open_directory(path)
            except OSError as error:
                problems.append(f"{path}: {error.strerror or error}")
            else:
                break
        else:
            raise ValueError("no directory for the ranks to meet in: " + "; ".join(problems))
        self.path = path / name
        self._name = name
        self._readers = readers
        self._refresh_at = self._next_refresh()

    def close(self) -> None:
        os.close(self._directory)

    @contextlib.contextmanager
    def publish(self, endpoint: RendezvousEndpoint) -> Iterator[None]:
        """Rank 0: writes the file, in place of any older one, and removes it at the end."""
        self._tidy()
        content = endpoint.encode()
        draft = self._draft(content)
        try:
            os.rename(draft, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            os.unlink(draft, dir_fd=self._directory)
            raise
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                if self._read() == content:
                    os.unlink(self._name, dir_fd=self._directory)

    def poll(self) -> RendezvousEndpoint | None:
        """Other ranks: what the file says, if it is there. ValueError if it is something else."""
        try:
            return decode(self._read())
        except FileNotFoundError:
            self._refresh()
            return None
        except OSError as error:
            raise ValueError(f"{self.path}: {error.strerror or error}") from error
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None

    def waiting_for(self) -> str:
        return f"its endpoint has not appeared in {self.path.parent}"

    def _read(self) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(self._name, flags, dir_fd=self._directory), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or _for_others(status):
                raise ValueError("not a file that is readable by you only: remove it")
            return file.read(MAX_BYTES)

    def _draft(self, content: bytes) -> str:
        name = f"{_DRAFT_PREFIX}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=self._directory), "wb") as file:
            file.write(content)
        return name

    def _tidy(self) -> None:
        """Removes what jobs that were killed have left behind."""
        for name in os.listdir(self._directory):
            with contextlib.suppress(OSError):
                age = time.time() - os.lstat(name, dir_fd=self._directory).st_mtime
                if name.startswith(_PREFIXES) and age > _OLD_SECONDS:
                    os.unlink(name, dir_fd=self._directory)

    def _refresh(self) -> None:
        """Changes the directory, so that a network file system looks for the file again."""
        if self._readers and time.monotonic() >= self._refresh_at:
            self._refresh_at = self._next_refresh()
            with contextlib.suppress(OSError):
                os.unlink(self._draft(b""), dir_fd=self._directory)

    def _next_refresh(self) -> float:
        return time.monotonic() + random.uniform(0.0, 2.0) * _REFRESH_SECONDS * self._readers


def _for_others(status: os.stat_result) -> bool:
    return status.st_uid != os.geteuid() or bool(status.st_mode & 0o077)


def _open_directory(path: Path) -> int:
    for missing in (path.parent, path) if path == shared_directory() else (path,):
        with contextlib.suppress(FileExistsError):
            os.mkdir(missing, 0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _for_others(os.fstat(descriptor)):
            raise PermissionError(
                None, "belongs to someone else or is open to others (chmod 700 if it is yours)"
            )
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(None, "not writable")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
