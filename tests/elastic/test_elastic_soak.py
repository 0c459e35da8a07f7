"""Random kills: the same bits as an undisturbed run, and nothing piles up in the survivors."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak_elastic import soaked


@pytest.mark.timeout(200)
def test_a_few_kills_that_nobody_waits_for(tmp_path: Path) -> None:
    """A world forms without the one that was killed, while its successor is started."""
    stormy = soaked(tmp_path / "stormy", 50, 5, 180, least=1)
    assert len(stormy.of("kill")) == 5 and len(stormy.of("end")) >= 1


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_hundred_kills(tmp_path: Path) -> None:
    calm = soaked(tmp_path / "calm", 500, 0, 120)
    stormy = soaked(tmp_path / "stormy", 500, 100, 1300)
    assert len(stormy.of("kill")) == 100
    digests = {note["digest"] for note in [*calm.of("end"), *stormy.of("end")]}
    assert len(digests) == 1
    assert stormy.growth("descriptors") <= 0
    assert stormy.growth("threads") <= 0
    assert stormy.growth("mebibytes") <= 20
