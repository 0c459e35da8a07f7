"""``horovodrun --stack-dump [JOB]``: asks a job of another shell where its ranks are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from horovod.runner import jobs
from horovod.runner.launcher.event_log import read
from horovod.runner.launcher.signals import ASKED, catches
from horovod.runner.launcher.stack_requests import asked_for, shown

_SECONDS = 6.0  # for all answers
_QUIET = 1.0  # seconds after the last one
_TICK = 0.1


def stack_dump(word: str | None, environ: Mapping[str, str]) -> int:
    """Prints the stacks of all ranks that answer; 1 if none does."""
    job = jobs.named(environ, word)
    if job is None:
        return 1
    if job.elsewhere:
        print(f"horovodrun: job {job.id} was started on {job.about['node']}: ask there", file=sys.stderr)
        return 1
    if not job.running:
        print(f"horovodrun: job {job.id} has ended", file=sys.stderr)
        return 1
    with (job.path / jobs.EVENTS).open("rb") as file:
        file.seek(0, os.SEEK_END)
        if catches(job.pid, ASKED):  # it has begun, and not ended
            os.kill(job.pid, ASKED)
        begin = heard = time.monotonic()
        count = 0
        rest = b""
        while (now := time.monotonic()) < begin + _SECONDS and (count == 0 or now < heard + _QUIET):
            *lines, rest = (rest + file.read()).split(b"\n")
            for event in read(line + b"\n" for line in lines):
                if asked_for(event):
                    print(shown(event), end="", flush=True)
                    count, heard = count + 1, now
            if count >= int(job.about.get("np", 0)) > 0:
                break
            time.sleep(_TICK)
    if count == 0:
        print(
            "horovodrun: no rank has answered: rank 0 has not called hvd.init(), or has ended",
            file=sys.stderr,
        )
    return 0 if count else 1
