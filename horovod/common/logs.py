"""What is logged besides the engine's own messages, and how much of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from horovod.common.config import KNOBS
from horovod.common.config.knob import IDENTITY

if TYPE_CHECKING:
    from horovod import _core
    from horovod.common.config import Config

# Those of Python's module, which is not to be loaded for this.
_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warning": 30, "error": 40, "fatal": 50}
_VARIABLE = "HOROVOD_LOG_LEVEL"


def set_level(config: Config) -> None:
    """Gives Python's logger `horovod` the level of HOROVOD_LOG_LEVEL, if that is set."""
    if not os.environ.get(_VARIABLE, "").strip():
        return  # it is the program's to choose
    if config.log_level != "warning" or "logging" in sys.modules:
        import logging

        logging.getLogger("horovod").setLevel(_LEVELS[config.log_level])


def world_made(engine: _core.Engine, config: Config, transport: str, hosts: Sequence[str]) -> None:
    """Tells who has met, on rank 0."""
    if _LEVELS[config.log_level] > _LEVELS["info"]:
        return
    different = {host: None for host in hosts}
    where = next(iter(different)) if len(different) == 1 else f"{len(different)} hosts"
    text = f"{len(hosts)} {'rank' if len(hosts) == 1 else 'ranks'} on {where}, transport {transport}"
    engine.log("info", f"{text}; {settings(config) or 'all settings are the defaults'}.")


def settings(config: Config) -> str:
    """Those that differ from the defaults, without what launchers set."""
    return ", ".join(
        f"{knob.env}={knob.text(value)}"
        for knob in KNOBS
        if knob.group != IDENTITY and (value := getattr(config, knob.name)) != knob.default
    )
