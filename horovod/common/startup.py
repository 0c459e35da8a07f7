"""hvd.init() and shutdown(): from what the user and the launcher say to a session, and its end."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from horovod import _core
from horovod._bootstrap import identity as identities
from horovod._bootstrap import topology as topologies
from horovod._bootstrap import world as worlds
from horovod._bootstrap.identity.variables import RECENT, WORKER
from horovod.common import config as configs
from horovod.common import feed as feeds
from horovod.common import handles, logs, metrics, observer
from horovod.common import session as sessions
from horovod.common.process_sets import ProcessSet, global_process_set, register_all
from horovod.common.session import Place, Session, state
from horovod.errors import HorovodInternalError

if TYPE_CHECKING:
    from horovod._bootstrap.identity import DiscoveryHints, Identity
    from horovod._bootstrap.rendezvous.client import RendezvousClient
    from horovod._bootstrap.world import World
    from horovod.common.config import Config
    from horovod.common.tuning import Tuning


def start(comm: Any, process_sets: Sequence[ProcessSet] | str | None) -> None:
    """Makes the session of this process, unless there is one, and registers the process sets."""
    if WORKER in os.environ:
        from horovod.common import elastic_world

        if state.session is None:
            process_sets = elastic_world.first_arguments(process_sets)
    members, by_mpi = _members(comm)
    sets = _static_sets(process_sets, members if by_mpi else None)
    with state.lock:
        if new := state.session is None:
            state.session = _start(comm, members, by_mpi, sets)
            atexit.register(stop)
        elif isinstance(process_sets, str):
            state.session.dynamic_process_sets = True
        session = state.session
        global_process_set.ranks = list(range(session.place.size))
        if session.elastic:
            sets = _possible_sets(sets, session)
        if any(process_set.mpi_comm is not None for process_set in sets):
            sets = _sets_of_all(sets)
        register_all(sets, session)
    for adapt in state.after_init if new else ():
        adapt()


def stop() -> None:
    """Ends the session on all ranks, if there is one."""
    if state.session is not None:
        for wait in state.before_shutdown:
            wait()
    with state.lock:
        session, state.session = state.session, None
        if session is None:
            return
        atexit.unregister(stop)
        session.feed.close()
        metrics.remember(session.engine)
        culprit = session.engine.culprit()
        session.engine.shutdown()
        session.tell_of_parts()
        session.observer.close()
        if session.tuning is not None:
            session.tuning.close()
        session.belongings.close()
        for process_set in session.process_sets:
            process_set._forget()
        global_process_set._forget()
        if WORKER in os.environ:
            # The next world may be long in coming: nothing of the last one is to wait for it.
            handles.table.forget_all()
        for release in state.after_shutdown:
            release()
        if WORKER in os.environ:
            from horovod.common import elastic_world

            elastic_world.ended(culprit)


def place_of(rank: int, hosts: Sequence[str]) -> Place:
    """Where `rank` stands if rank i runs on hosts[i]; hosts are numbered in order of appearance."""
    by_host: dict[str, list[int]] = {}
    for number, host in enumerate(hosts):
        by_host.setdefault(host, []).append(number)
    local = by_host[hosts[rank]]
    local_rank = local.index(rank)
    # Only hosts that have this local rank count, so that each cross group is one process per host.
    across = [ranks[local_rank] for ranks in by_host.values() if len(ranks) > local_rank]
    return Place(
        rank=rank,
        size=len(hosts),
        local_rank=local_rank,
        local_size=len(local),
        cross_rank=across.index(rank),
        cross_size=len(across),
        homogeneous=len({len(ranks) for ranks in by_host.values()}) == 1,
    )


def _members(comm: Any) -> tuple[list[int], bool]:
    """The launched ranks that form the world (none: all),
    and whether an MPI communicator said so."""
    if comm is None:
        return [], False
    if hasattr(comm, "Get_rank"):
        from horovod.common import mpi

        return mpi.world_ranks(comm), True
    if not isinstance(comm, Sequence) or isinstance(comm, str | bytes):
        raise ValueError(
            f"hvd.init(comm=...) takes None, a list of ranks or an mpi4py.MPI.Comm, got {comm!r}"
        )
    try:
        members = [operator.index(rank) for rank in comm]
    except TypeError:
        raise ValueError(f"hvd.init(comm=...) takes a list of ints, got {comm!r}") from None
    if len(set(members)) != len(members):
        raise ValueError(f"hvd.init(comm=...) names each rank once, got {members}")
    return members, False


def _static_sets(given: Sequence[ProcessSet] | str | None, mpi_members: list[int] | None) -> list[ProcessSet]:
    if given is None:
        return []
    if isinstance(given, str):
        if given.lower() != "dynamic":
            raise ValueError(f'process_sets must be a list of hvd.ProcessSet or "dynamic", got {given!r}')
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    sets = list(given)
    for process_set in sets:
        if not isinstance(process_set, ProcessSet):
            raise ValueError(f"process_sets must be a list of hvd.ProcessSet, got {process_set!r} in it")
        if process_set.mpi_comm is not None:
            if mpi_members is None:
                raise NotImplementedError(
                    "a process set made from an MPI communicator needs hvd.init(comm=<MPI communicator>)"
                )
            from horovod.common import mpi

            process_set.ranks = mpi.set_ranks(process_set.mpi_comm, mpi_members)
    return sets


def _possible_sets(sets: Sequence[ProcessSet], session: Session) -> list[ProcessSet]:
    """Those whose ranks all exist in this world of an elastic job; the others stay unregistered."""
    everyone = list(range(session.place.size))
    for process_set in sets:
        if process_set.ranks == everyone:
            process_set.process_set_id = global_process_set.process_set_id
            session.process_sets.append(process_set)
    return [each for each in sets if each.ranks != everyone and max(each.ranks or [-1]) < len(everyone)]


def _sets_of_all(sets: Sequence[ProcessSet]) -> list[ProcessSet]:
    """All ranks' sets, the same on each: those of this rank and, in the same place of the list, the
    others'.

    A communicator that was split exists once for each part, and every rank knows only its own.
    """
    from horovod.common.objects import allgather_object

    result: list[ProcessSet] = []
    gathered = allgather_object([process_set.ranks for process_set in sets], "horovod.init.process_sets")
    for index, own in enumerate(sets):
        parts = sorted({tuple(ranks[index]) for ranks in gathered if ranks[index]})
        if not parts:
            raise ValueError("hvd.init(process_sets=...): no rank is in the communicator of a process set")
        if not own.ranks:  # not a member of any part
            own.ranks = list(parts[0])
        result += [own if own.ranks == list(part) else ProcessSet(part) for part in parts]
    return result


def _select(identity: Identity, members: list[int]) -> Identity:
    """The identity within the world that the launched ranks
    `members` form, renumbered in that order."""
    if bad := [rank for rank in members if not 0 <= rank < identity.size]:
        raise ValueError(
            f"hvd.init(comm={members}): rank {bad[0]} does not exist, the job has {identity.size} ranks"
        )
    if identity.rank not in members:
        raise ValueError(
            f"hvd.init(comm={members}): rank {identity.rank} is not in the list, so it must not call init"
        )
    return replace(identity, rank=members.index(identity.rank), size=len(members))


def _affinity(config: Config, place: Place) -> int:
    cores = config.thread_affinity
    if not cores:
        return -1
    # In an elastic job a local rank, which stays, may be above what the number of ranks allows.
    if len(cores) < max(place.local_size, place.local_rank + 1):
        import logging  # here: it would take a tenth of the time of importing this module

        logging.getLogger("horovod").error(
            "HOROVOD_THREAD_AFFINITY has %d core ids for %d processes on this host; not applied",
            len(cores),
            place.local_size,
        )
        return -1
    return cores[place.local_rank]


def _uses_mpi(config: Config, by_mpi: bool, launched: Identity) -> bool:
    """Whether MPI carries the data. ValueError if it can't: it must know the launcher's ranks."""
    # The controller is the same either way; our own transports may be asked for explicitly.
    wanted = config.cpu_operations == "mpi" or (
        config.cpu_operations is None and (by_mpi or config.controller == "mpi")
    )
    if wanted or by_mpi:
        from horovod.common import mpi

        world = mpi.library().COMM_WORLD
        if (launched.rank, launched.size) != (world.Get_rank(), world.Get_size()):
            raise ValueError(
                f"this is rank {launched.rank} of {launched.size} according to the environment, but "
                f"{world.Get_rank()} of {world.Get_size()} in MPI.COMM_WORLD: to use MPI (which "
                "HOROVOD_CPU_OPERATIONS, HOROVOD_CONTROLLER or hvd.init(comm=...) ask for) start the job "
                "with horovodrun --mpi, or with the mpirun of the MPI that mpi4py has loaded"
            )
    return wanted


def _check_encryption(config: Config, uses_mpi: bool) -> None:
    """ValueError if it was asked for and can't be had: never do without silently."""
    if config.encryption == "none":
        return
    if uses_mpi:
        raise ValueError("HOROVOD_ENCRYPTION=data: MPI carries the data, and Horovod can't encrypt that")
    if problem := _core.encryption_problem():
        raise ValueError(f"HOROVOD_ENCRYPTION=data: {problem}")


