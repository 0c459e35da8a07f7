"""Timelines as files: parts are found and read, merged files written and read again."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from horovod.timeline import chrome
from horovod.timeline.merge import World, merged
from horovod.timeline.records import MAGIC, Part, PartError, read_parts

_EMBEDDED = '\n"horovod": '


# What the worlds of an elastic job put between the name of the timeline and its extension.
_GENERATION = r"\.generation\.(\d+)"


def parts_beside(timeline: Path) -> list[Path]:
    """The part files of a timeline, by generation and rank."""
    pattern = _pattern(timeline, r"\.rank(\d+)\.part")
    found = [
        (int(match[1] or 0), int(match[2]), path)
        for path in timeline.parent.glob("*.part")
        if (match := pattern.fullmatch(path.name)) is not None
    ]
    return [path for *_, path in sorted(found)]


def generations_beside(timeline: Path) -> list[Path]:
    """What rank 0 of each generation of an elastic job has written."""
    pattern = _pattern(timeline, "")
    found = (path for path in timeline.parent.glob("*") if path.name != timeline.name)
    return [path for path in found if pattern.fullmatch(path.name)]


def _pattern(timeline: Path, rest: str) -> re.Pattern[str]:
    base, extension = os.path.splitext(timeline.name)
    return re.compile(f"{re.escape(base)}(?:{_GENERATION})?{re.escape(extension)}{rest}")


def _read(data: bytes, name: str, source: str) -> list[Part]:
    """The parts of a file; of an elastic job's they know the generation from its name."""
    parts = read_parts(data, source)
    found = re.search(_GENERATION + r"(?:\.[^.]*)?\.rank\d+\.part$", name)
    if found is not None:
        for part in parts:
            part.header["generation"] = int(found[1])
    return parts


def load(paths: Sequence[Path]) -> list[Part]:
    """What was recorded, from part files or merged ones. PartError and OSError name the file."""
    parts: list[Part] = []
    for path in paths:
        data = path.read_bytes()
        if data.startswith(MAGIC):
            parts += _read(data, path.name, str(path))
            continue
        beside = parts_beside(path)
        if beside:
            parts += load(beside)
        else:
            parts += _from_merged(data, path)
    return parts


def contents_of(paths: Iterable[Path]) -> tuple[dict[str, bytes], dict[int, str]]:
    """Part files by name, those beside a timeline or within a merged one, and the reasons of the
    generations that such a one knows. PartError and OSError name the file."""
    contents: dict[str, bytes] = {}
    reasons: dict[int, str] = {}
    for path in (each for given in paths for each in parts_beside(given) or [given]):
        data = path.read_bytes()
        if data.startswith(MAGIC):
            contents[path.name] = data
            continue
        embedded = _embedded(data, path)
        contents |= _parts_within(embedded)
        reasons |= {int(generation): text for generation, text in embedded.get("reasons", {}).items()}
    return contents, reasons


def _from_merged(data: bytes, path: Path) -> list[Part]:
    return [
        part
        for name, content in _parts_within(_embedded(data, path)).items()
        for part in _read(content, name, f"{path} ({name})")
    ]


def _parts_within(embedded: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: zlib.decompress(base64.b64decode(data)) for name, data in embedded["parts"].items()}


def _embedded(data: bytes, path: Path) -> dict[str, Any]:
    """What a merged file has for us at its end."""
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    text = data.decode(errors="replace")
    at = text.rfind(_EMBEDDED)
    if at < 0:
        raise PartError(
            f"{path} has the records of rank 0 alone, or was not made by this Horovod: run the job with "
            "'horovodrun --timeline FILE', which records all ranks"
        )
    embedded: dict[str, Any]
    embedded, _ = json.JSONDecoder().raw_decode(text, at + len(_EMBEDDED))
    return embedded


def write_merged(
    contents: Mapping[str, bytes],
    target: Path,
    window: tuple[int, int] | None = None,
    reasons: Mapping[int, str] | None = None,
) -> list[World]:
    """Merges part files, given by name and content, into ``target``; compressed if it ends in .gz.

    ``reasons`` tells why each generation of an elastic job has come.
    The target is replaced in one moment: whoever has the old file open keeps it. PartError, OSError.
    """
    parts = [part for name, data in contents.items() for part in _read(data, name, name)]
    for part in parts:
        part.header["reason"] = (reasons or {}).get(part.header.get("generation", 0), "")
    worlds = merged(parts)
    embedded: dict[str, Any] = {
        "version": 1,
        "reasons": dict(reasons or {}),
        "parts": {name: base64.b64encode(zlib.compress(data, 6)).decode() for name, data in contents.items()},
        "clocks": [
            {host: {"uncertainty_ns": clock.uncertainty, "note": clock.note} for host, clock in each.items()}
            for each in (world.clocks for world in worlds)
        ],
    }
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _write(new, chrome.write(worlds, embedded, window), target.name.endswith(".gz"))
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
    return worlds


def _write(path: Path, pieces: Iterable[str], compressed: bool) -> None:
    with open(path, "wb") as raw:
        if not compressed:
            for piece in pieces:
                raw.write(piece.encode())
            return
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
            for piece in pieces:
                file.write(piece.encode())
