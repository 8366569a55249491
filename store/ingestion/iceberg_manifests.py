"""What the manifests of a table name: its data files, their sizes, and whether their rows can be read here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from eventproc.store.ingestion.iceberg_files import StoreFiles
from eventproc.store.model.errors import NotSupported


def store_files(table: Table) -> StoreFiles:
    """Return the files of a table of a store."""
    return cast("StoreFiles", table.io)


def entries_of(table: Table) -> Iterator[tuple[DataFile, int]]:
    """Yield the data files of a table with their sequence numbers."""
    for manifest in _manifests_of(table):
        if manifest.content is ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file, entry.sequence_number or 0


def _manifests_of(table: Table) -> list[ManifestFile]:
    snapshot = table.metadata.current_snapshot()
    return [] if snapshot is None else snapshot.manifests(table.io)


def check_readable(table: Table) -> None:
    """Raise NotSupported for a table that Parquet files and the names of their columns alone do not describe."""
    name = table.name()[-1]
    if any(len(each.names) > 1 for each in table.metadata.name_mapping() or ()):
        what = f"table {name}, in which another engine renamed a column,"
        raise NotSupported(what=what, remedy="read it with that engine, or give the column its name again")
    if any(each.content is not ManifestContent.DATA for each in _manifests_of(table)):
        what = f"table {name}, from which another engine deleted single rows,"
        raise NotSupported(what=what, remedy="rewrite it there without delete files (copy on write)")


def sizes_of(table: Table, snapshots: Sequence[Snapshot]) -> dict[str, int | None]:
    """Return the paths of a table's metadata file, and of manifests and data files of snapshots, with known sizes."""
    io, current = store_files(table), table.metadata.current_snapshot_id
    found: dict[str, int | None] = {io.path_of(table.metadata_location): None}
    for snapshot in snapshots:
        path = io.path_of(snapshot.manifest_list)
        if snapshot.snapshot_id != current and io.files.size(path) is None:
            continue  # a backup, or a copy, has the files of the newest only
        found[path] = None
        for manifest in snapshot.manifests(io):
            path = io.path_of(manifest.manifest_path)
            if path not in found:
                found[path] = manifest.manifest_length
                for entry in manifest.fetch_manifest_entry(io):
                    found[io.path_of(entry.data_file.file_path)] = entry.data_file.file_size_in_bytes
    return found
