"""How many descriptors this process may have, and a clear word if that is too few."""

from __future__ import annotations

import errno
import os
import resource

_ENOUGH = 1 << 20  # where there is no limit
_RESERVE = 32  # for what a process opens besides: libraries, its own files


def raise_limit() -> None:
    """Raises the soft limit to the hard one: the usual 1024 is for programs that call select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many there may be."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def require(more: int, what: str) -> None:
    """OSError, with the remedy, if ``what`` needs more descriptors than can still be opened."""
    opened = len(os.listdir("/proc/self/fd"))
    if opened + more + _RESERVE > limit():
        raise OSError(
            errno.EMFILE,
            f"{what} need {more} file descriptors, but with the {opened} that are open already this process "
            f"may have only {limit()}: raise the hard limit ('ulimit -Hn', LimitNOFILE= of systemd, nofile "
            "in /etc/security/limits.conf)",
        )
