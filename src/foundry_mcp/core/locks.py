"""A lock on a file that works between processes and ends with its holder, however that dies."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked"]

POLL_SECONDS = 0.002


@contextmanager
def locked(path: Path, *, timeout: float = 0.0) -> Iterator[bool]:
    """Hold the lock file at `path`; yields False when somebody else still has it after `timeout` seconds.

    The kernel lets go of the lock when the last descriptor is closed, so a killed holder blocks nobody.
    """
    until = time.monotonic() + timeout
    descriptor = None
    try:
        while descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not _acquire(descriptor, until):
                yield False
                return
            if not _is_current(descriptor, path):  # its holder removed the file while we waited for it
                os.close(descriptor)
                descriptor = None
        yield True
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
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
