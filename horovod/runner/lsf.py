"""Jobs of IBM's batch system LSF: which hosts they have. Pure functions but for one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from horovod.runner.plan.hosts import HostInfo, parse_hostfile

_JOB = "LSB_JOBID"
_HOST_FILE = "LSB_DJOB_HOSTFILE"  # one line for each slot
_COUNTS = "LSB_MCPU_HOSTS"  # "host1 4 host2 4"
# Of clusters whose jobs run on a launch node of their own, which is the first host and computes
# nothing.
_LAUNCH_NODE = "CSM_ALLOCATION_ID"


def inside(environ: Mapping[str, str]) -> bool:
    """Whether this process belongs to a job of LSF."""
    return bool(environ.get(_JOB))


def hosts(environ: Mapping[str, str]) -> list[HostInfo]:
    """The job's hosts with their slots, in LSF's order.

    ValueError, OSError if LSF does not tell them.
    """
    path = environ.get(_HOST_FILE)
    if path:
        with open(path, encoding="utf-8") as file:
            # Each line by itself, because a host that comes again there has one slot more.
            names = [parse_hostfile(line, path)[0].hostname for line in file if line.strip()]
        found = [HostInfo(name, slots) for name, slots in Counter(names).items()]
    else:
        words = environ.get(_COUNTS, "").split()
        if len(words) % 2 or not all(word.isascii() and word.isdigit() for word in words[1::2]):
            raise ValueError(
                f"{_COUNTS}={environ[_COUNTS]!r} is not valid: it must be 'host slots host slots'"
            )
        found = [HostInfo(name, int(slots)) for name, slots in zip(words[::2], words[1::2], strict=True)]
    if environ.get(_LAUNCH_NODE):
        del found[:1]
    if not found:
        raise ValueError(
            f"job {environ[_JOB]} of LSF names no hosts to compute on ({_HOST_FILE}, {_COUNTS}): "
            "give them with -H"
        )
    return found


def size(environ: Mapping[str, str]) -> int | None:
    """The number of processes without -np: the job's slots.

    None if that would be a number of cores.
    """
    if not inside(environ) or environ.get(_LAUNCH_NODE):
        return None
    return sum(host.slots for host in hosts(environ))


def spread(found: Sequence[HostInfo], processes: int) -> list[HostInfo]:
    """As many slots of each host as an even distribution needs: LSF counts cores."""
    share = -(-processes // len(found))
    fewer = [HostInfo(host.hostname, min(host.slots, share)) for host in found]
    return fewer if sum(host.slots for host in fewer) >= processes else list(found)
