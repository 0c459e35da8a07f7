"""A pytest plugin: each `check_*` function of a file `checks_*.py` is a test, for each launch that runs it.

The launches stand in `launches.py` of a directory: LAUNCHES, a list of check_launch.Launch. A launch starts
when the first of its checks is wanted, with exactly those that have been selected; all have their results
from it. Its time counts as the setup of the first one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from check_launch import Check, Launch, Result, Verdict, checks_of
from util_packages import needs

_SPARE = 60.0  # seconds between the deadline of a launch and that of its first check


@dataclass(frozen=True, eq=False)
class Listed:
    """A launch and the directory where it is listed."""

    launch: Launch
    directory: Path


class Launches:
    """Those of a directory and of its neighbours: a launch may run checks of several of them."""

    def __init__(self) -> None:
        self._known: dict[Path, list[Listed]] = {}
        self._results: dict[Listed, Result | BaseException] = {}

    def around(self, directory: Path) -> list[Listed]:
        files = sorted({file.resolve() for file in directory.parent.glob("*/launches.py")})
        found = [each for file in files for each in self._read(file)]
        names = [each.launch.name for each in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise pytest.UsageError(f"two launches have the name {twice[0]!r}")
        return found

    def name_in(self, brackets: str) -> str | None:
        """Which launch the brackets of a check's id mean: its name, perhaps with a case behind it."""
        names = [each.launch.name for listed in self._known.values() for each in listed]
        fitting = [name for name in names if f"{brackets}-".startswith(f"{name}-")]
        return max(fitting, key=len, default=None)

    def result(self, listed: Listed, items: list[pytest.Item]) -> Result:
        """Of the launch, which is started if it has not been. `items` are all that have been selected."""
        if listed not in self._results:
            checks = [item.check for item in items if isinstance(item, CheckItem) and item.listed is listed]
            checks.sort(key=lambda check: listed.launch.place(listed.directory, check))
            try:
                self._results[listed] = listed.launch.run(listed.directory, checks)
            except (Exception, pytest.skip.Exception) as error:  # what it needs may be missing
                self._results[listed] = error
        result = self._results[listed]
        if isinstance(result, BaseException):
            raise result
        return result

    def _read(self, file: Path) -> list[Listed]:
        if file not in self._known:
            spec = importlib.util.spec_from_file_location(f"launches_of_{file.parent.name}", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._known[file] = [Listed(launch, file.parent) for launch in module.LAUNCHES]
        return self._known[file]


_LAUNCHES = pytest.StashKey[Launches]()


def launches(config: pytest.Config) -> Launches:
    return config.stash.setdefault(_LAUNCHES, Launches())


class CheckFailedError(Exception):
    """A check that did not pass, and why, as the ranks have told it."""


class ChecksFile(pytest.File):
    """A file of checks."""

    def collect(self) -> Iterator[CheckItem]:
        path = self.path.resolve()
        checks = list(checks_of(path))
        never = set(checks)
        for listed in launches(self.config).around(path.parent):
            for check in checks:
                if listed.launch.selects(listed.directory, check):
                    never.discard(check)
                    brackets = "-".join(filter(None, (listed.launch.name, check.case)))
                    name = f"{check.name}[{brackets}]"
                    yield CheckItem.from_parent(
                        # The id in full: pytest 9.2 would not see parameters in a name, and --lf not know it.
                        self,
                        name=name,
                        nodeid=f"{self.nodeid}::{name}",
                        check=check,
                        listed=listed,
                    )
        if never:
            raise self.CollectError(f"no launches.py runs {', '.join(sorted({each.name for each in never}))}")


class CheckItem(pytest.Item):
    """A check of one launch."""

    def __init__(self, *, check: Check, listed: Listed, **given: Any) -> None:
        super().__init__(**given)
        self.check = check
        self.listed = listed
        self.verdict = Verdict("failed", "not run")
        self.add_marker(pytest.mark.timeout(listed.launch.timeout + _SPARE))
        if listed.launch.slow:
            self.add_marker(pytest.mark.slow)

    def setup(self) -> None:
        if self.listed.launch.skip:
            pytest.skip(self.listed.launch.skip)
        needs(*self.listed.launch.needs)
        result = launches(self.config).result(self.listed, self.session.items)
        self.verdict = result.verdict(self.check)

    def runtest(self) -> None:
        if self.verdict.state == "skipped":
            pytest.skip(self.verdict.text)
        if self.verdict.state == "failed":
            raise CheckFailedError(self.verdict.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.check.line, self.name


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Iterator[None]:
    """In place of pytest's own way, which would import a file that is named on the command line."""
    found = yield
    if file_path.suffix == ".py" and file_path.name.startswith("checks_"):
        return [ChecksFile.from_parent(parent, path=file_path)]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if isinstance(item, CheckItem) and call.when == "call":
        report.duration = item.verdict.seconds  # of the check, not of looking it up
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadfile, all checks of a launch go to one worker, wherever they are defined."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadLaunches(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            if name.startswith("check_"):
                # The workers have collected, not this process.
                launches(config).around((config.rootpath / file).resolve().parent)
                launch = launches(config).name_in(name.partition("[")[2].removesuffix("]"))
                if launch is not None:
                    return f"launch {launch}"
            return str(super()._split_scope(nodeid))

    return LoadLaunches(config, log)
