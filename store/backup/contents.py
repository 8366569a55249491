"""The files of a backup, and of a directory: the manifest, copies with checksums, and the chunk files with events."""

from __future__ import annotations

import json
import stat
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import attrs

from eventproc.base import kernel
from eventproc.store.chunks.index import ARROW_SUFFIX, SINK_FOLDER
from eventproc.store.database import Tx
from eventproc.store.database.files import BACKUP_MANIFEST
from eventproc.store.file_store import FileStore, LocalFiles, sync_file
from eventproc.store.ingestion.holds import SUPERVISOR_HOLDS
from eventproc.store.ingestion.pointers import CATALOG, DROPPED
from eventproc.store.inspection.database_file import DataFile
from eventproc.store.model.errors import CorruptRecord, StoreUnusable, Unreachable

FORMAT: Final = 1
"""Number of the form of a backup. A newer one is refused."""


@attrs.frozen
class BackupManifest:
    """What a backup contains; the file `backup.json`.

    created_ms: when it was complete. directory: identity of the directory that it was made of. schema: number of the
    last migration. database_bytes, database_checksum: size and CRC-32 of the database. files, file_bytes: number of
    chunk files, and their size. tables: the published files of tables, whose checksums stand nowhere else.
    """

    created_ms: int
    directory: str
    schema: int
    database_bytes: int
    database_checksum: int
    files: int
    file_bytes: int
    tables: tuple[DataFile, ...] = ()
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return self.database_bytes + self.file_bytes + sum(each.bytes for each in self.tables)

    @property
    def files_beside(self) -> int:
        """How many files there are beside the database."""
        return self.files + len(self.tables)

    def write(self, folder: Path) -> None:
        """Write and sync the manifest, which makes the folder a backup. Raises OSError."""
        with (folder / BACKUP_MANIFEST).open("x", encoding="utf-8") as file:
            json.dump(attrs.asdict(self), file, indent=2)
            file.write("\n")
            file.flush()
            kernel.sync(file.fileno())


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest of a backup. Raises StoreUnusable if the folder is no complete backup."""
    try:
        found = json.loads((folder / BACKUP_MANIFEST).read_bytes())
        if found.get("format", FORMAT) > FORMAT:  # before its fields, which may be others
            reason = f"made by a newer version of eventproc (format {found['format']}); update eventproc"
            raise StoreUnusable(path=str(folder), reason=reason)
        tables = tuple(DataFile(**each) for each in found.pop("tables", ()))
        return BackupManifest(**found, tables=tables)
    except FileNotFoundError:
        reason = f"is not a complete backup: it has no {BACKUP_MANIFEST}; make one with `eventproc backup`"
        raise StoreUnusable(path=str(folder), reason=reason) from None
    except (OSError, ValueError, TypeError, AttributeError) as why:
        reason = f"{BACKUP_MANIFEST} in it cannot be read ({why}); use another backup"
        raise StoreUnusable(path=str(folder), reason=reason) from why


def copy_file(files: FileStore, path: str, target: Path, on_block: Callable[[int], None]) -> tuple[int, int]:
    """Copy a file and sync the copy; return its size and its CRC-32. Raises OSError.

    on_block: called with the size of each block; it may raise.
    """
    with target.open("xb") as copy:
        size, checksum = read_blocks(files.blocks(path), on_block, copy.write)
        copy.flush()
        kernel.sync(copy.fileno())
    return size, checksum


def close_as(folder: Path, source: Path) -> None:
    """Take from others what they may not do in `source`: a new folder, empty yet, will hold the same secrets."""
    allowed = stat.S_IMODE(source.stat().st_mode) | stat.S_IRWXU
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) & allowed)


def sync_folders(home: Path) -> None:
    """Sync a folder and all folders in it; nothing if it does not exist. Raises OSError."""
    if home.exists():
        for folder in (home, *(each for each in home.rglob("*") if each.is_dir())):
            sync_file(folder)


def checksum_of(path: Path, on_block: Callable[[int], None] = lambda _: None) -> tuple[int, int]:
    """Return size and CRC-32 of a file. Raises OSError. About 1 ms per MiB."""
    return read_blocks(LocalFiles(path.parent).blocks(path.name), on_block, lambda _: None)


def read_blocks(
    blocks: Iterable[bytes], on_block: Callable[[int], None], use: Callable[[bytes], object]
) -> tuple[int, int]:
    """Pass each block to `use`; return their size and their CRC-32. on_block: called with the size of each."""
    size, checksum = 0, 0
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
        size += len(block)
        use(block)
        on_block(len(block))
    return size, checksum


def forget_outside_readers(tx: Tx) -> None:
    """Delete from a copy what only programs outside of the original's database need.

    Files that only Spark's queries read are exported again, and only queries that run now read replaced tables. The
    supervisors go on in the copy, and hold there what they have not published.
    """
    tx.execute("DELETE FROM hold WHERE name NOT LIKE ?", (f"{SUPERVISOR_HOLDS}%",))
    tx.execute("DELETE FROM unused_file")
    tx.execute("DELETE FROM chunk WHERE NOT EXISTS (SELECT 1 FROM blob WHERE blob.chunk = chunk.id)")
    tx.execute("DELETE FROM published WHERE unused_ms IS NOT NULL")
    tx.execute(
        "DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?", (CATALOG, DROPPED)
    )


def check_copied(file: str | Path, found: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raise CorruptRecord if the size or CRC-32 of a copied file is not the expected one."""
    if found != expected:
        raise CorruptRecord(key=str(file), reason=_difference(found, expected))


def _difference(found: tuple[int, int], expected: tuple[int, int]) -> str:
    if found[0] != expected[0]:
        return f"has {found[0]} bytes, but {expected[0]} were written"
    return "its content differs from what was written"


def file_problem(files: FileStore, file: DataFile, what: str) -> str | None:
    """Return a line if a file is missing, or its content is not what was written. Reads the file.

    files: those among which it lies. what: it holds, as in "events".
    """
    expected = (file.bytes, file.checksum)
    try:
        found = read_blocks(files.blocks(file.path), lambda _: None, lambda _: None)
    except (OSError, Unreachable) as why:
        reason = getattr(why, "strerror", None) or why
        return f"the file with {what} {files.show(file.path)} cannot be read ({reason}); restore a backup"
    if found == expected:
        return None
    return f"the file with {what} {files.show(file.path)} {_difference(found, expected)}; restore a backup"


def finished_files(files: FileStore) -> list[str]:
    """Return the chunk files that are complete, relative to their place. Lists the place, reads no content.

    Files of Spark's sink are left out, because their tasks may be about to commit.
    """
    found = (each for each in files.paths() if each.endswith(ARROW_SUFFIX))
    return [each for each in found if not each.startswith(f"{SINK_FOLDER}/")]


def find_orphans(tx: Tx, finished: Iterable[str]) -> list[str]:
    """Return those of the finished files that no row names. List them before: rows follow their files."""
    known = {str(path) for (path,) in tx.execute("SELECT path FROM chunk").fetchall()}
    return [each for each in finished if each not in known]
