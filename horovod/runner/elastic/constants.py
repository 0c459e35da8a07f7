"""Texts that scripts look for."""

from __future__ import annotations

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "number of resets during elastic job exceeded limit: {}; the hosts or the processes change too often "
    "for --reset-limit"
)
SLOTS_TIMEOUT_MESSAGE = "Timed out waiting for minimum number of slots to become available"
