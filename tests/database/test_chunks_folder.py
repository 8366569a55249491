"""`eventproc.open(chunks=...)`: the files that machines of a cluster share lie in a folder outside of the directory."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import IO, Any

import anyio
import pytest

import eventproc
from eventproc.errors import InvalidArgument


async def test_openings_that_name_the_same_folder_share_it(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "deep" / "shared"

    async def open_it() -> None:
        async with eventproc.open(home, durability="os", chunks=shared):
            assert (home / "chunks").resolve() == shared

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(open_it)
    async with eventproc.open(home):
        assert (home / "chunks").resolve() == shared


async def test_directory_stays_usable_after_its_folder_could_not_be_made(tmp_path: Path) -> None:
    home, blocked = tmp_path / "home", tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        await eventproc.open(home, durability="os", chunks=blocked / "shared")
    async with eventproc.open(home, chunks=tmp_path / "shared") as ep:
        assert await ep.scopes() == []


class FullFile(io.StringIO):
    """A file on a full disk."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_full_disk_leaves_no_claim_of_a_shared_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, shared, really_open = tmp_path / "data", tmp_path / "shared", Path.open

    def open_on_full_disk(path: Path, *how: Any, **options: Any) -> IO[Any]:
        file: IO[Any] = really_open(path, *how, **options)
        if path.parent != shared:
            return file
        file.close()
        return FullFile()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_on_full_disk)
        with pytest.raises(OSError, match="No space"):
            await eventproc.open(home, durability="os", chunks=shared)
    async with eventproc.open(home, durability="os", chunks=shared):
        pass


async def test_an_empty_claim_of_a_shared_folder_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """A crash leaves one: the link to the folder may have been made, or not."""
    home, shared = tmp_path / "home", tmp_path / "shared"
    shared.mkdir()
    claim = shared / "used-by.txt"
    claim.touch()
    with pytest.raises(InvalidArgument, match=r"used-by\.txt is empty.*delete that file"):
        await eventproc.open(home, durability="os", chunks=shared)
    claim.unlink()
    async with eventproc.open(home, durability="os", chunks=shared):
        assert claim.read_text() == f"{home.resolve()}\n"
