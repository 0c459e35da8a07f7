"""Exceptions that users catch."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed: the ranks disagree, a peer died, or the job was shut down.

    `code` is the engine's, one of those of csrc/hvd.h, if it came from there.
    """

    code: int | None = None


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; elastic training re-initialises without losing state.

    `skip_sync` tells that the state needs no synchronisation afterwards.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of this job changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework differs from the version that an extension was built for."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"built for {name} {version}, but {name} {installed_version} is installed; "
            f"reinstall horovod or install {name} {version}"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
