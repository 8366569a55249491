"""`eventproc.open(chunks=...)`: the files that machines of a cluster share lie in a folder outside of the directory."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import eventproc
from eventproc.store.model.errors import InvalidArgument


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


async def test_folder_that_is_not_its_own_is_refused_before_anything_changes(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    with pytest.raises(InvalidArgument, match="outside of"):
        await eventproc.open(home, chunks=home / "chunks")
    assert not home.exists()
    async with eventproc.open(home, durability="os", chunks=shared):
        pass
    with pytest.raises(InvalidArgument, match="one of its own"):
        await eventproc.open(tmp_path / "other", chunks=shared)
    with pytest.raises(InvalidArgument, match="in use"):
        await eventproc.open(home, chunks=tmp_path / "third")
    found = await anyio.to_thread.run_sync(os.listdir, tmp_path)
    assert sorted(found) == ["home", "shared"]


async def test_directory_stays_usable_after_its_folder_could_not_be_made(tmp_path: Path) -> None:
    home, blocked = tmp_path / "home", tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        await eventproc.open(home, durability="os", chunks=blocked / "shared")
    async with eventproc.open(home, chunks=tmp_path / "shared") as ep:
        assert await ep.scopes() == []
