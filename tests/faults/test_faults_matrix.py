"""A rank ends in any way at any moment: the others notice in time and know who and why; nothing is left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fault_job import GRACE, StartJob
from fault_plan import Fault, covering, every

JOIN_LIMIT = 3.0  # HOROVOD_GLOO_TIMEOUT_SECONDS where a rank never joins
SILENCE = 3.0  # HOROVOD_PEER_TIMEOUT_SECONDS, the default
ATTEMPTS = 4  # at ending a rank in the middle of an operation
SUBSET = covering()


def in_init(fault: Fault) -> bool:
    return fault.moment in ("before_init", "in_init")


def time_limit(fault: Fault) -> float:
    """Seconds from the fault to the last survivor's error, on a machine that has nothing else to do."""
    if in_init(fault):
        if fault.end == "SIGSTOP":
            # The server looks every half second.
            return (JOIN_LIMIT if fault.moment == "before_init" else SILENCE) + 2
        return 2.0  # the launcher tells
    if fault.end == "SIGSTOP":
        return SILENCE
    # After an exception the interpreter ends in good order, and what was under way is finished first.
    return 3.0 if fault.end == "exception" else 0.1


def words(fault: Fault, pid: int) -> list[str]:
    """Regular expressions that a survivor's error matches."""
    victim = f"rank {fault.victim}"
    process = re.escape(f"{victim} (host ") + rf"[^,]+, pid {pid}\)"
    if fault.moment == "before_init":
        how = {
            "SIGKILL": "signal 9",
            "SIGSEGV": "signal 11",
            "exception": "exited with code 1",
            "exit0": "exited with code 0",
            "SIGSTOP": "missing: rank",
        }
        return [rf"{victim}\b", how[fault.end]]
    if fault.moment == "in_init":
        lost = "lost its connection"
        how = {
            "SIGKILL": f"signal 9|{lost}",
            "SIGSEGV": f"signal 11|{lost}",
            "exception": "gave up: FaultError: the victim's own error",
            "exit0": f"exited with code 0|{lost}",
            "SIGSTOP": r"not answered for 3 s .* stopped",
        }
        return [process, how[fault.end]]
    how = {
        "SIGKILL": "was killed by signal 9",
        "SIGSEGV": "was killed by signal 11",
        "exception": "shut down",
        "exit0": "exited with code 0 without shutting Horovod down",
        "SIGSTOP": r"silent for \d\.\d s \(its process is stopped\)",
    }
    if fault.end == "exception":
        return [rf"{victim}\b", how[fault.end]]
    if fault.moment == "in_shutdown":
        # It may have told them in time, and the launcher may not have collected it yet.
        return [rf"{victim}\b", f"{how[fault.end]}|shut down: {victim} |cut short: {victim} "]
    return [process, how[fault.end]]


def check_survivor(fault: Fault, died: dict[str, Any], seen: dict[str, Any], allowance: float) -> float:
    """Returns the seconds it took to notice. `allowance`: by how many a busy machine made it late."""
    assert seen["named_memory"] == []  # what has no name can't be left behind
    delay = float(seen["when"] - max(died["at"], seen["began"]))
    assert delay <= time_limit(fault) + allowance, (delay, allowance, seen)
    if fault.moment == "before_shutdown":
        assert seen["succeeded"] == ["shutdown"], seen
        return delay
    assert seen["kind"] == "HorovodInternalError", seen
    for pattern in words(fault, died["pid"]):
        assert re.search(pattern, seen["text"], re.DOTALL), (pattern, seen)
    if in_init(fault):
        return delay
    assert [later["name"] for later in seen["later"]] == ["allreduce", "barrier", "submit", "object"]
    for later in seen["later"]:
        assert later["text"] == seen["text"]
        assert later["seconds"] < 0.5 + allowance
    return delay


