"""A lock on a file that works between processes and ends with its holder, however that dies."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["locked"]

POLL_SECONDS = 0.002


@contextmanager
def locked(folder: int, name: str, *, timeout: float = 0.0) -> Iterator[bool]:
    """Hold the lock file `name` below an open folder; yields False when somebody else still has it after `timeout` seconds.

    The kernel lets go of the lock when the last descriptor is closed, so a killed holder blocks nobody.
    """
    until = time.monotonic() + timeout
    descriptor = None
    try:
        while descriptor is None:
            descriptor = os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder
            )
            if not _acquire(descriptor, until):
                yield False
                return
            if not _is_current(
                descriptor, folder, name
            ):  # its holder removed the file while we waited for it
                os.close(descriptor)
                descriptor = None
        yield True
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_current(descriptor: int, folder: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _acquire(descriptor: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_SECONDS)
        else:
            return True
