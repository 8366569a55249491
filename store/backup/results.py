"""What a backup, a restore and a copy report."""

from __future__ import annotations

from pathlib import Path

import attrs

from eventproc.store.model.short_repr import short_repr_of_fields


@attrs.frozen
class BackupPlan:
    """What a backup would copy.

    files, file_bytes: of events or of tables, beside the database. free_bytes: free space where it would lie.
    """

    __repr__ = short_repr_of_fields

    path: Path
    database_bytes: int
    files: int
    file_bytes: int
    free_bytes: int

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return self.database_bytes + self.file_bytes


@attrs.frozen
class BackupResult:
    """A complete backup.

    path: its folder. created_ms: when it was complete. bytes: size of all its files. files: number of files, of
    events or of tables, beside the database.
    """

    path: Path
    created_ms: int
    bytes: int
    files: int


@attrs.frozen
class RestoreResult:
    """A restored directory.

    path: the directory. directory: its new identity. backup_ms: when the backup was made. bytes: size of all files.
    files: number of files, of events or of tables, beside the database.
    """

    __repr__ = short_repr_of_fields

    path: Path
    directory: str
    backup_ms: int
    bytes: int
    files: int


@attrs.frozen
class CopyResult:
    """A complete copy of a store.

    source, target: the stores. streams: number of streams. events, bytes: what is stored of them. files: of events or
    of tables, beside the database. left_tables: tables of users' SQL that were not copied.
    """

    source: str
    target: str
    streams: int
    events: int
    bytes: int
    files: int
    left_tables: tuple[str, ...]

    __repr__ = short_repr_of_fields
