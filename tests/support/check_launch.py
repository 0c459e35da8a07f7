"""Launches of checks: `check_*` functions that all ranks of a job run in step, and what becomes of each."""

from __future__ import annotations

import ast
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from util_launch import Outcome, UnfinishedError, launch

WORKER = Path(__file__).with_name("check_worker.py")
# As util_launch.launch().
Start = Callable[..., Outcome]


@dataclass(frozen=True)
class Check:
    """A function of a file; with a case if it has several."""

    file: Path
    name: str
    case: str | None = None
    line: int = 0

    @property
    def identity(self) -> str:
        """Its name among those of a launch."""
        return f"{self.file.stem}.{self.name}" + (f"[{self.case}]" if self.case is not None else "")


def checks_of(file: Path) -> Iterator[Check]:
    """The checks of a file, without importing it: it may need a framework, and a job around it.

    `@cases("a", "b")` makes several of one; `@cases(*NAMES)` if NAMES is a list of strings of the same file.
    """
    tree = ast.parse(file.read_text(), str(file))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def strings(node: ast.expr) -> list[str]:
        if not isinstance(node, ast.Starred):
            return [ast.literal_eval(node)]
        assert isinstance(node.value, ast.Name), f"{file}:{node.lineno}: cases() takes strings and *NAMES"
        value = constants[node.value.id]
        assert isinstance(value, ast.List | ast.Tuple)
        return [each for element in value.elts for each in strings(element)]

    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("check_"):
            continue
        found: list[str | None] = [None]
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "cases":
                found = [each for argument in decorator.args for each in strings(argument)]
        for case in found:
            yield Check(file, function.name, case, function.lineno - 1)


@dataclass(frozen=True, eq=False)
class Launch:
    """One job that runs checks; listed in the `launches.py` of a directory of tests."""

    name: str  # in the brackets of a check's id; no other launch has it
    np: int
    checks: Sequence[str]  # files beside launches.py, or "file.py::check_this" for one
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 120.0
    before: str | None = None  # a file to be imported before those of the checks
    needs: Sequence[str] = ()  # packages without which it is skipped
    skip: str = ""  # why it can't be run here
    slow: bool = False
    start: Start = launch

    def selects(self, directory: Path, check: Check) -> bool:
        """Whether it runs a check. `directory` is that of launches.py."""
        for entry in self.checks:
            name, _, only = entry.partition("::")
            if (directory / name).resolve() == check.file and only in ("", check.name):
                return True
        return False

    def place(self, directory: Path, check: Check) -> int:
        """Files are run in the order in which they are named."""
        files = [(directory / entry.partition("::")[0]).resolve() for entry in self.checks]
        return files.index(check.file)

    def run(self, directory: Path, checks: Iterable[Check]) -> Result:
        """Runs these checks in one job. Does not raise if some fail, or all."""
        chosen = list(checks)
        with tempfile.TemporaryDirectory(prefix="hvd-checks-") as notes:
            plan = {
                "before": str(directory / self.before) if self.before else None,
                "checks": [(str(check.file), check.name, check.case) for check in chosen],
            }
            Path(notes, "plan.json").write_text(json.dumps(plan))
            try:
                outcome = self.start(self.np, WORKER, notes, timeout=self.timeout, **self.environment)
                code, output = outcome.code, outcome.output
            except UnfinishedError as error:
                code, output = None, error.output
            return Result(self, chosen, code, output, Path(notes))


@dataclass(frozen=True)
class Verdict:
    """What became of a check: passed, failed or skipped, why, and how long it took."""

    state: str
    text: str = ""
    seconds: float = 0.0


class Result:
    """How a launch went. `code` is None if it did not end in time."""

    def __init__(
        self, launch: Launch, checks: Sequence[Check], code: int | None, output: str, notes: Path
    ) -> None:
        self._launch = launch
        self._checks = checks
        self._code = code
        self._output = output
        self._notes = {rank: _read(notes / f"rank-{rank}") for rank in range(launch.np)}

    def verdict(self, check: Check) -> Verdict:
        notes = {rank: found.get(check.identity, {"state": "missing"}) for rank, found in self._notes.items()}
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, note in notes.items():
            ranks[note["state"]].append(rank)
        seconds = max(note.get("seconds", 0.0) for note in notes.values())
        if ranks["failed"]:
            return Verdict("failed", self._failure(notes, ranks), seconds)
        if ranks["begun"]:
            text = f"The launch {self._end()} while {_named(ranks['begun'])} in this check."
            return Verdict("failed", f"{text}\n{self._shown_output()}", seconds)
        if ranks["missing"]:
            return Verdict("failed", self._why_missing(), seconds)
        if ranks["skipped"]:
            reasons = {notes[rank]["text"] for rank in ranks["skipped"]}
            who = "" if len(ranks["skipped"]) == self._launch.np else f"{_ranks(ranks['skipped'])}: "
            return Verdict("skipped", who + "; ".join(sorted(reasons)), seconds)
        if self._code != 0 and check == self._checks[-1]:
            return Verdict(
                "failed", f"The launch {self._end()} after its last check.\n{self._shown_output()}"
            )
        return Verdict("passed", seconds=seconds)

    def _failure(self, notes: Mapping[int, Mapping[str, str]], ranks: Mapping[str, list[int]]) -> str:
        by_text: dict[str, list[int]] = defaultdict(list)
        for rank in ranks["failed"]:
            by_text[notes[rank]["text"]].append(rank)
        parts = [
            f"{_ranks(who).capitalize()}: {text.strip().splitlines()[-1]}\n{text}"
            for text, who in by_text.items()
        ]
        if ranks["begun"]:
            parts.append(
                f"{_ranks(ranks['begun']).capitalize()} did not come out of it.\n{self._shown_output()}"
            )
        elif len(self._checks) == 1:  # of several, it would be mostly that of others
            parts.append(self._shown_output())
        return "\n".join(parts)

    def _why_missing(self) -> str:
        begun = [check for check in self._checks if any(check.identity in n for n in self._notes.values())]
        if begun:
            return f"Not run: the launch {self._end()} in {begun[-1].identity}."
        return f"Not run: the launch {self._end()} before the first check.\n{self._shown_output()}"

    def _end(self) -> str:
        if self._code is None:
            return f"did not end within {self._launch.timeout:g} s"
        return f"ended with code {self._code}"

    def _shown_output(self) -> str:
        return f"--- output of the launch {self._launch.name}\n{self._output}"


def _read(file: Path) -> dict[str, dict[str, str]]:
    """The last word about each check."""
    if not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return {line["check"]: line for line in lines}


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _named(ranks: Sequence[int]) -> str:
    return f"{_ranks(ranks)} {'were' if len(ranks) > 1 else 'was'}"
