"""Linux process control shared by the launcher and the agent: nothing that a job started may outlive it.

Both become *child subreapers*: a descendant whose parent dies becomes their child instead of init's, so
daemons that fork twice are found too, and "no child left" means "no descendant left".
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Found before any fork, so that a child only has to call it.
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Makes this process the new parent of its orphaned descendants."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(error)}")


def prepare_worker(parent: int) -> Callable[[], None]:
    """A function for a forked child: it leads a process group and will be killed when ``parent`` dies.

    It gets no session of its own: Linux shares out processor time between sessions (autogroups), so a rank
    that makes room for another would only make room for itself.
    """

    def prepare() -> None:
        os.setpgid(0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # The parent may have died between fork and prctl.
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)

    return prepare


def hold_standard_descriptors() -> None:
    """Fills closed descriptors 0 to 2: a socket might get such a number and be taken for the console."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def descendants(root: int, exclude: Collection[int] = ()) -> list[int]:
    """Living processes below ``root``, parents first. ``exclude``d ones are left out with all below them."""
    children: dict[int, list[int]] = {}
    zombies: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name, in parentheses, may contain anything: look behind the last one.
                state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        pid = int(entry)
        children.setdefault(int(parent), []).append(pid)
        if state in (b"Z", b"X"):
            zombies.add(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), ()) if pid not in exclude]
        found += [pid for pid in below if pid not in zombies]
        queue += below
    return found


def send(pid: int, number: int) -> None:
    """Sends a signal, if the process still exists and is ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


class Sweep:
    """Ends all descendants of this process: SIGTERM to each, SIGKILL after a while, until none is left.

    Never blocks; ``now`` is the caller's monotonic clock.
    """

    GIVE_UP_AFTER = 10.0  # seconds of SIGKILL: a process stuck in the kernel cannot be ended

    def __init__(self, now: float, kill_after: float, exclude: Collection[int] = ()) -> None:
        self.left: list[int] = []  # who is still there, as of the last step
        self._kill_at = now + kill_after
        self._exclude = exclude
        self._termed: set[int] = set()

    def hurry(self, kill_at: float) -> None:
        """Moves SIGKILL forward to ``kill_at``, if that is earlier."""
        self._kill_at = min(self._kill_at, kill_at)

    def step(self, now: float) -> bool:
        """Signals whoever is left; True when nobody is, or when it is hopeless."""
        self.left = descendants(os.getpid(), self._exclude)
        for pid in self.left:
            if now >= self._kill_at:
                send(pid, signal.SIGKILL)
            elif pid not in self._termed:
                self._termed.add(pid)
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process could not react
        return not self.left or now > self._kill_at + self.GIVE_UP_AFTER
