"""What a job needs, as one object that tools pass around; ``flags()`` says it to horovodrun."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from horovod.runner.common.util.timeout import Timeout


@dataclass(kw_only=True)
class BaseSettings:
    """How to start; where is in the derived class."""

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = field(default=None, repr=False)  # must not end up in a log
    start_timeout: Timeout | float | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Iterable[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False

    def flags(self) -> list[str]:
        """The flags of horovodrun that mean this: ``run_commandline([*settings.flags(),
        *command])``.

        The key is not among them: horovodrun makes one for each job. ValueError for an elastic job,
        which horovod.runner.elastic.settings.ElasticSettings describes.
        """
        if self.elastic:
            raise ValueError("an elastic job needs an ElasticSettings, which says between which limits")
        return self.common_flags()

    def common_flags(self) -> list[str]:
        """Those of any kind of job."""
        timeout = self.start_timeout
        values: dict[str, object] = {
            "--num-proc": self.num_proc,
            "--ssh-port": self.ssh_port,
            "--ssh-identity-file": self.ssh_identity_file,
            "--mpi-args": self.extra_mpi_args,
            "--binding-args": self.binding_args,
            "--start-timeout": timeout.remaining() if isinstance(timeout, Timeout) else timeout,
            "--output-filename": self.output_filename,
            "--network-interfaces": ",".join(self.nics) if self.nics else None,
        }
        switches = {
            "--verbose": self.verbose,
            "--tcp": self.tcp_flag,
            "--prefix-output-with-timestamp": self.prefix_output_with_timestamp,
        }
        words = [f"{flag}={value}" for flag, value in values.items() if value is not None]
        return words + [flag for flag, given in switches.items() if given]


@dataclass(kw_only=True)
class Settings(BaseSettings):
    """On which hosts: ``name:slots,name:slots``."""

    hosts: str | None = None

    def flags(self) -> list[str]:
        """As in the base class, with the hosts."""
        return super().flags() + ([] if self.hosts is None else [f"--hosts={self.hosts}"])
