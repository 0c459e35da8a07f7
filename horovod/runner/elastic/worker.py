"""What workers are told about hosts, under the name that programs import."""

from __future__ import annotations

from horovod import _absent
from horovod._bootstrap.host_update import HostUpdateResult

__all__ = ["HostUpdateResult"]

_absent.without_names(__name__)
