"""What leads from the tree to a release: one version, a changelog, workflows that name what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from util_paths import ROOT

import horovod

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_version_is_in_one_place() -> None:
    """It is that of the package; everything else asks for it."""
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", horovod.__version__)
    assert f'\n__version__ = "{horovod.__version__}"\n' in read("horovod/__init__.py")
    tracked = [*(ROOT / "horovod").rglob("*.py"), *(ROOT / "csrc").rglob("*.h"), ROOT / "pyproject.toml"]
    others = [path for path in tracked if horovod.__version__ in path.read_text()]
    assert others == [ROOT / "horovod" / "__init__.py"]


def test_package_is_marked_as_typed() -> None:
    assert Path(horovod.__file__).with_name("py.typed").exists()


def test_changelog_has_the_version() -> None:
    """Newest first, in the form of Keep a Changelog, with nothing but its six kinds of change."""
    headings = re.findall(r"^## (.*)$", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:]]
    assert all(versions), headings
    if re.fullmatch(r"[\d.]+", horovod.__version__):
        assert versions[0] and versions[0][1] == horovod.__version__
    kinds = set(re.findall(r"^### (.*)$", read("CHANGELOG.md"), flags=re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_exists(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    commands = [
        step["run"] for job in content["jobs"].values() for step in job.get("steps", []) if "run" in step
    ]
    assert commands or workflow.stem == "release"
    for command in commands:
        for words in re.findall(r"^make (.*)$", command, flags=re.MULTILINE):
            for target in words.split():
                assert re.search(rf"^{target}:", read("Makefile"), flags=re.MULTILINE), target
    for text in strings(content):
        for path in re.findall(r"(?:^|\s)((?:\./)?(?:\.ci|\.github|tests)/[\w./-]+)", text):
            assert (ROOT / path).exists(), path


def test_releasing_names_what_exists() -> None:
    page = read("RELEASING.md")
    targets = {word for words in re.findall(r"`make ([\w -]+)`", page) for word in words.split()}
    assert {"wheels", "test-wheels", "test-aarch64", "sdist"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", read("Makefile"), flags=re.MULTILINE), target
    for path in re.findall(r"`([\w./]+/[\w./]+\.\w+)`", page):
        assert (ROOT / path).exists(), path


def test_hooks_before_a_commit_download_nothing() -> None:
    content = yaml.safe_load(read(".pre-commit-config.yaml"))
    assert [repository["repo"] for repository in content["repos"]] == ["local"]
    for hook in content["repos"][0]["hooks"]:
        assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/")
        for path in re.findall(r"tests/[\w/]+\.py", hook["entry"]):
            assert (ROOT / path).exists()


def test_make_clean_removes_what_is_built() -> None:
    """Each library that CMakeLists.txt puts beside the sources."""
    (recipe,) = re.findall(r"^clean:\n\trm -rf (.*)$", read("Makefile"), flags=re.MULTILINE)
    built = re.findall(r"set_target_properties\(\w+ PROPERTIES OUTPUT_NAME (\w+)", read("CMakeLists.txt"))
    assert {f"horovod/lib{name}.so" for name in built} <= set(recipe.split()) and len(built) == 2


@pytest.mark.parametrize("form", ["bug", "wish"])
def test_issue_forms_ask(form: str) -> None:
    content = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{form}.yml"))
    assert content["name"] and content["description"]
    fields = {field["id"]: field for field in content["body"]}
    assert len(fields) == len(content["body"]) >= 2
    assert any(field.get("validations", {}).get("required") for field in fields.values())
    for path in re.findall(r"\b(?:docs|tests)/[\w./-]+\w", read(f".github/ISSUE_TEMPLATE/{form}.yml")):
        assert (ROOT / path).exists(), path


def test_licence_has_its_spdx_name() -> None:
    project = read("pyproject.toml").partition("[project]\n")[2].partition("\n[")[0]
    assert '\nlicense = "Apache-2.0"\n' in project and "License ::" not in project
    assert "Apache License" in read("LICENSE")
