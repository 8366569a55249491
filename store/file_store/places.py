"""Places of files: a folder, or a URL of object storage."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from eventproc.store.file_store.file_store import FileStore
from eventproc.store.file_store.local_files import LocalFiles

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(place: str) -> bool:
    """Return whether a place is a URL; otherwise it is the path of a folder."""
    return _URL.match(place) is not None


@cache
def open_file_store(place: str) -> FileStore:
    """Return the files of a place. No request is made yet; a process opens each place once.

    Raises NotSupported without the package obstore, InvalidArgument for a URL that it does not accept.
    """
    if not is_url(place):
        return LocalFiles(Path(place))
    from eventproc.store.file_store.object_files import ObjectFiles

    return ObjectFiles(place)