def check_launcher(fault: Fault, result: subprocess.CompletedProcess[str]) -> None:
    """The exit code, and who is named at the very end."""
    report = result.stderr.rpartition("horovodrun: rank ")[2]
    name, code = (line.rpartition(": ")[2] for line in report.splitlines()[-2:])
    blamed = int(name)
    assert report.startswith(f"{blamed} on localhost failed first: it ")
    assert int(code) == result.returncode
    if fault.end in ("SIGKILL", "SIGSEGV"):
        number = signal.Signals[fault.end]
        assert (blamed, result.returncode) == (fault.victim, 128 + number)
        assert f"signal {number:d} ({fault.end})" in report
    elif fault.end == "exception":
        assert (blamed, result.returncode) == (fault.victim, 1)
        assert "FaultError: the victim's own error" in report
    else:
        # An exit with 0 and a stopped process are no failures to the launcher: it shows a survivor's error.
        assert blamed in fault.survivors and result.returncode == 1
        if fault.moment != "before_shutdown":
            assert re.search(rf"HorovodInternalError: .*rank {fault.victim}\b", report)


def check_events(fault: Fault, state: str, code: int) -> None:
    """The event log tells the same story, in order."""
    (file,) = Path(state).glob("horovod/jobs/*/events.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "job_start" and names[-2:] == ["failure", "job_end"], names
    started = [event["rank"] for event in events if event["event"] == "rank_started"]
    ended = [event["rank"] for event in events if event["event"] == "rank_exit"]
    assert sorted(started) == sorted(ended) == list(range(fault.size))
    last = {name: len(names) - names[::-1].index(name) for name in ("rank_started", "rank_exit", "failure")}
    assert last["rank_started"] < last["rank_exit"] < last["failure"], names
    if fault.end in ("SIGKILL", "SIGSEGV"):
        assert events[-2]["rank"] == fault.victim and events[-2]["code"] == -signal.Signals[fault.end]
    assert events[-1]["code"] == code


def run(fault: Fault, start: StartJob, record: Any, state: Path) -> None:
    environment = {"HOROVOD_TRANSPORT": fault.transport}
    if in_init(fault):
        short = fault.moment == "before_init" and fault.end == "SIGSTOP"
        environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(JOIN_LIMIT if short else 60)
    # Nobody but the launcher ends a stopped rank. The others get time to tell what they saw.
    grace = GRACE if fault.end == "SIGSTOP" else 60.0
    for attempt in range(1, ATTEMPTS + 1):
        environment["XDG_STATE_HOME"] = str(state / str(attempt))
        job = start(fault.size, "fault_rank.py", fault.to_json(), grace=grace, **environment)
        result = job.finish(100)
        died = job.notes.wait("fault", 0)
        # On a busy machine the victim may see the operation begin when it is over.
        if fault.moment != "allreduce" or died["in_the_middle"]:
            break
        assert attempt < ATTEMPTS, "the operation was always over before the victim had noticed its beginning"
    survivors = [job.notes.read(f"survivor-{rank}") for rank in fault.survivors]
    seen = [each for each in survivors if each is not None]
    assert len(seen) == len(survivors), "a survivor was ended before it could tell"
    allowance = sum(each["allowance"] for each in seen)  # one learns of it from another
    delays = [check_survivor(fault, died, each, allowance) for each in seen]
    if not in_init(fault):
        record(f"noticed {fault.end}", max(delays))
    check_launcher(fault, result)
    check_events(fault, environment["XDG_STATE_HOME"], result.returncode)


@pytest.mark.parametrize("fault", SUBSET, ids=str)
def test_covering_subset(fault: Fault, start: StartJob, record_property: Any, tmp_path: Path) -> None:
    run(fault, start, record_property, tmp_path / "state")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in every() if fault not in SUBSET], ids=str)
def test_the_rest(fault: Fault, start: StartJob, record_property: Any, tmp_path: Path) -> None:
    run(fault, start, record_property, tmp_path / "state")
