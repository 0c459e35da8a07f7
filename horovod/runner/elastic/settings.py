"""What an elastic job needs, as one object that tools pass around."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript


@dataclass
class ElasticSettings(BaseSettings):
    """How to start, and between which limits the job may change."""

    discovery: HostDiscovery
    min_num_proc: int | None
    max_num_proc: int | None
    elastic_timeout: float | None
    reset_limit: int | None
    cooldown_range: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.elastic = True

    def flags(self) -> list[str]:
        """The flags of horovodrun that mean this.

        ValueError if the hosts come from neither a script nor a fixed list: horovodrun could not
        ask.
        """
        values: dict[str, object] = {
            "--min-num-proc": self.min_num_proc,
            "--max-num-proc": self.max_num_proc,
            "--elastic-timeout": self.elastic_timeout,
            "--reset-limit": self.reset_limit,
        }
        if isinstance(self.discovery, HostDiscoveryScript):
            values["--host-discovery-script"] = self.discovery.discovery_script
            values["--slots-per-host"] = self.discovery.slots
        elif isinstance(self.discovery, FixedHosts):
            hosts = self.discovery.find_available_hosts_and_slots()
            values["--hosts"] = ",".join(f"{name}:{slots}" for name, slots in hosts.items())
        else:
            kind = type(self.discovery).__name__
            raise ValueError(f"horovodrun can't ask a {kind}: use HostDiscoveryScript or FixedHosts")
        words = [f"{flag}={value}" for flag, value in values.items() if value is not None]
        if self.cooldown_range is not None:
            words += ["--blacklist-cooldown-range", *map(str, self.cooldown_range)]
        return [*self.common_flags(), *words]
