"""The memory that the ranks of one host share: an anonymous file, passed on as a descriptor.

It has no name, so nothing is left behind and nobody else can open it.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

_DESCRIPTOR = array.array("i").itemsize
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
# Not all in the fcntl module of Python 3.10.
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1, 2, 4


def create(sizes: Sequence[int]) -> int:
    """A descriptor of so many zero bytes; pages come into being when they are touched.

    The first of `sizes` that can be had. Raises OSError.
    """
    descriptor = os.memfd_create("horovod", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for size in sizes[:-1]:
            with contextlib.suppress(OSError):  # a limit on the size of files
                os.ftruncate(descriptor, size)
                break
        else:
            os.ftruncate(descriptor, sizes[-1])
        # With a fixed size no rank can make another one's access fault.
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def send(sock: socket.socket, descriptor: int) -> None:
    """Passes a descriptor over a Unix socket; raises OSError."""
    socket.send_fds(sock, [b"m"], [descriptor])


def receive(sock: socket.socket, sizes: Sequence[int]) -> int | None:
    """The descriptor sent by send(), owned by the caller; None if it isn't there yet.

    Raises ConnectionError if the connection ended or something else came.
    """
    try:
        data, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(_DESCRIPTOR), socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % _DESCRIPTOR])
    if data == b"m" and len(descriptors) == 1 and os.fstat(descriptors[0]).st_size in sizes:
        return descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    raise ConnectionError("rank 0 did not pass on its shared memory")


def peer(sock: socket.socket) -> tuple[int, int]:
    """The process (0 if not visible from here) and the user at the other end of a Unix socket.

    That is what the kernel says; nobody can pretend to be another user.
    """
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    return int(pid), int(user)


def pid_namespace() -> str:
    """Process ids mean the same to processes that share this; unique across hosts."""
    try:
        # The number of the first namespace is the same on every machine.
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
