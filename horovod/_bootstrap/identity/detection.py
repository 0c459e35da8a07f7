"""Which launcher has started this process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from horovod._bootstrap.identity.base import Identity, Launcher
from horovod._bootstrap.identity.horovodrun import Horovodrun
from horovod._bootstrap.identity.single_process import SingleProcess
from horovod._bootstrap.identity.variables import SECRET

_hidden: dict[str, str] = {}  # variables that this process has had


def hide_key() -> None:
    """Takes the job key out of the environment of later children. detect() still has it."""
    if SECRET in os.environ:
        _hidden[SECRET] = os.environ.pop(SECRET)


def environment() -> dict[str, str]:
    """The variables of this process, with the key that hide_key() has taken out."""
    return {**_hidden, **os.environ}


def detect(environ: Mapping[str, str] | None = None) -> Identity:
    """The identity of this process. Raises ValueError naming the variable that is missing or wrong.

    The first launcher that recognises the environment decides; a plain process is what is left.
    """
    environ = environment() if environ is None else environ
    identity = Horovodrun.detect(environ)
    if identity is not None:
        return identity

    # Here: ranks of horovodrun do without
    from horovod._bootstrap.identity.launchers import LAUNCHERS

    launchers: tuple[type[Launcher], ...] = (*LAUNCHERS, SingleProcess)
    for launcher in launchers:
        identity = launcher.detect(environ)
        if identity is not None:
            return identity
    raise AssertionError("SingleProcess recognises everything")