def _check_local(hints: DiscoveryHints, place: Place, host: str) -> None:
    """Whether the hosts' names agree with what another launcher says about them.

    Only the number counts: Open MPI 5 may give a host's ranks local ranks in another order.
    """
    told = hints.local
    if told is None or told[1] == place.local_size:
        return
    raise ValueError(
        f"{hints.launcher} says that {told[1]} ranks are on the host of rank {place.rank}, but by the "
        f"names of the hosts {place.local_size} are on {host}: give each host a name of its own, with "
        "HOROVOD_HOSTNAME if need be"
    )


def _prepared(
    launched: Identity, identity: Identity, ranks: Sequence[int], scope: str, timeout: float
) -> contextlib.AbstractContextManager[tuple[Identity, float]]:
    """See discovered(). Ranks of horovodrun know everything already and don't even load it."""
    if identity.discovery is None:
        return contextlib.nullcontext((identity, timeout))
    from horovod._bootstrap.discovery.first_rank import discovered

    return discovered(launched, identity, ranks, scope, timeout)


def _timeout(config: Config) -> float:
    # HOROVOD_GLOO_TIMEOUT_SECONDS is about this moment; the start-up limit counts where it was not
    # given.
    explicit = "HOROVOD_GLOO_TIMEOUT_SECONDS" in os.environ
    return config.gloo_timeout_seconds if explicit else config.start_timeout


