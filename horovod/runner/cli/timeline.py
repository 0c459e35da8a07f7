"""``horovodrun --timeline FILE``: before the job, and when it is over."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from horovod.runner.agent.timeline_parts import unpacked
from horovod.timeline import text
from horovod.timeline.files import generations_beside, parts_beside, write_merged
from horovod.timeline.merge import longest
from horovod.timeline.records import MAGIC

VARIABLE = "_HOROVOD_TIMELINE_COLLECTED"  # tells the ranks that finish() is to come
_LINES = 5
_MEMORY = 10  # bytes for each byte of records while they are merged
_LARGE = 20_000_000  # bytes of records, of which the merge takes so long that it is announced


def prepare(timeline: Path) -> None:
    """Removes what an earlier job has left beside the file. OSError if nothing can be written there."""
    try:
        for path in (*parts_beside(timeline), *generations_beside(timeline)):
            path.unlink()
        with open(timeline, "ab"):
            pass
    except OSError as error:
        raise OSError(f"--timeline {timeline}: {error.strerror}: give a file that can be written") from error


def finish(timeline: Path, received: Iterable[bytes], reasons: Mapping[int, str] | None = None) -> None:
    """Merges the parts beside the file and those that agents have sent, and tells the user.

    ``reasons``: why each generation of an elastic job has come.

    A timeline that can't be merged costs a message, not the exit code of the job. Nor does Ctrl-C,
    for whom it takes too long.
    """
    remote: dict[str, bytes] = {}
    try:
        for data in received:
            remote.update(unpacked(data))
        lines = _merged(timeline, remote, reasons)
    except (OSError, ValueError) as error:
        lines = [f"the timeline could not be merged: {error}", *_kept(timeline, remote)]
    except KeyboardInterrupt:
        lines = ["the timeline is not merged: interrupted", *_kept(timeline, remote)]
    for line in lines:
        print(f"horovodrun: {line}", file=sys.stderr)


def _available() -> int:
    """Bytes of memory; a container's limit, too."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(free)


def _kept(timeline: Path, remote: Mapping[str, bytes]) -> list[str]:
    """Writes what agents have sent beside the file, where those of this host are."""
    try:
        for name, data in remote.items():
            timeline.with_name(name).write_bytes(data)
    except OSError as error:
        return [f"its parts are beside {timeline}, but not all of them: {error}"]
    base, extension = os.path.splitext(timeline)
    words = ["python", "-m", "horovod.timeline", "merge", str(timeline), "-o", f"{base}.all{extension}"]
    return [f"its parts are beside {timeline}; to join them: {shlex.join(words)}"]


def _merged(timeline: Path, remote: Mapping[str, bytes], reasons: Mapping[int, str] | None) -> list[str]:
    local = parts_beside(timeline)
    contents = {path.name: path.read_bytes() for path in local} | dict(remote)
    # A rank that was killed at once, or whose disk was full, has left nothing, or the beginning of one.
    contents = {name: data for name, data in contents.items() if not MAGIC.startswith(data)}
    size = sum(map(len, contents.values()))
    if size > _LARGE:
        have = f"{size / 1e6:.0f} MB of records"
        needed, available = _MEMORY * size, _available()
        if needed > available:
            raise OSError(
                f"{have} need some {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} are available: "
                "join them elsewhere, or have the program call hvd.stop_timeline() after some hundred steps"
            )
        print(f"horovodrun: {timeline}: merging {have}; Ctrl-C leaves them as they are", file=sys.stderr)
    if not contents:
        if timeline.is_file() and not timeline.stat().st_size:
            timeline.unlink()  # prepare() has made it
        return [f"{timeline}: no rank has recorded anything: did the program call hvd.init()?"]
    worlds = write_merged(contents, timeline, reasons=reasons)
    for path in (*local, *generations_beside(timeline)):
        path.unlink()
    world = longest(worlds)
    several = f" ({len(worlds)} worlds; of the longest:)" if len(worlds) > 1 else ""
    ranks = text.counted(len(world.traces), "rank")
    lines = [
        f"timeline of {ranks}: {timeline} (open it in ui.perfetto.dev){several}",
        *world.notes(),
    ]
    try:
        lines += text.sentences(world.explain())[:_LINES]
    except ValueError as error:
        lines.append(f"it can't be explained: {error}")
    return [*lines, f"more: python -m horovod.timeline explain {shlex.quote(str(timeline))}"]
