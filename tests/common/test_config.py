"""The table of knobs: parsing, errors, documentation."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import warnings

import pytest
from util_paths import ROOT

from horovod.common.config import KNOBS, Config, Knob, read, without_effect
from horovod.common.config.reference import page

BY_ENV = {knob.env: knob for knob in KNOBS}


def test_defaults() -> None:
    config = read({})
    assert config == Config()
    assert config.fusion_threshold == 128 * 1024 * 1024
    assert config.cache_capacity == 1024
    assert config.stall_check_time_seconds == 60.0
    assert config.log_level == "warning"
    assert config.peer_timeout_seconds == 3.0
    assert config.host_timeout_seconds == 10.0
    assert config.transport == "auto"
    assert config.thread_affinity is None and config.rank is None and config.timeline is None


def test_values_of_every_kind() -> None:
    config = read(
        {
            "HOROVOD_FUSION_THRESHOLD": "0",
            "HOROVOD_CYCLE_TIME": "2.5",
            "HOROVOD_TIMELINE": " /tmp/a b.json ",
            "HOROVOD_LOG_LEVEL": "TRACE",
            "HOROVOD_THREAD_AFFINITY": "3, 1,0",
            "HOROVOD_RANK": "2",
            "HOROVOD_CONTROLLER": "Gloo",
            "UNRELATED": "x",
        }
    )
    assert config.fusion_threshold == 0
    assert config.cycle_time == 2.5
    assert config.timeline == "/tmp/a b.json"
    assert config.log_level == "trace"
    assert config.thread_affinity == (3, 1, 0)
    assert config.rank == 2
    assert config.controller == "gloo"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("0", False),
        ("TRUE", True),
        ("false", False),
        ("Yes", True),
        ("no", False),
        ("on", True),
        ("off", False),
    ],
)
def test_booleans(text: str, value: bool) -> None:
    assert read({"HOROVOD_ELASTIC": text}).elastic is value


def test_empty_means_unset() -> None:
    assert read({"HOROVOD_FUSION_THRESHOLD": "", "HOROVOD_TIMELINE": " "}) == Config()


@pytest.mark.parametrize(
    ("env", "text", "allowed"),
    [
        ("HOROVOD_FUSION_THRESHOLD", "64MB", "an integer >= 0"),
        ("HOROVOD_FUSION_THRESHOLD", "-1", "an integer >= 0"),
        ("HOROVOD_FUSION_THRESHOLD", "1_000", "an integer >= 0"),
        ("HOROVOD_FUSION_THRESHOLD", "-1.0", "an integer >= 0"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "nan", "a number >= 0"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "inf", "a number >= 0"),
        ("HOROVOD_PEER_TIMEOUT_SECONDS", "0.2", "a number > 0.2"),
        ("HOROVOD_ELASTIC", "2x", "1/0, true/false, yes/no or on/off"),
        ("HOROVOD_TRANSPORT", "rdma", "one of auto, shm, tcp"),
        ("HOROVOD_THREAD_AFFINITY", "1,,2", "a comma list of integers >= 0"),
        ("HOROVOD_THREAD_AFFINITY", "-1", "a comma list of integers >= 0"),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "70000", "an integer from 1 to 65535"),
    ],
)
def test_errors_name_variable_value_and_what_is_allowed(env: str, text: str, allowed: str) -> None:
    with pytest.raises(ValueError) as caught:
        read({env: text})
    assert env in str(caught.value)
    assert repr(text) in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("text", ["warn", "LOUD", "3"])
def test_unknown_log_level_means_the_default(text: str) -> None:
    with pytest.warns(UserWarning, match=rf"HOROVOD_LOG_LEVEL='{text}'.*one of trace,.*; warning is used"):
        assert read({"HOROVOD_LOG_LEVEL": text}).log_level == "warning"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read({"HOROVOD_LOG_LEVEL": text, "HOROVOD_RANK": "1"}).log_level == "warning"


@pytest.mark.parametrize(
    ("env", "text", "value", "shown"),
    [
        ("HOROVOD_ELASTIC", "2", True, "1"),
        ("HOROVOD_ELASTIC", "-1", False, "0"),
        ("HOROVOD_FUSION_THRESHOLD", "67108864.0", 67108864, "67108864"),
        ("HOROVOD_CACHE_CAPACITY", "12.", 12, "12"),
        ("HOROVOD_CYCLE_TIME", "5ms", 1.0, "1.0"),  # nothing depends on it
        ("HOROVOD_NUM_NCCL_STREAMS", "two", 1, "1"),
        ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.5", 0.8, "0.8"),
    ],
)
def test_values_that_the_original_took(env: str, text: str, value: object, shown: str) -> None:
    with pytest.warns(UserWarning, match=rf"{env}='{text}' is not valid: .*; {shown} is used"):
        assert getattr(read({env: text}), BY_ENV[env].name) == value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(read({env: text, "HOROVOD_RANK": "1"}), BY_ENV[env].name) == value
        assert without_effect({env: text}) == []
    with pytest.raises(ValueError, match="is not valid"):  # a flag or the config file
        BY_ENV[env].parse(text, "--flag")


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read({}).fusion_threshold = 1  # type: ignore[misc]


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: str(knob.name))
def test_each_default_survives_its_text(knob: Knob) -> None:
    if knob.default is not None:
        assert knob.parse(knob.text(knob.default)) == knob.default
    assert knob.doc.endswith(".")


def test_names_are_unique() -> None:
    assert len(BY_ENV) == len(KNOBS)
    flags = [flag for knob in KNOBS for flag in (*knob.flags, *knob.off_flags)]
    assert len(flags) == len(set(flags))
    keys = [(knob.section, knob.key) for knob in KNOBS if knob.key]
    assert len(keys) == len(set(keys))


def test_reference_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "knobs.md").read_text() == page(), (
        "run: python -m horovod.common.config > docs/knobs.md"
    )


def test_import_stays_light() -> None:
    heavy = {"argparse", "yaml", "numpy", "json", "subprocess", "psutil", "rich"}
    code = f"import sys, horovod.common.config; print(sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob.no_effect], ids=lambda knob: knob.env)
def test_nothing_acts_on_what_is_said_to_have_no_effect(knob: Knob) -> None:
    tables = (ROOT / "horovod" / "common" / "config").glob("*.py")
    files = set((ROOT / "horovod").rglob("*.py")) - set(tables)
    used = re.compile(rf"\bconfig\.{knob.name}\b|\.environ\b.*{knob.env}\b|read\(.*\)\.{knob.name}\b")
    assert not [str(file) for file in files if used.search(file.read_text())]
