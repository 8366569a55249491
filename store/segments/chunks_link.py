"""Places the chunk files of a directory elsewhere: on a file system that all machines of a cluster share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER

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
        if not (folder / CLAIM).exists():
            with (folder / CLAIM).open("x") as claim:  # of calls for two directories, one fails here
                claim.write(_claim_of(directory))
        link = directory / CHUNKS_FOLDER
        if link.exists():
            link.rmdir()
        link.symlink_to(folder.resolve(), target_is_directory=True)


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


def _claim_of(directory: Path) -> str:
    return f"{directory.resolve()}\n"
