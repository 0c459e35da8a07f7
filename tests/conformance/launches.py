"""The collectives on numbers of ranks and transports; of MPI and of several hosts, see their directories."""

from check_launch import Launch

CHECKS = ["checks_conformance.py"]
SEVERAL = [
    f"checks_conformance.py::check_{each}"
    for each in ("groups", "groups_in_place_and_async", "many_in_shuffled_order")
]
# Other parameters for each operation: what is tuned must not change a bit.
SHUFFLED = {"HOROVOD_AUTOTUNE": "1", "_HOROVOD_AUTOTUNE_SHUFFLE": "1"}
DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def conformance(name: str, np: int, slow: bool = False, **environment: str) -> Launch:
    return Launch(name, np, CHECKS, {**DYNAMIC, **environment}, timeout=180, slow=slow)


LAUNCHES = [
    conformance("auto-1", 1),
    *(conformance(f"shm-{np}", np, HOROVOD_TRANSPORT="shm") for np in (2, 3, 4, 5, 8)),
    *(conformance(f"tcp-{np}", np, np > 4, HOROVOD_TRANSPORT="tcp") for np in (2, 3, 4, 5, 8)),
    # Shared memory within each group, TCP between them, as on several hosts.
    conformance("groups-2-2", 4, HOROVOD_TOPOLOGY="2,2"),
    conformance("groups-1-3", 4, slow=True, HOROVOD_TOPOLOGY="1,3"),
    conformance("groups-2-2-1", 5, HOROVOD_TOPOLOGY="2,2,1"),
    conformance("encrypted-tcp-3", 3, HOROVOD_TRANSPORT="tcp", HOROVOD_ENCRYPTION="data"),
    conformance("encrypted-groups-2-2", 4, HOROVOD_TOPOLOGY="2,2", HOROVOD_ENCRYPTION="data"),
    conformance("streams-tcp-3", 3, HOROVOD_TRANSPORT="tcp", HOROVOD_STREAMS_PER_PEER="2"),
    conformance("tuned-shm-2", 2, **SHUFFLED, HOROVOD_TRANSPORT="shm"),
    conformance("tuned-tcp-3", 3, **SHUFFLED, HOROVOD_TRANSPORT="tcp"),
    conformance("tuned-groups-2-2", 4, **SHUFFLED, HOROVOD_TOPOLOGY="2,2"),
    # Results do not depend on fusion or cache.
    Launch("unfused-2", 2, SEVERAL, {"HOROVOD_FUSION_THRESHOLD": "0"}),
    Launch("uncached-2", 2, SEVERAL, {"HOROVOD_CACHE_CAPACITY": "0"}),
]
