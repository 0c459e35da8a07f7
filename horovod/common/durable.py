"""Commits on disk: what an elastic job goes on from when nobody who has its state is left.

A file for each, whole or not there: written beside, synchronised, renamed. The last two are kept,
in case that one can't be read. They hold pickles, so only the user's own are ever loaded, and only
those of this job.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

_MAGIC = b"HVDCOMMIT1\n"
_KEPT = 2


class CommitError(RuntimeError):
    """There is no commit that can be loaded; the text says why."""


def write(directory: Path, job: str, number: int, content: bytes) -> None:
    """Keeps a commit of a job; OSError if it can't."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{job}-{number}.commit"
    draft = directory / f"{job}-{number}.{os.getpid()}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(content).digest())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    for _, old in _commits(directory, job)[_KEPT:]:
        with contextlib.suppress(OSError):
            old.unlink()


def newest(directory: Path, job: str) -> tuple[int, bytes]:
    """The number and the content of the last commit of a job that is whole; CommitError."""
    problems: list[str] = []
    for number, path in _commits(directory, job):
        try:
            return number, _read(path)
        except (OSError, ValueError) as error:
            problems.append(f"{path.name}: {error}")
    raise CommitError(
        f"no commit of this job in {directory} can be loaded ({'; '.join(problems) or 'there is none'}): "
        "--commit-dir must name a directory that all hosts share"
    )


def _commits(directory: Path, job: str) -> list[tuple[int, Path]]:
    """Newest first."""
    found: list[tuple[int, Path]] = []
    for path in directory.glob(f"{job}-*.commit"):
        digits = path.stem.removeprefix(f"{job}-")
        if digits.isascii() and digits.isdigit():
            found.append((int(digits), path))
    return sorted(found, reverse=True)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):  # a pipe would keep the job waiting
            raise ValueError("it is no file")
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("others could have written it")
        data = file.read()
    head = len(_MAGIC) + hashlib.sha256().digest_size
    if not data.startswith(_MAGIC) or hashlib.sha256(data[head:]).digest() != data[len(_MAGIC) : head]:
        raise ValueError("it is damaged")
    return data[head:]
