"""What the workers write: prefixes, files, and a console that is never waited for blindly."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_LINE_END = re.compile(rb"\r\n|\n|\r")
_PIPE_BUF = select.PIPE_BUF  # a pipe that polls as writable takes this much without blocking
_LONGEST_LINE = 1 << 20
_TAIL_BYTES = 64 << 10
_TAIL_LINES = 60


class Prefixer:
    """Turns pieces of one stream into whole lines with a prefix.

    Lines end with ``\\n`` or, for progress bars, with ``\\r``; both are kept. Cutting only there
    keeps multi-byte characters whole, so bytes pass through as they are, whatever their encoding.
    Lines beyond 1 MiB are split.
    """

    def __init__(self, prefix: Callable[[], bytes]) -> None:
        self._prefix = prefix
        self._partial = bytearray()
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        """The lines completed by ``data``, with their prefixes."""
        lead = b""
        if self._after_return and data.startswith(b"\n"):
            # The other half of \r\n: its line has been passed on already.
            lead, data = b"\n", data[1:]
        if data:
            self._after_return = False
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end == 0:
            self._partial += data
            return lead + (self.flush() if len(self._partial) > _LONGEST_LINE else b"")
        complete = bytes(self._partial) + data[:end]
        self._partial[:] = data[end:]
        self._after_return = data.endswith(b"\r")
        prefix = self._prefix()
        # Each line end but the last is followed by a prefix.
        last = 2 if complete.endswith(b"\r\n") else 1
        body, ending = complete[:-last], complete[-last:]
        body = (
            _LINE_END.sub(lambda match: match[0] + prefix, body)
            if b"\r" in body
            else body.replace(b"\n", b"\n" + prefix)
        )
        return lead + prefix + body + ending

    def flush(self) -> bytes:
        """What is left when the stream ends without a line end."""
        if not self._partial:
            return b""
        line = self._prefix() + bytes(self._partial) + b"\n"
        self._partial.clear()
        return line


class Tail:
    """Remembers the end of a stream."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * _TAIL_BYTES:
            del self._data[:-_TAIL_BYTES]

    def lines(self) -> list[str]:
        """The last lines; of a progress bar only its last state."""
        text = bytes(self._data[-_TAIL_BYTES:]).decode(errors="replace")
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        while lines and not lines[-1].strip():
            lines.pop()
        return lines[-_TAIL_LINES:]


class Console:
    """stdout and stderr of the launcher, written in order and only when they have room.

    The descriptors stay blocking, because other processes share them; instead, small pieces are
    written when poll() says that they fit.
    """

    HIGH_WATER = 1 << 20

    def __init__(self, stdout: int = 1, stderr: int = 2) -> None:
        self._fds = {"stdout": stdout, "stderr": stderr}
        self._queue: deque[tuple[int, memoryview]] = deque()
        self._piece = {fd: _piece_size(fd) for fd in (stdout, stderr)}
        self.pending = 0  # bytes not yet written
        self.lost = False  # nobody reads stdout any more

    def put(self, stream: str, data: bytes) -> None:
        """Queues ``data`` for "stdout" or "stderr"."""
        if data:
            self._queue.append((self._fds[stream], memoryview(data)))
            self.pending += len(data)

    def waiting_for(self) -> int | None:
        """The descriptor whose room is needed next, if any."""
        return self._queue[0][0] if self._queue else None

    def full(self) -> bool:
        """Whether the caller should stop adding."""
        return self.pending > self.HIGH_WATER

    def write_some(self) -> None:
        """Writes as much as fits now."""
        while self._queue:
            fd, data = self._queue[0]
            if not _writable(fd, 0.0):
                return
            try:
                count = os.write(fd, data[: self._piece[fd]])
            except BlockingIOError:
                return
            except OSError as error:
                # Closed pipe, vanished terminal, full disk: what is queued for it cannot be shown.
                self._drop(fd)
                if fd == self._fds["stdout"] and error.errno in (errno.EPIPE, errno.EIO):
                    self.lost = True
                continue
            self.pending -= count
            if count == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = (fd, data[count:])

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Writes the rest.

        A slow reader may take its time unless ``give_up()``, asked every 0.2 s.
        """
        while self._queue and not give_up():
            _writable(self._queue[0][0], 0.2)
            self.write_some()

    def _drop(self, fd: int) -> None:
        self._queue = deque(item for item in self._queue if item[0] != fd)
        self.pending = sum(len(data) for _, data in self._queue)


def _piece_size(fd: int) -> int:
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return _PIPE_BUF
    return 1 << 16 if regular else _PIPE_BUF


def _writable(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    # Errors count as writable: the write then tells what is wrong.
    return bool(poll.poll(int(seconds * 1000)))


def create(folder: Path, name: str, append: bool = False) -> BinaryIO:
    """A file in a folder, both made if need be.

    Links that somebody has put there are not followed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder
    try:
        within = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            path = folder / name
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
            return os.fdopen(os.open(name, flags, 0o666, dir_fd=within), "wb", buffering=0)
        finally:
            os.close(within)
    except OSError as error:
        if path.is_symlink():
            raise OSError(error.errno, f"--output-filename: {path} is a link; remove it") from None
        raise


class RankOutput:
    """Routes what each rank writes to the console and, if wanted, to files."""

    def __init__(
        self, console: Console, size: int, directory: str | None = None, timestamps: bool = False
    ) -> None:
        self._console = console
        self._timestamps = timestamps
        self._prefixers: dict[tuple[int, str], Prefixer] = {}
        self._files: dict[tuple[int, str], BinaryIO] = {}
        self._tails = {rank: Tail() for rank in range(size)}
        for rank in range(size):
            for stream in ("stdout", "stderr"):
                self._prefixers[rank, stream] = Prefixer(self._prefix(rank, stream))
                if directory is not None:
                    folder = Path(directory) / f"rank.{rank:0{len(str(size - 1))}d}"
                    self._files[rank, stream] = create(folder, stream)

    def _prefix(self, rank: int, stream: str) -> Callable[[], bytes]:
        plain = f"[{rank}]<{stream}>:".encode()
        return (lambda: time.asctime().encode() + plain) if self._timestamps else (lambda: plain)

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Takes what ``rank`` wrote to "stdout" or "stderr"."""
        if stream == "stderr":
            self._tails[rank].feed(data)
        self._emit(rank, stream, self._prefixers[rank, stream].feed(data))

    def tail(self, rank: int) -> list[str]:
        """The last lines that ``rank`` wrote to stderr."""
        return self._tails[rank].lines()

    def close(self) -> None:
        """Passes on unfinished lines and closes the files."""
        for (rank, stream), prefixer in self._prefixers.items():
            self._emit(rank, stream, prefixer.flush())
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _emit(self, rank: int, stream: str, data: bytes) -> None:
        if not data:
            return
        self._console.put(stream, data)
        file = self._files.get((rank, stream))
        if file is None:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[file.write(view) :]
        except OSError as error:
            # A full disk must not end the training; say it once and go on without this file.
            file.close()
            del self._files[rank, stream]
            self._console.put(
                "stderr", f"horovodrun: writing {file.name} failed: {error.strerror}\n".encode()
            )
