"""What compiled programs promise beside what the checks show: all types, and JAX's cache on disk."""

from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs

needs("jax")

HERE = Path(__file__).parent


def test_every_type() -> None:
    outcome = launch(2, HERE / "program_every_type.py", timeout=120, JAX_ENABLE_X64="1")
    assert outcome.code == 0 and outcome.output.count("all as in numpy") == 2, outcome.output


@pytest.mark.slow
def test_cache_on_disk(tmp_path: Path) -> None:
    """Programs of an earlier job are loaded, but not those of another number of ranks that depend on it."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for ranks in (2, 3):
        # One of them, at least, has to compile it: the others may find what it left.
        assert "found not all" in cached_program(ranks, cache)
        assert cached_program(ranks, cache).count("found all") == ranks


def cached_program(ranks: int, cache: dict[str, str]) -> str:
    outcome = launch(ranks, HERE / "program_cached.py", timeout=120, **cache)
    assert outcome.code == 0 and outcome.output.count(f"of {ranks} found") == ranks, outcome.output
    return outcome.output
