"""Asks every host, measures two ranks, and prints a line for each finding."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from horovod.runner import ssh
from horovod.runner.doctor import network_checks
from horovod.runner.doctor.examination import MARK, Examination, examine
from horovod.runner.doctor.finding import ERROR, Finding
from horovod.runner.package_path import package_path

_START = (
    "import sys, json; sys.path[1:1] = json.loads(sys.stdin.readline()); "
    "from horovod.runner.doctor.examination import main; main()"
)
_MEASURE_SECONDS = 90.0
_AT_A_TIME = 32
_FROM = "[0]<stderr>:"
_MARKS = {"ok": "ok      ", "warning": "WARNING ", "error": "ERROR   "}


@dataclass(frozen=True)
class Patient:
    """A host to be asked."""

    host: str
    ranks: int
    remote: bool
    python: str


def consult(
    patients: Sequence[Patient], options: ssh.SshOptions, timeout: float, words: Sequence[str] = ()
) -> int:
    """Prints what there is to say; returns 1 if something would keep a job from running.

    ``words`` are the flags of horovodrun about ssh and interfaces, for the measurement.
    """
    here = examine(next((patient.ranks for patient in patients if not patient.remote), 1))
    code = 0
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        answers = pool.map(lambda patient: _answer(patient, options, timeout, here), patients)
        for patient, (findings, _) in zip(patients, answers, strict=True):
            code |= _say(patient.host, findings)
    if code == 0:
        code |= _say("measured", _measured(patients, here, words))
    return code


def _answer(
    patient: Patient, options: ssh.SshOptions, timeout: float, here: Examination
) -> tuple[list[Finding], Examination | None]:
    if not patient.remote:
        return here.findings, here
    remote = f"cd / && exec {shlex.quote(patient.python)} -c {shlex.quote(_START)} {patient.ranks}"
    words = ssh.session(patient.host, options, timeout, remote)
    begin = time.monotonic()
    try:
        result = subprocess.run(
            words,
            input=json.dumps(package_path(os.environ.get("PYTHONPATH", ""))) + "\n",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return [Finding(ERROR, f"no answer within {timeout:g} s: it is down, or a firewall is between")], None
    except OSError as error:
        return [Finding(ERROR, f"{words[0]} can't be run: {error.strerror}")], None
    lines = [line for line in result.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        why = ssh.explain(patient.host, result.returncode, result.stderr.splitlines(), patient.python)
        return [Finding(ERROR, why)], None
    there = Examination.from_json(lines[0].removeprefix(MARK))
    asked = [
        network_checks.ssh_time(patient.host, time.monotonic() - begin),
        network_checks.versions(here.versions, there.versions, patient.host),
    ]
    return [*asked, *there.findings], there


def _measured(patients: Sequence[Patient], here: Examination, words: Sequence[str]) -> list[Finding]:
    """Two ranks, on the first two hosts if there are several."""
    several = len(patients) > 1
    where = [f"{patient.host}:1" for patient in patients[:2]] if several else ["localhost:2"]
    command = [sys.executable, "-m", "horovod.runner.launch", "--no-event-log", "-np", "2"]
    command += ["-H", ",".join(where), *words, sys.executable, "-m", "horovod.bench"]
    command += ["--only", "latency,allreduce", "--sizes", "16M", "--seconds", "0.5", "--json", "/dev/stderr"]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_MEASURE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return [Finding(ERROR, f"two ranks did not finish a measurement within {_MEASURE_SECONDS:g} s")]
    if result.returncode != 0:
        last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
        return [Finding(ERROR, f"two ranks failed to measure, exit code {result.returncode}: {last}")]
    lines = [line.removeprefix(_FROM) for line in result.stderr.splitlines() if line.startswith(_FROM)]
    text = "\n".join(lines)
    rows = json.loads(text[text.index("{") :])["rows"]
    return figures(rows, here.link_mbit if several else None)


def figures(rows: Sequence[Mapping[str, object]], link_mbit: int | None) -> list[Finding]:
    """From the rows of the benchmark to findings."""
    by_operation = {(row["benchmark"], row["operation"]): row for row in rows}
    small, large = by_operation["latency", "allreduce"], by_operation["allreduce", "allreduce"]
    time_of = small["time"]
    assert isinstance(time_of, Mapping)
    ratio = large["memcpy_ratio"]
    return network_checks.quick_measurement(
        float(time_of["p50"]),
        float(str(large["bus_bandwidth"])),
        None if ratio is None else float(str(ratio)),
        link_mbit,
    )


def _say(host: str, findings: Sequence[Finding]) -> int:
    print(f"{host}:")
    for finding in findings:
        print(f"  {_MARKS[finding.level]}{finding.sentence}", flush=True)
    return int(any(finding.level == ERROR for finding in findings))
