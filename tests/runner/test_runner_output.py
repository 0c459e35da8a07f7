"""Prefixes, tails and frames: what must not be lost, torn or mixed up."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from runner_util import horovodrun

from horovod.runner.agent.frames import Frame, FrameReader, FrameWriter, Kind
from horovod.runner.launcher import failure
from horovod.runner.launcher.output import Console, Prefixer, RankOutput, Tail


def prefixed(*pieces: bytes) -> bytes:
    prefixer = Prefixer(lambda: b"P:")
    return b"".join(prefixer.feed(piece) for piece in pieces) + prefixer.flush()


@pytest.mark.parametrize(
    ("pieces", "result"),
    [
        ([b"a\n"], b"P:a\n"),
        ([b"a\nb\n"], b"P:a\nP:b\n"),
        ([b"a", b"b\nc"], b"P:ab\nP:c\n"),
        ([b"\n\n"], b"P:\nP:\n"),
        ([b"10%\r20%\r", b"done\n"], b"P:10%\rP:20%\rP:done\n"),
        ([b"a\r\nb\r\n"], b"P:a\r\nP:b\r\n"),
        ([b"a\r", b"\nb\n"], b"P:a\r\nP:b\n"),
        ([b"\xc3", b"\xa4\n"], b"P:\xc3\xa4\n"),
        ([b"\xff\xfe\n"], b"P:\xff\xfe\n"),
        ([b""], b""),
    ],
)
def test_prefixes(pieces: list[bytes], result: bytes) -> None:
    assert prefixed(*pieces) == result


def test_prefixes_do_not_depend_on_the_cuts() -> None:
    generator = random.Random(1)
    text = "".join(generator.choice("aä€\n\r\n\n") for _ in range(3000)).encode() + b"end"
    whole = prefixed(text)
    for _ in range(50):
        cuts = sorted(generator.sample(range(len(text)), 20))
        assert prefixed(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))) == whole


def test_endless_line_does_not_fill_memory() -> None:
    prefixer = Prefixer(lambda: b"P:")
    assert len(prefixer.feed(b"x" * (3 << 20))) > 3 << 20


def test_tail_keeps_the_last_lines_and_the_last_state_of_progress_bars() -> None:
    tail = Tail()
    for number in range(100_000):
        tail.feed(b"line %d\n" % number)
    tail.feed(b"1%\r2%\r3%\nlast \xff\n\n")
    lines = tail.lines()
    assert lines[-2:] == ["3%", "last \ufffd"]
    assert len(lines) == 60 and lines[0] == "line 99942"


def test_console_with_a_full_pipe_does_not_block() -> None:
    read, write = os.pipe()
    console = Console(write, write)
    data = b"".join(b"%d\n" % number for number in range(100_000))
    console.put("stdout", data)
    console.write_some()
    assert console.full() or console.pending
    assert console.waiting_for() == write
    received = b""
    while console.pending:
        received += os.read(read, 1 << 16)
        console.write_some()
    os.close(write)
    while piece := os.read(read, 1 << 16):
        received += piece
    os.close(read)
    assert received == data


def test_console_notices_a_reader_that_left() -> None:
    read, write = os.pipe()
    os.close(read)
    console = Console(write, write)
    console.put("stdout", b"x\n")
    console.write_some()
    os.close(write)
    assert console.lost and console.pending == 0


def test_output_files_of_one_and_of_many_ranks(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    null = os.open(os.devnull, os.O_WRONLY)
    for size, name in ((1, "rank.0"), (11, "rank.00")):
        output = RankOutput(Console(null, null), size, str(folder / str(size)))
        output.feed(0, "stdout", b"a\nb")
        output.feed(0, "stderr", b"c\n")
        output.close()
        assert (folder / str(size) / name / "stdout").read_bytes() == b"[0]<stdout>:a\n[0]<stdout>:b\n"
        assert (folder / str(size) / name / "stderr").read_bytes() == b"[0]<stderr>:c\n"
    os.close(null)


def test_frames_survive_any_cut() -> None:
    read, write = os.pipe()
    writer = FrameWriter(write)
    frames = [Frame(Kind.STDOUT, rank, bytes([rank]) * rank * 7) for rank in range(30)]
    for frame in frames:
        writer.put(frame.kind, frame.payload, frame.rank)
    writer.flush()
    assert writer.pending == 0
    data = os.read(read, 1 << 20)
    os.close(read)
    os.close(write)
    reader = FrameReader()
    assert [frame for byte in data for frame in reader.feed(bytes([byte]))] == frames


def test_frames_reject_something_else() -> None:
    with pytest.raises(ValueError):
        list(FrameReader().feed(b"Traceback (most recent call last)"))


@pytest.mark.parametrize(
    ("code", "ours", "words", "shell"),
    [
        (3, False, "exited with code 3", 3),
        (-11, False, "was ended by signal 11 (SIGSEGV)", 139),
        (-70, True, "was ended by signal 70", 198),
        (-9, False, "was ended by signal 9 (SIGKILL), perhaps because the host ran out of memory", 137),
        (-9, True, "was ended by signal 9 (SIGKILL) from horovodrun", 137),
    ],
)
def test_ends_in_words(code: int, ours: bool, words: str, shell: int) -> None:
    assert failure.describe(code, ours) == words
    assert failure.exit_code(code) == shell


def test_ranks_in_words() -> None:
    assert failure.ranks([3]) == "rank 3"
    assert failure.ranks([0, 1, 2, 5, 7, 8]) == "ranks 0-2,5,7-8"


@pytest.mark.parametrize("what", ["rank.0/stdout", "rank.0"])
def test_links_in_the_output_directory_are_not_followed(tmp_path: Path, what: str) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "stdout").write_text("precious")
    link = tmp_path / "out" / what
    link.parent.mkdir(parents=True)
    link.symlink_to(treasure / "stdout" if what.endswith("stdout") else treasure)
    result = horovodrun("-np", "1", "--output-filename", "out", "echo", "overwritten", cwd=tmp_path)
    assert result.returncode == 1
    assert f"out/{what} is a link; remove it" in result.stderr
    assert (treasure / "stdout").read_text() == "precious"
