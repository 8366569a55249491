"""Places the chunk files of a directory elsewhere: on a file system that all machines of a cluster share."""

from __future__ import annotations

from pathlib import Path

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER


def check_chunks_folder(directory: Path, folder: Path) -> bool:
    """Return whether `folder` is still to be linked, or False if it is the folder of the chunk files already.

    Changes nothing. Raises InvalidArgument if either folder has files: names are unique within a directory only.
    """
    link = directory / CHUNKS_FOLDER
    if link.is_symlink() and link.resolve() == folder.resolve():
        return False
    if link.is_symlink() or (link.exists() and any(link.iterdir())):
        reason = (
            f"{link} is in use; move its files there and make it a link while no process has {directory} open"
        )
        raise invalid_argument("folder of chunk files", str(folder), reason)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        reason = "it must be a new or empty folder: each directory needs one of its own"
        raise invalid_argument("folder of chunk files", str(folder), reason)
    return True


def link_chunks_folder(directory: Path, folder: Path) -> None:
    """Let the chunk files of `directory` lie in `folder`, which `check_chunks_folder` has found usable.

    After a crash in between, a second call completes it. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = directory / CHUNKS_FOLDER
    if link.exists():
        link.rmdir()
    link.symlink_to(folder.resolve(), target_is_directory=True)
