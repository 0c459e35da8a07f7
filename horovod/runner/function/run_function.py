"""``horovod.run``: a function instead of a command, from a script or a notebook.

A launcher process of its own does the work, so that a notebook's signals, children and threads stay
what they are; its output is passed on to ``sys.stdout`` and ``sys.stderr``, which is where
notebooks show it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, TextIO

from horovod.runner.package_path import package_path
from horovod.runner.payload import Payload, memory_file, read_all, unpack_results

_FAILED = "Horovod detected that one or more processes exited"
_KEEP_LINES = 200  # of stderr, for the exception
_LAST_WORDS = 5.0  # seconds for output that nothing comes of: something may hold the launcher's pipes
_INTERRUPT_PATIENCE = 30.0  # seconds for the launcher to end the job after Ctrl-C


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Iterable[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls ``func(*args, **kwargs)`` in ``num_proc`` processes and returns their results in rank
    order.

    ``hosts`` ("host1:2,host2:2") or ``hostfile`` as for horovodrun, by default this machine.
    ``executable`` is the Python interpreter of the workers, by default this one. ``use_mpi`` lets
    mpirun start them and MPI carry the data, as ``horovodrun --mpi`` does. The function travels by
    cloudpickle, so it may be defined in ``__main__`` or a notebook; so do arguments and results.
    ``network_interfaces`` may be a list of names, or a text with commas between them.

    With ``min_num_proc`` or ``host_discovery_script`` the job is elastic, as with the flags of
    horovodrun that have these names (``slots`` is --slots-per-host, ``cooldown_range``
    --blacklist-cooldown-range): it may lose and get processes, and what is returned are the results
    of the first ``min_num_proc`` ranks of the last world.

    RuntimeError if a process fails, with the end of that rank's stderr, its traceback that is;
    ValueError if the arguments contradict each other. Ctrl-C ends the job first.
    """
    num_proc = _renamed("np", np, "num_proc", num_proc) or 1
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    network_interfaces = _renamed(
        "network_interface", network_interface, "network_interfaces", network_interfaces
    )
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    if sum(given is not None for given in (hosts, hostfile, host_discovery_script)) > 1:
        raise ValueError("hosts, hostfile and host_discovery_script say the same thing: give one of them")
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi exclude each other: give one of them")
    flags: dict[str, object] = {
        "--num-proc": num_proc,
        "--min-num-proc": min_num_proc,
        "--max-num-proc": max_num_proc,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--mpi-args": mpi_args,
        "--network-interfaces": network_interfaces,
    }
    argv = [f"{flag}={value}" for flag, value in flags.items() if value is not None]
    if cooldown_range is not None:
        argv += ["--blacklist-cooldown-range", *map(str, cooldown_range)]
    switches = {"--disable-cache": disable_cache, "--verbose": verbose, "--gloo": use_gloo, "--mpi": use_mpi}
    argv += [flag for flag, given in switches.items() if given]
    command = _python(executable or sys.executable, "horovod.runner.function.worker", "main")
    results = _launch([*argv, *command], _pickled(func, args, kwargs or {}))
    elastic = min_num_proc is not None or host_discovery_script is not None
    return _unpickled(results, (min_num_proc or num_proc) if elastic else num_proc)


def _python(executable: str, module: str, function: str) -> list[str]:
    """Runs a function.

    Unlike ``-m``, it looks for no module in the current directory, whatever is there.
    """
    start = "import sys; sys.path[:] = filter(None, sys.path)"
    return [executable, "-c", f"{start}; from {module} import {function}; sys.exit({function}())"]


def _renamed(old: str, old_value: Any, new: str, new_value: Any) -> Any:
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)
    return old_value


def _pickled(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    # Two layers: the path must be in place before the function's own modules are looked for.
    work = cloudpickle.dumps((func, tuple(args), dict(kwargs)))
    pickled: bytes = cloudpickle.dumps(([os.path.abspath(entry) for entry in sys.path], work))
    return pickled


def _unpickled(results: dict[int, bytes], size: int) -> list[Any]:
    import cloudpickle

    missing = [rank for rank in range(size) if not results.get(rank)]
    if missing:
        raise RuntimeError(
            f"rank {missing[0]} ended with code 0 but without a result: the function must return, not exit"
        )
    return [cloudpickle.loads(results[rank]) for rank in range(size)]


def _launch(argv: list[str], payload: bytes) -> dict[int, bytes]:
    """Runs the launcher and returns what each rank wrote. RuntimeError if it fails."""
    with contextlib.ExitStack() as stack:
        source, target = memory_file(payload), memory_file(b"")
        life, held = os.pipe()
        for descriptor in (source, target, held):
            stack.callback(os.close, descriptor)
        environ = {**os.environ, **Payload(source, target, life).environment()}
        environ["PYTHONPATH"] = os.pathsep.join(package_path(os.environ.get("PYTHONPATH", "")))
        try:
            process = subprocess.Popen(
                [*_python(sys.executable, "horovod.runner.launch", "run_commandline"), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                pass_fds=(source, target, life),
                # Ctrl-C reaches this process, which tells the launcher.
                start_new_session=True,
            )
        finally:
            os.close(life)
        tail = _relay(process)
        if process.returncode != 0:
            raise RuntimeError(_message(process.returncode, tail))
        return unpack_results(read_all(target))


def _relay(process: subprocess.Popen[bytes]) -> list[str]:
    """Passes the output on until the launcher has ended; returns the last lines of its stderr."""
    tail: list[str] = []
    showing: dict[str, int] = {}  # by thread: lines whose end is not there; whoever reads them may be slow

    def pump(stream: IO[bytes], sink: TextIO, keep: list[str] | None) -> None:
        name = threading.current_thread().name
        for number, line in enumerate(iter(stream.readline, b""), 1):
            showing[name] = number
            text = line.decode(errors="replace")
            if keep is not None:
                keep.append(text)
                del keep[:-_KEEP_LINES]
            # A notebook's output may be closed; the job goes on.
            with contextlib.suppress(OSError, ValueError):
                sink.write(text)
                sink.flush()
            showing[name] = -number

    assert process.stdout is not None and process.stderr is not None
    threads = [
        threading.Thread(target=pump, args=(process.stdout, sys.stdout, None), daemon=True),
        threading.Thread(target=pump, args=(process.stderr, sys.stderr, tail), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        process.wait()
        for thread in threads:
            before = None
            while thread.is_alive() and (shown := showing.get(thread.name, 0)) != before:
                before = shown if shown <= 0 else None
                thread.join(_LAST_WORDS)
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_INTERRUPT_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()  # the agents notice
            process.wait()
        raise
    finally:
        for thread in threads:
            thread.join(_LAST_WORDS)
    return tail


def _message(code: int, tail: list[str]) -> str:
    """The launcher's last words: who failed, its traceback, and the line that callers look for."""
    from horovod.runner.function.under_mpirun import FAILED

    text = "".join(tail)
    if f"\nhorovodrun: {FAILED}" in f"\n{text}":
        return f"{FAILED} {code}\n{text.strip()}"
    start = text.rfind("\nhorovodrun: rank ")
    # What the launcher says before about the end of the job belongs to it.
    lines = text[: max(start, 0)].rstrip("\n").rsplit("\n", 1)
    if lines[-1].startswith("horovodrun: "):
        start = len("\n".join(lines[:-1]))
    report = (text[start:] if start >= 0 else text).strip()
    if _FAILED in report:
        return report
    return f"{_FAILED} with non-zero status: horovodrun ended with code {code}\n{report}"
