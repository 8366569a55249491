"""Where immutable files lie: a local folder, or object storage. docs/design/files-and-objects.md."""

from __future__ import annotations

from eventproc.store.file_store.file_store import (
    REQUEST_DURATIONS as REQUEST_DURATIONS,
    CountedFile as CountedFile,
    FileStore as FileStore,
)
from eventproc.store.file_store.local_files import (
    PART_SUFFIX as PART_SUFFIX,
    LocalFiles as LocalFiles,
    sync_file as sync_file,
)
from eventproc.store.file_store.places import is_url as is_url, open_file_store as open_file_store
