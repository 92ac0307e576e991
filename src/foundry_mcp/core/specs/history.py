"""The revisions a spec has had: `.foundry/history/<spec_id>/<revision>.json`, one file each."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foundry_mcp.core.disk import disk, disk_error, open_state, read_file, replace_file
from foundry_mcp.core.errors import not_found

__all__ = ["History"]

KEPT_REVISIONS = 200


class History:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def revisions(self, spec_id: str) -> list[int]:
        """The kept revisions, oldest first."""
        try:
            with self._folder(spec_id) as folder:
                return _numbers(folder)
        except FileNotFoundError:
            return []

    def read(self, spec_id: str, number: int) -> bytes:
        try:
            with self._folder(spec_id) as folder:
                return read_file(folder, f"{number}.json")[0]
        except FileNotFoundError:
            raise not_found("revision", str(number), spec_id=spec_id, kept=self.revisions(spec_id)) from None
        except OSError as error:
            raise disk_error(error, f"revision {number} of {spec_id}") from error

    def keep(self, spec_id: str, source: int, label: str) -> None:
        """Give the file in folder `source` a second name here: it stays when a new one takes its place there."""
        name, kept = f"{spec_id}.json", f"{label}.json"
        with self._folder(spec_id, create=True) as folder:
            with suppress(FileNotFoundError):  # left by a write that was cut short after this step
                disk.unlink(kept, dir_fd=folder)
            try:
                disk.link(name, kept, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV}:
                    raise
                replace_file(folder, kept, read_file(source, name)[0])  # a file system without links
            for old in _numbers(folder)[:-KEPT_REVISIONS]:
                disk.unlink(f"{old}.json", dir_fd=folder)

    @contextmanager
    def _folder(self, spec_id: str, *, create: bool = False) -> Iterator[int]:
        with open_state(self._workspace, "history", spec_id, create=create) as folder:
            yield folder


def _numbers(folder: int) -> list[int]:
    names = os.listdir(folder)
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())