def _world(
    config: Config,
    identity: Identity,
    sets: Sequence[ProcessSet],
    transport: str,
    scope: str,
    timeout: float,
    groups: Sequence[int] | None = None,
    client: RendezvousClient | None = None,
) -> World:
    try:
        return worlds.connect(
            identity,
            transport=transport,
            groups=groups,
            timeout=timeout,
            peer_timeout=config.peer_timeout_seconds,
            # Of sets made from communicators every rank may have others: only their number must
            # agree.
            process_sets=[
                list(process_set.ranks or ()) if process_set.mpi_comm is None else [] for process_set in sets
            ],
            scope=scope,
            shm_bytes=_core.shm_bytes,
            encryption=config.encryption,
            streams=config.streams_per_peer,
            client=client,
        )
    except HorovodInternalError as error:
        # The rendezvous can't tell a mistake in the script from a failure; users of init() expect
        # to.
        if "process sets" in str(error):
            raise ValueError(f"hvd.init(process_sets=...): {error}") from error
        raise


def _connect(
    config: Config, launched: Identity, members: list[int], sets: Sequence[ProcessSet], transport: str
) -> tuple[World, Place]:
    everyone = list(range(launched.size))
    groups = None if config.topology is None else topologies.groups_of(config.topology, launched.size)
    if members and members != everyone:
        identity = _select(launched, members)
        groups = None if groups is None else [groups[member] for member in members]
    else:
        identity, members = launched, []
    # All processes count the worlds they were part of, so a late or repeated init() can't join an
    # older one.
    prefix = "-".join(map(str, members)) + ":" if members else ""
    group = f"{prefix}{identity.size}"
    number = state.inits.get(group, 0)
    state.inits[group] = number + 1
    scope = f"{group}.{number}"
    with _prepared(launched, identity, members or everyone, scope, _timeout(config)) as (ready, left):
        world = _world(config, ready, sets, transport, scope, left, groups)
    place = place_of(world.rank, [peer.host for peer in world.peers])
    if not members and identity.discovery is not None:
        _check_local(identity.discovery, place, identity.host)
    elif not members:
        place = _as_launched(place, identity)
    world.local_rank, world.local_size = place.local_rank, place.local_size
    return world, place


def _as_launched(place: Place, identity: Identity) -> Place:
    """The launcher's numbering is the one that users see in the environment."""
    return replace(
        place,
        local_rank=identity.local_rank,
        local_size=identity.local_size,
        cross_rank=identity.cross_rank,
        cross_size=identity.cross_size,
    )


def _start(comm: Any, members: list[int], by_mpi: bool, sets: Sequence[ProcessSet]) -> Session:
    config = configs.read(os.environ)
    logs.set_level(config)
    if config.elastic and WORKER in os.environ:
        return _start_elastic(config, comm, sets)
    launched = identities.detect()
    if launched.rank == 0 and "HOROVOD_RANK" not in os.environ:  # else horovodrun has said it
        for name in configs.without_effect(os.environ):
            print(f"horovod: note: {name} has no effect", file=sys.stderr)
    if launched.discovery is None:
        identities.hide_key()
    uses_mpi = _uses_mpi(config, by_mpi, launched)
    _check_encryption(config, uses_mpi)
    with contextlib.ExitStack() as belongings:
        world, place = _connect(config, launched, members, sets, "mpi" if uses_mpi else config.transport)
        table: _core.MpiTable | None = None
        if world.transport == "mpi":
            table = _mpi_table(world, members, belongings)
        held = belongings.pop_all()
        return _session(config, launched, world, place, held, config.timeline, uses_mpi, table)


