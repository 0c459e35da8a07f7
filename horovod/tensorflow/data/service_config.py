"""What a training job must know of a compute job, and the file that tells it."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from horovod._net.handshake import check_key
from horovod.tensorflow.data.compute_registry import Addresses, ComputeClient

SIDES = ("compute", "training")
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class TfDataServiceConfig:
    """A compute job: how many dispatchers, on which side, with how many workers, and how to reach
    it.

    addresses: of the compute job's registry, by network interface. key: 32 secret bytes.
    timeout: seconds that parts of the service wait for each other.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Addresses
    key: bytes = field(repr=False)  # must not end up in a log
    timeout: float = 60

    def __post_init__(self) -> None:
        for name in ("dispatchers", "workers_per_dispatcher"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dispatcher_side not in SIDES:
            raise ValueError(f"dispatcher_side must be {' or '.join(SIDES)}, got {self.dispatcher_side!r}")
        if self.timeout <= 0:
            raise ValueError(f"timeout must be above 0 seconds, got {self.timeout}")
        check_key(self.key)

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """A connection to the compute job; its shutdown() ends that job."""
        return ComputeClient(self.addresses, self.key, self.timeout, verbose)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON, the key in base64."""
        return {**asdict(self), "key": base64.b64encode(self.key).decode("ascii")}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """From what to_dict() gave. ValueError if it is something else."""
        try:
            addresses = {
                str(interface): [(str(host), int(port)) for host, port in entries]
                for interface, entries in config["addresses"].items()
            }
            key = base64.b64decode(config["key"], validate=True)
            return TfDataServiceConfig(**{**config, "addresses": addresses, "key": key})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a configuration of a compute service: {error!r}") from None

    def write(self, filename: str) -> None:
        """Writes the file, which holds the key: only this account may read it.

        It appears as a whole.
        """
        target = Path(filename)
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(self.to_dict(), file)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @staticmethod
    def read(
        filename: str, wait_for_file_creation: bool = False, timeout: float = 600
    ) -> TfDataServiceConfig:
        """Reads the file; `wait_for_file_creation`: waits up to `timeout` seconds for it
        (TimeoutError).

        PermissionError if another account can read it, for it holds the key, or could have written
        it.
        """
        path = Path(filename)
        deadline = time.monotonic() + timeout
        while wait_for_file_creation and not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{filename} has not appeared within {timeout:g} s: is the compute job running?"
                )
            time.sleep(_LOOK_SECONDS)
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o077:
                raise PermissionError(f"{filename} holds a secret, but is open to other accounts: chmod 600")
            try:
                content = json.load(file)
            except ValueError as error:
                raise ValueError(f"{filename} is not a configuration of a compute service: {error}") from None
        return TfDataServiceConfig.from_dict(content)
