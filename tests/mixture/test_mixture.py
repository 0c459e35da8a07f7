"""The mixture for some seconds over every transport, with a known seed and with one that is new each time."""

from __future__ import annotations

import mixture_configurations
import pytest
from cluster_hosts import Hosts
from mixture_configurations import Configuration

SECONDS = 1.7  # for each of the seeds
SEEDS = ("1", "new")


@pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.slow else [])
        for each in mixture_configurations.ALL
    ],
)
def test_mixture(configuration: Configuration, request: pytest.FixtureRequest) -> None:
    hosts: Hosts | None = None
    if configuration.hosts is not None:
        hosts = request.getfixturevalue("hosts" if configuration.host_count == 3 else "sixteen_hosts")
    options = ["--seconds", str(SECONDS), "--seed", *SEEDS]
    outcome = configuration.run(SECONDS * len(SEEDS), *options, hosts=hosts)
    print(outcome.output)
    assert outcome.code == 0, outcome.output
    assert outcome.output.count("results compared") == len(SEEDS), outcome.output