def _start_elastic(config: Config, comm: Any, sets: Sequence[ProcessSet]) -> Session:
    from horovod.common import elastic_world

    elastic_world.check(config, comm)
    _check_encryption(config, uses_mpi=False)

    def connect(identity: Identity, client: RendezvousClient, scope: str) -> Session:
        world = _world(config, identity, sets, config.transport, scope, _timeout(config), client=client)
        place = _as_launched(place_of(world.rank, [peer.host for peer in world.peers]), identity)
        world.local_rank, world.local_size = place.local_rank, place.local_size
        timeline = config.timeline
        if timeline is not None:  # or the next world's would overwrite it
            base, extension = os.path.splitext(timeline)
            timeline = f"{base}.{scope}{extension}" if timeline.upper() != "DYNAMIC" else timeline
        return _session(config, identity, world, place, contextlib.ExitStack(), timeline)

    identities.hide_key()
    return elastic_world.begin(config, connect)


def _session(
    config: Config,
    launched: Identity,
    world: World,
    place: Place,
    belongings: contextlib.ExitStack,
    timeline: str | None,
    uses_mpi: bool = False,
    table: _core.MpiTable | None = None,
) -> Session:
    with belongings, contextlib.ExitStack() as observing:
        stack_signal = observer.signal_number(config.stack_signal)
        scraped = _scraped(config)
        recorded = None if timeline is None or timeline.upper() == "DYNAMIC" else timeline
        engine = _core.Engine(world, config, sessions.engine_error, table, _affinity(config, place))
        handles.table.forget_all()  # what an earlier engine left behind
        try:
            _keep_recent(engine)
            if recorded is not None:
                _start_timeline(engine, recorded, config)
            peers = [(peer.host, peer.pid) for peer in world.peers]
            if place.rank == 0:
                logs.world_made(engine, config, world.transport, [peer.host for peer in world.peers])
            tuning = _tuning(config, world, place)
            watching = observer.Observer(engine, stack_signal, peers, tuning.take if tuning else None)
            observing.callback(watching.close)
            if tuning is not None:
                tuning.start(engine)
            feed = feeds.opened(launched, place, world.transport, engine)
            if scraped is not None and place.rank == 0:
                from horovod.common import metrics_door

                scrapes = metrics_door.Scrapes(engine, world.transport, peers)
                belongings.callback(metrics_door.opened(scraped, scrapes))
        except BaseException:
            engine.shutdown()
            raise
        observing.pop_all()
        session = Session(
            engine,
            place,
            observer=watching,
            tuning=tuning,
            feed=feed,
            dynamic_process_sets=config.dynamic_process_sets,
            timeline=timeline is not None,
            timeline_of_all=config.timeline_ranks == "all",
            elastic=config.elastic,
            transport=world.transport,
            mpi=uses_mpi,
            belongings=belongings.pop_all(),
            key=world.key,
            mesh=world.mesh,
        )
        if recorded is not None:
            session.timeline_started(recorded)
        return session


def _keep_recent(engine: _core.Engine) -> None:
    """horovodrun's agent wants to know the last operations even if this process is killed."""
    with contextlib.suppress(KeyError, ValueError, OSError):
        descriptor = int(os.environ[RECENT])
        # A program that a rank has started has the variable, but something else there, if anything.
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:horovod-recent"):
            os.set_inheritable(descriptor, False)
            engine.keep_recent(descriptor)


def _tuning(config: Config, world: World, place: Place) -> Tuning | None:
    if not config.autotune or place.rank != 0 or place.size == 1:
        return None
    from horovod.common.tuning import Tuning  # here: most jobs don't need it

    return Tuning(config, world.transport, [peer.host for peer in world.peers])


def _scraped(config: Config) -> tuple[str, int] | None:
    """Where rank 0 is to serve its metrics. Looked at by all ranks, so that a mistake ends all."""
    if config.metrics_address is None:
        return None
    from horovod.common import metrics_door  # here: most jobs don't need it

    return metrics_door.place_of(config.metrics_address)


def _start_timeline(engine: _core.Engine, path: str, config: Config) -> None:
    try:
        engine.timeline_start(path, config.timeline_mark_cycles, config.timeline_ranks == "all")
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"HOROVOD_TIMELINE={path}: {error}") from error


def _mpi_table(world: World, members: list[int], belongings: contextlib.ExitStack) -> _core.MpiTable:
    from horovod.common import mpi

    try:
        channel = mpi.Channel(members or range(world.size))
    except BaseException:
        world.close()
        raise
    belongings.callback(channel.close)
    return channel.table()
