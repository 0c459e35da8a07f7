"""The environment of the workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from horovod.runner.host_survey.survey import HostNetwork

SECRET = "_HOROVOD_SECRET_KEY"
MASK = "<secret>"

_NEVER = re.compile(rf"BASH_FUNC_.*|OLDPWD|{SECRET}", re.DOTALL)
# Which devices are visible is a matter of the launcher's host.
_NOT_REMOTE = re.compile(r".*CUDA_VISIBLE_DEVICES|SSH_(CLIENT|CONNECTION|TTY|AUTH_SOCK)", re.DOTALL)


def inherited(environ: Mapping[str, str], *, exclude: str = "", remote: bool = False) -> dict[str, str]:
    """The launcher's variables that workers get too.

    ``exclude`` is a comma list of patterns of names.
    """
    patterns = [word.strip() for word in exclude.split(",")]
    return {
        name: value
        for name, value in environ.items()
        if not _NEVER.fullmatch(name)
        and not (remote and _NOT_REMOTE.fullmatch(name))
        and not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def common(
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    interfaces: str,
    address: str,
    port: int,
    key: bytes,
    *,
    exclude: str = "",
    remote: bool = False,
    several: bool = False,
) -> dict[str, str]:
    """What all workers of a host share. ``settings`` are the variables set by flags and config
    file.

    ``interfaces`` is a comma list; empty means the loopback interface, unless the variables are
    set. On ``several`` hosts placed() adds addresses and interfaces later.
    """
    env = inherited(environ, exclude=exclude, remote=remote)
    # A launcher that runs inside another job must not pass on that one's place.
    for name in ("HOROVOD_ADDRESSES", "_HOROVOD_WORKER", "HOROVOD_START_RANK"):
        env.pop(name, None)
    if interfaces:
        env["NCCL_SOCKET_IFNAME"] = interfaces
        env["HOROVOD_GLOO_IFACE"] = interfaces.split(",")[0]
    elif not several:
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


def placed(env: Mapping[str, str], network: HostNetwork) -> dict[str, str]:
    """The environment of a host whose part in the network has been found out."""
    address, port = network.launcher
    return {
        "NCCL_SOCKET_IFNAME": network.interface,
        "HOROVOD_GLOO_IFACE": network.interface,
        **env,
        "HOROVOD_ADDRESSES": ",".join(network.addresses),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
    }


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """A copy for human eyes, without the job key."""
    return {name: MASK if name == SECRET else value for name, value in env.items()}
