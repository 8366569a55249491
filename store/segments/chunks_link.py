"""Places the chunk files of a directory elsewhere: in a folder that all machines share, or on object storage."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import Final

from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore, open_file_store, sync_file
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER, PLACE

CLAIM: Final = "used-by.txt"
"""File in a folder of chunk files that names its directory. While the folder has no chunk files, only this shows that
it is in use."""


def check_chunks_folder(directory: Path, folder: Path) -> bool:
    """Return whether `folder` is still to be linked, or False if it is the folder of the chunk files already.

    Changes nothing. Raises InvalidArgument if either folder has files, or if `folder` lies in the directory or is that
    of another one: names of files are unique within a directory only.
    """
    link = directory / CHUNKS_FOLDER
    if link.is_symlink() and link.resolve() == folder.resolve():
        return False
    if link.is_symlink() or (link.exists() and any(link.iterdir())):
        reason = (
            f"{link} is in use; move its files there and make it a link while no process has {directory} open"
        )
        raise invalid_argument("folder of chunk files", str(folder), reason)
    if directory.resolve() in (folder.resolve(), *folder.resolve().parents):
        reason = f"it must be outside of {directory}, where a link to it is made"
        raise invalid_argument("folder of chunk files", str(folder), reason)
    if folder.exists() and (not folder.is_dir() or not _is_free(directory, folder)):
        reason = "it must be a new or empty folder: each directory needs one of its own"
        if folder.is_dir() and _has_empty_claim(folder):
            reason = (
                f"its file {CLAIM} is empty, as a crash leaves it; delete that file, unless another directory has a"
                " link to the folder"
            )
        raise invalid_argument("folder of chunk files", str(folder), reason)
    return True


def link_chunks_folder(directory: Path, folder: Path) -> None:
    """Let the chunk files of `directory`, which exists, lie in `folder`.

    After a crash in between, a second call completes it. Calls for one directory take turns. Raises as
    `check_chunks_folder`, OSError, and FileExistsError if a call for another directory was faster.
    """
    with locked_folder(directory):
        if not check_chunks_folder(directory, folder):
            return
        folder.mkdir(parents=True, exist_ok=True)
        claim = folder / CLAIM
        if not claim.exists():
            with claim.open("x") as file:  # of calls for two directories, one fails here
                try:
                    file.write(_claim_of(directory))
                    file.flush()
                except OSError:
                    claim.unlink()
                    raise
        sync_file(claim)
        sync_file(folder)
        link = directory / CHUNKS_FOLDER
        if link.exists():
            link.rmdir()
        link.symlink_to(folder.resolve(), target_is_directory=True)
        sync_file(directory)


def claim_place(owner: str, url: str) -> FileStore:
    """Claim a URL for the chunk files of a store, which need not exist yet; return its files.

    owner: names the store. After a crash in between, a second call with the same name completes it.
    Of two stores that claim a place, one fails. Raises InvalidArgument if the place has other files, Unreachable,
    NotSupported.
    """
    files, text = open_file_store(url), f"{owner}\n".encode()
    found = list(islice(files.paths(), 2))
    if found == [CLAIM] and files.read(CLAIM, 0, len(text) + 1) == text:
        return files
    if found:
        raise invalid_argument("place of chunk files", files.place, _ONE_OF_ITS_OWN)
    claim = files.create(CLAIM)
    claim.write(text)
    try:
        claim.finish()
    except FileExistsError:
        raise invalid_argument("place of chunk files", files.place, _ONE_OF_ITS_OWN) from None
    return files


def is_place(tx: Tx, url: str) -> bool:
    """Return whether the chunk files lie at `url` already. Raises InvalidArgument if they lie elsewhere."""
    row = tx.execute("SELECT value FROM meta WHERE key = ?", (PLACE,)).fetchone()
    if row is not None and row[0] == url:
        return True
    link = None if (directory := tx.directory()) is None else directory / CHUNKS_FOLDER
    is_linked = link is not None and link.is_symlink()
    if row is not None or is_linked or tx.execute("SELECT 1 FROM chunk LIMIT 1").fetchone() is not None:
        place = link if row is None else row[0]
        reason = f"the chunk files lie in {place}; a store keeps the place of its first file"
        raise invalid_argument("place of chunk files", url, reason)
    return False


def verify_no_url(tx: Tx, folder: Path) -> None:
    """Raise InvalidArgument if the chunk files lie at a URL, so that they cannot lie in a folder."""
    row = tx.execute("SELECT value FROM meta WHERE key = ?", (PLACE,)).fetchone()
    if row is not None:
        raise invalid_argument("folder of chunk files", str(folder), f"they lie at {row[0]}, and stay there")


def set_place(tx: Tx, url: str) -> None:
    """Let new chunk files lie at a URL that was claimed for the store. Raises as `is_place`."""
    if not is_place(tx, url):
        tx.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (PLACE, url))


_ONE_OF_ITS_OWN: Final = "another store uses it, or it has files; each store needs a prefix of its own"


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a lock of a folder during the block; another process waits. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_free(directory: Path, folder: Path) -> bool:
    """Return whether a folder is empty, except for the claim of a call for `directory` that died."""
    return all(each.name == CLAIM and each.read_text() == _claim_of(directory) for each in folder.iterdir())


def _has_empty_claim(folder: Path) -> bool:
    """Return whether a folder has only a claim without a name: of which directory it is, nobody knows."""
    return all(each.name == CLAIM and each.stat().st_size == 0 for each in folder.iterdir())


def owner_of(directory: Path) -> str:
    """Return what names a directory among those of all machines."""
    return f"{gethostname()}:{directory.resolve()}"


def _claim_of(directory: Path) -> str:
    return f"{directory.resolve()}\n"
