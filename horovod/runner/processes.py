"""Linux process control shared by the launcher and the agent: nothing that a job started may
outlive it.

Both become *child subreapers*: a descendant whose parent dies becomes their child instead of
init's, so daemons that fork twice are found too, and "no child left" means "no descendant left".
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Collection

LONGEST_WAIT = 1e6  # seconds; poll() takes no more than 24.8 days
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Found before any fork, so that a child only has to call it.
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Makes this process the new parent of its orphaned descendants."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(error)}")


def prepare_worker(parent: int, number: int = signal.SIGKILL) -> Callable[[], None]:
    """A function for a forked child: it leads a process group and gets this signal when ``parent``
    dies.

    It gets no session of its own: Linux shares out processor time between sessions (autogroups), so
    a rank that makes room for another would only make room for itself.
    """

    def prepare() -> None:
        os.setpgid(0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        # The parent may have died between fork and prctl.
        if os.getppid() != parent:
            os._exit(128 + number)

    return prepare


def hold_standard_descriptors() -> None:
    """Fills closed descriptors 0 to 2, which a socket might get and be taken for the console."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def descendants(root: int, exclude: Collection[int] = ()) -> dict[int, int]:
    """Living processes below ``root``, parents first, and the group of each.

    ``exclude``d ones are left out with all below them.
    """
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}  # of those that live
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name, in parentheses, may contain anything: look behind the last one.
                fields = file.read().rpartition(b")")[2].split()
                state, parent, group, *_, threads = fields[:18]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        pid = int(entry)
        children.setdefault(int(parent), []).append(pid)
        # The state is the first thread's, and the others may take longer to end.
        if state not in (b"Z", b"X") or int(threads) > 1:
            groups[pid] = int(group)
    found: dict[int, int] = {}
    queue = [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), ()) if pid not in exclude]
        found.update({pid: groups[pid] for pid in below if pid in groups})
        queue += below
    return found


def send(pid: int, number: int) -> None:
    """Sends a signal, if the process still exists and is ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def send_group(group: int, number: int) -> None:
    """The same for all processes of a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether a process was started with this in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{name}={value}".encode() in file.read().split(b"\0")
    except OSError:
        return False  # it ended meanwhile, or belongs to somebody else


class Sweep:
    """Ends all descendants of this process: SIGTERM, SIGKILL after a while, until none is left.

    Without ``groups`` everyone gets SIGTERM at once. With them only these process groups do, and
    have the whole time: what they start in order to save their work is left alone. When they are
    gone, all that are left get SIGTERM and a shorter time. ``only`` picks those that are meant by
    process id and group. Never blocks; ``now`` is the caller's monotonic clock.
    """

    GIVE_UP_AFTER = 10.0  # seconds of SIGKILL: a process stuck in the kernel cannot be ended
    LEFTOVER_KILL_AFTER = 5.0  # from SIGTERM to SIGKILL for what is left when the groups are gone

    def __init__(
        self,
        now: float,
        kill_after: float,
        exclude: Collection[int] = (),
        groups: Collection[int] = (),
        only: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.left: list[int] = []  # those still there, as of the last step
        self._kill_at = now + kill_after
        self._exclude = exclude
        self._groups = set(groups)
        self._only = only
        self._told: set[int] = set()  # of the groups
        self._all_told = False

    def hurry(self, kill_at: float) -> None:
        """Moves SIGKILL forward to ``kill_at``, if that is earlier."""
        self._kill_at = min(self._kill_at, kill_at)

    def step(self, now: float) -> bool:
        """Signals those that are left; True when none is, or when it is hopeless."""
        found = descendants(os.getpid(), self._exclude)
        if self._only is not None:
            found = {pid: group for pid, group in found.items() if self._only(pid, group)}
        self.left = list(found)
        if now >= self._kill_at:
            for pid in found:
                send(pid, signal.SIGKILL)
        elif groups := self._groups.intersection(found.values()):
            for group in groups - self._told:
                send_group(group, signal.SIGTERM)
                send_group(group, signal.SIGCONT)  # a stopped process could not react
            self._told |= groups
        elif not self._all_told:
            self._all_told = True
            if self._groups:
                self.hurry(now + self.LEFTOVER_KILL_AFTER)
            for pid in found:
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)
        return not self.left or now > self._kill_at + self.GIVE_UP_AFTER
