"""``horovodrun --timeline FILE``: before the job, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from horovod.timeline import text
from horovod.timeline.files import parts_beside, write_merged
from horovod.timeline.merge import longest

_LINES = 5


def prepare(timeline: Path) -> None:
    """Removes what an earlier job has left beside the file. OSError if nothing can be written there."""
    for path in parts_beside(timeline):
        path.unlink()
    with open(timeline, "ab"):
        pass


def finish(timeline: Path, received: Mapping[int, bytes]) -> list[str]:
    """Merges the parts beside the file and those that were received; what to tell the user."""
    local = parts_beside(timeline)
    contents = {path.name: path.read_bytes() for path in local}
    contents.update({f"{timeline.name}.rank{rank}.part": data for rank, data in received.items()})
    contents = {name: data for name, data in contents.items() if data}
    if not contents:
        return [f"{timeline}: no rank has recorded anything: did the program call hvd.init()?"]
    worlds = write_merged(contents, timeline)
    for path in local:
        path.unlink()
    world = longest(worlds)
    lines = [
        f"timeline of {len(world.traces)} ranks: {timeline} (open it in ui.perfetto.dev)",
        *world.notes(),
    ]
    try:
        lines += text.sentences(world.explain())[:_LINES]
    except ValueError as error:
        lines.append(f"it can't be explained: {error}")
    return [*lines, f"more: python -m horovod.timeline explain {timeline}"]
