"""The environment of the workers."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET = "_HOROVOD_SECRET_KEY"
MASK = "<secret>"

_NEVER = re.compile(rf"BASH_FUNC_.*|OLDPWD|{SECRET}", re.DOTALL)
# Which devices are visible is a matter of the launcher's host.
_NOT_REMOTE = re.compile(r".*CUDA_VISIBLE_DEVICES", re.DOTALL)


def inherited(environ: Mapping[str, str], *, remote: bool = False) -> dict[str, str]:
    """The launcher's variables that workers get too."""
    return {
        name: value
        for name, value in environ.items()
        if not _NEVER.fullmatch(name) and not (remote and _NOT_REMOTE.fullmatch(name))
    }


def common(
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    interfaces: str,
    address: str,
    port: int,
    key: bytes,
) -> dict[str, str]:
    """What all workers of a local host share. ``settings`` are the variables set by flags and config file;
    ``interfaces`` is a comma list; empty means the loopback interface, unless the variables are set."""
    env = inherited(environ)
    if interfaces:
        env["NCCL_SOCKET_IFNAME"] = interfaces
        env["HOROVOD_GLOO_IFACE"] = interfaces.split(",")[0]
    else:
        env.setdefault("NCCL_SOCKET_IFNAME", "lo")
        env.setdefault("HOROVOD_GLOO_IFACE", "lo")
    env.update(settings)
    env.update(
        {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "PYTHONUNBUFFERED": "1",
            SECRET: key.hex(),
        }
    )
    return env


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """A copy for human eyes, without the job key."""
    return {name: MASK if name == SECRET else value for name, value in env.items()}
