"""The few system calls a durable write is made of, in the one order that never loses anything.

Every path is a name below an open folder, so that a folder or link swapped in meanwhile leads nowhere else.
`disk` holds the calls themselves: a test replaces one to see what a crash or a full disk at that step leaves.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from foundry_mcp.core.errors import Effect, FoundryError, InternalError, UnavailableError, forbidden

__all__ = ["disk", "disk_error", "open_folder", "open_state", "read_file", "replace_file"]

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
FOLDER = READ | os.O_DIRECTORY
STATE_FOLDER = ".foundry"
FRESH = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class _Disk:
    open = staticmethod(os.open)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    link = staticmethod(os.link)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    close = staticmethod(os.close)


disk: Any = _Disk()


@contextmanager
def open_folder(
    name: str | os.PathLike[str], within: int | None = None, *, create: bool = False, mode: int = 0o777
) -> Iterator[int]:
    """An open folder; a link in its place is refused."""
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=within)
    descriptor = disk.open(name, FOLDER, dir_fd=within)
    try:
        yield descriptor
    finally:
        with suppress(OSError):  # nothing was written through it
            disk.close(descriptor)


@contextmanager
def open_state(workspace: Path, *names: str, create: bool = True) -> Iterator[int]:
    """A folder below `.foundry`, where derived and private state lives: made on first use, never committed."""
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder(workspace))
        for name in (STATE_FOLDER, *names):
            folder = stack.enter_context(open_folder(name, folder, create=create, mode=0o700))
            if create and name == STATE_FOLDER:
                _keep_out_of_git(folder)
        yield folder


def _keep_out_of_git(folder: int) -> None:
    with suppress(FileExistsError):
        descriptor = os.open(
            ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder
        )
        os.write(descriptor, b"*\n")
        os.close(descriptor)


def read_file(folder: int, name: str) -> tuple[bytes, os.stat_result]:
    """The whole file and the stat that belongs to exactly these bytes. A pipe or a device is refused, not waited for."""
    descriptor = disk.open(name, READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(), os.fstat(descriptor)
    finally:
        disk.close(descriptor)


def replace_file(folder: int, name: str, content: bytes, *, mode: int = 0o644) -> os.stat_result:
    """Put `content` in place of `name`: whoever reads sees the old file or the new one, and power may fail.

    The caller holds a lock on `name`, so one name for the unfinished file is enough, and a stray one left
    by a crash is overwritten by the next write.
    """
    unfinished = f".{name}.new"
    try:
        descriptor = disk.open(unfinished, FRESH, mode, dir_fd=folder)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[disk.write(descriptor, rest) :]
            disk.fsync(descriptor)
            written = os.fstat(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            disk.unlink(unfinished, dir_fd=folder)
        raise
    try:
        disk.fsync(folder)
    except OSError as error:
        raise disk_error(error, name, effect="applied") from error
    return written


def disk_error(error: OSError, name: str, *, effect: Effect = "none") -> FoundryError:
    """What the disk said, as an answer; `name` is relative, so nothing of the machine shows."""
    details = {"file": name, "reason": os.strerror(error.errno or errno.EIO)}
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        failure: FoundryError = forbidden(f"{name} cannot be written: {details['reason']}", **details)
    elif error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
        failure = forbidden(f"{name} is a link or no folder, and links are not followed", **details)
    elif error.errno == errno.EINVAL:
        failure = forbidden(f"{name} is not a regular file", **details)
    elif error.errno in {errno.ENOSPC, errno.EDQUOT}:
        failure = UnavailableError(
            f"There is no space left to write {name}",
            details=details,
            remediation="Free some space, then try again.",
        )
    else:
        failure = InternalError(f"The disk failed on {name}: {details['reason']}", details=details)
    failure.effect = effect
    return failure
