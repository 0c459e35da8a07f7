"""A small process beside the launcher that ends what discovery scripts have started when the
launcher has ended, also if that was killed.

It is a shell that reads which process groups there are, and kills the last ones that it was told of
when its input ends. A script starts to run only once its group is known here. Below the keeper, as
agents are below a guardian, scripts would not be the launcher's children; and one process for each
call would be a new one every second.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable

_END_SECONDS = 5.0  # a shell that runs takes moments
_PROGRAM = (
    'while read -r given; do groups=$given; done; [ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null'
)
# What a script is run by: it waits until its group is known, and does not run if nobody is left to say so.
WAITING = 'read -r _ && exec /bin/sh -c "$0" </dev/null'


class Keeper:
    """The process, from the first call of tell() to close()."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told: set[int] = set()

    def tell(self, groups: Iterable[int]) -> None:
        """These process groups, and no others, are to end with this process."""
        wanted = set(groups)
        if wanted == self._told:
            return
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has just killed it: the next one is told
            self._process.stdin.write(" ".join(f"-{group}" for group in sorted(wanted)).encode() + b"\n")
            self._told = wanted

    def close(self) -> None:
        """Ends it, and all groups that it was told of."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # somebody has stopped it
                process.kill()
                process.wait()
        self._told = set()

    def _start(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        # A session of its own: what the terminal sends to the launcher's group is not meant for it.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _PROGRAM],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
