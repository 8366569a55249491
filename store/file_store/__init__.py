"""Where immutable files lie: a local folder, or object storage. docs/design/files-and-objects.md."""

from __future__ import annotations

from eventproc.store.file_store.file_store import BLOCK_BYTES, CountedFile, FileStore, UnfinishedFile
from eventproc.store.file_store.local_files import PART_SUFFIX, LocalFiles, sync_file
from eventproc.store.file_store.places import is_url, open_file_store

__all__ = [
    "BLOCK_BYTES",
    "PART_SUFFIX",
    "CountedFile",
    "FileStore",
    "LocalFiles",
    "UnfinishedFile",
    "is_url",
    "open_file_store",
    "sync_file",
]
