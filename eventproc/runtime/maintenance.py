"""The care of an open directory as a whole: it is backed up and compacted."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eventproc.store.database import Database, FileWork
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.segments.free_pages import free_space

if TYPE_CHECKING:
    from eventproc.cluster.compaction import CompactResult
    from eventproc.store.backup.results import BackupPlan, BackupResult
    from eventproc.store.database.standalone import Advance


class MaintenanceSystem:
    """The part of `Eventproc` that takes care of the directory as a whole."""

    _db: Database

    async def backup(
        self, dest: str | PathLike[str], *, advance: Advance = lambda _done, _total: None
    ) -> BackupResult:
        """Make a verified backup of the directory in a new folder, while all processes go on reading and writing.

        The backup is the state of one moment: everything that was acknowledged before the call, files with events
        included. `restore_backup` makes a directory of it.

        Args:
            dest: the new folder. The folder above it must exist.
            advance: called from a thread with the bytes done and all bytes. Default: nothing.

        Raises:
            AlreadyExists: the folder exists.
            StoreUnusable: the folder cannot be written, or lies in the directory itself.
            DiskFull: there is no space left; nothing remains.
            CorruptRecord: the database or a file with events is damaged.
            NotSupported: this system lies in memory or on a server.
            InvalidArgument: `dest` is not a path.

        Cost:
            Reads and writes the size of the directory. Meanwhile the log of the database grows by what is written.
        """
        from eventproc.store.backup.make import make_backup  # few programs need it

        return await make_backup(self._db, _path(dest), advance)

    async def preview_backup(self, dest: str | PathLike[str]) -> BackupPlan:
        """Return what `backup` would copy, after its checks, and change nothing. Raises the same refusals.

        Args:
            dest: as for `backup`.
        """
        from eventproc.store.backup.make import plan_backup  # few programs need it

        return await plan_backup(self._db, _path(dest))

    async def free_bytes(self) -> int:
        """Return how many bytes of the database hold nothing: the next events take them, or `compact` returns them.

        Raises:
            NotSupported: this system lies in memory or on a server, which frees its space itself.
        """
        self._db.directory_for(FileWork.COMPACTION)
        return (await self._db.read(free_space)).free_bytes

    async def compact(self, *, advance: Advance = lambda _done, _total: None) -> CompactResult:
        """Return the bytes of truncated and deleted events to the file system now, and what else of the file is free.

        A process that may be the host does it in the background, and leaves up to 64 MiB for the next events. Writers
        go on meanwhile: each step takes some ms. Bytes that Spark or a backup reads stay.

        Args:
            advance: called with the bytes returned, and all free ones, which grow meanwhile. Default: nothing.

        Returns:
            The size of the database file before and after.

        Raises:
            NotSupported: this system lies in memory or on a server, or another tool has made a file that cannot shrink.
            DiskFull: there is no space left for the log of a step; what was returned before stays so.
            CorruptRecord: a record of a truncated or deleted stream is damaged.

        Cost:
            About 20 us for each free page of 16 KiB. The log of the database grows by at most 32 MiB, or by what is
            returned while a read goes on.
        """
        from eventproc.cluster.compaction import compact  # few programs need it

        return await compact(self._db, advance=advance)


def _path(dest: str | PathLike[str]) -> Path:
    if not isinstance(cast("object", dest), (str, PathLike)) or not str(dest):
        raise invalid_argument("dest", dest, "it must be a path, as str or pathlib.Path")
    return Path(dest)
