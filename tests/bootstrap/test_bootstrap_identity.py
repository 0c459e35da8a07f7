"""What the environment says about this process, and what is wrong with it."""

from __future__ import annotations

import pytest

from horovod._bootstrap.identity import Identity, detect

COMPLETE = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
    "HOROVOD_HOSTNAME": "b",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "192.0.2.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "4000",
    "_HOROVOD_SECRET_KEY": "ab" * 32,
}


def test_horovodrun() -> None:
    identity = detect(COMPLETE)
    assert identity == Identity(3, 4, 1, 2, 1, 2, "b", ("192.0.2.1", 4000), b"\xab" * 32)
    assert "ab" * 32 not in repr(identity) and "xab" not in repr(identity)


def test_nothing_set() -> None:
    identity = detect({})
    assert (identity.rank, identity.size, identity.rendezvous, identity.key) == (0, 1, None, None)
    assert identity.host


def test_a_job_of_one() -> None:
    assert detect({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1", "HOROVOD_HOSTNAME": "a"}) == Identity(
        0, 1, 0, 1, 0, 1, "a"
    )


@pytest.mark.parametrize("name", [name for name in COMPLETE if name != "HOROVOD_HOSTNAME"])
def test_half_set(name: str) -> None:
    environ = {key: value for key, value in COMPLETE.items() if key != name}
    with pytest.raises(ValueError, match=f"^{name}"):
        detect(environ)
    with pytest.raises(ValueError, match=f"^{name}"):
        detect({**COMPLETE, name: " "})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOROVOD_RANK", "4"),
        ("HOROVOD_RANK", "-1"),
        ("HOROVOD_RANK", "one"),
        ("HOROVOD_SIZE", "0"),
        ("HOROVOD_LOCAL_RANK", "2"),
        ("HOROVOD_LOCAL_SIZE", "5"),
        ("HOROVOD_CROSS_RANK", "2"),
        ("HOROVOD_CROSS_SIZE", "5"),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "65536"),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "0"),
        ("_HOROVOD_SECRET_KEY", "abc"),
        ("_HOROVOD_SECRET_KEY", "zz" * 32),
    ],
)
def test_wrong_values(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        detect({**COMPLETE, name: value})
    if name == "_HOROVOD_SECRET_KEY":
        assert value not in str(caught.value)
