"""Collectives against numpy, over every transport and several numbers of ranks."""

from pathlib import Path

import pytest
from util_launch import run_checks

CHECKS = Path(__file__).with_name("checks_conformance.py")


@pytest.mark.parametrize(
    ("np", "transport"),
    [
        (1, "auto"),
        *((np, "shm") for np in (2, 3, 4, 5, 8)),
        *((np, "tcp") for np in (2, 3, 4)),
        *(pytest.param(np, "tcp", marks=pytest.mark.slow) for np in (5, 8)),
    ],
)
def test_conformance(np: int, transport: str) -> None:
    run_checks(np, CHECKS, timeout=180, HOROVOD_TRANSPORT=transport, HOROVOD_DYNAMIC_PROCESS_SETS="1")


@pytest.mark.parametrize("topology", ["2,2", pytest.param("1,3", marks=pytest.mark.slow), "2,2,1"])
def test_conformance_in_groups(topology: str) -> None:
    """Shared memory within each group, TCP between them, as on several hosts."""
    np = sum(map(int, topology.split(",")))
    run_checks(np, CHECKS, timeout=180, HOROVOD_TOPOLOGY=topology, HOROVOD_DYNAMIC_PROCESS_SETS="1")


@pytest.mark.parametrize("how", [{"HOROVOD_TRANSPORT": "tcp"}, {"HOROVOD_TOPOLOGY": "2,1"}])
def test_conformance_with_encryption(how: dict[str, str]) -> None:
    run_checks(3, CHECKS, timeout=180, HOROVOD_ENCRYPTION="data", HOROVOD_DYNAMIC_PROCESS_SETS="1", **how)


@pytest.mark.parametrize("knob", ["HOROVOD_FUSION_THRESHOLD", "HOROVOD_CACHE_CAPACITY"])
def test_results_do_not_depend_on_fusion_or_cache(knob: str) -> None:
    run_checks(2, CHECKS, "check_many_in_shuffled_order", "check_groups", **{knob: "0"})
