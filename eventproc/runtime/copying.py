"""Copying a store between a directory and a server: both are opened as databases, without a host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from eventproc.base.tasks import run_uninterrupted
from eventproc.store.address import StoreAddress, start_store, store_address
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Durability, Migration, Tx
from eventproc.store.database.standalone import Advance
from eventproc.store.model.errors import StoreMissing, StoreUnusable
from eventproc.store.postgres.address import ServerAddress

if TYPE_CHECKING:
    from eventproc.store.backup.results import CopyResult


async def copy(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    abort_open: bool = False,
    leave_sql_tables: bool = False,
    advance: Advance = lambda _done, _total: None,
) -> CopyResult:
    """Copy a store into a new or empty one: between a directory and a server both ways, or two of a kind; asyncio only.

    The copy has everything: streams with their ids, transactions, groups with their progress, dead letters, users, and
    the files of events. Readers and groups continue where they were. The source is not changed, except that its tables
    in the layout of before become Iceberg's. The copy is compared with it in the end. Until then the target does not
    open; if the copy is interrupted, the same call continues it. No process may use the source meanwhile: what it
    changes would make the comparison fail.

    Args:
        source: the store, as for `open`.
        target: a new store, as for `open`: a missing or empty directory, or a URL with an unused schema.
        abort_open: abort the open transactions in the copy. Default: refuse a source that has some.
        leave_sql_tables: leave out the tables that SQL of users has created. Default: refuse a source that has some.
        advance: called with the bytes that have passed and all that will, also from another thread. Default: nothing.

    Returns:
        What the copy has, with the tables that were left out.

    Raises:
        StoreMissing: the source does not exist.
        StoreUnusable: one of them cannot be used; the source is of an older version, or an unfinished copy; the target
            is an unfinished copy of another store.
        AlreadyExists: the target is not empty.
        DirectoryInUse: a process has one of them open.
        IllegalTransition: the source has an open transaction, and `abort_open` is False.
        NotSupported: the source has tables of users' SQL, and `leave_sql_tables` is False; or the target has no place
            for its files, or is a server, which stores no NUL in texts.
        InvalidArgument: both are the same store, or an address is not valid.
        CorruptRecord: the copy differs from the source, or a file of the source is damaged.
        Unreachable: the server does not answer.
        DiskFull: there is no space left for the target.

    Cost:
        Reads the source twice, and writes and reads the target once, 4 MiB at a time. About 0.1 kB of memory per blob.
    """
    from eventproc.store.backup.copy import check_source, copy_database  # few programs need it

    here, there = store_address(source), store_address(target)
    async with _opened(here, _unchanged(here)) as original:
        left = await check_source(
            original,
            to_server=isinstance(there, ServerAddress),
            abort_open=abort_open,
            leave_sql_tables=leave_sql_tables,
        )
        async with _target(there, original) as made:
            return await copy_database(original, made, left_tables=left, advance=advance)


def _unchanged(place: StoreAddress) -> list[Migration]:
    """Return migrations for a store that must be of this version already."""

    def refuse(_: Tx) -> None:
        raise StoreUnusable(
            path=str(place), reason="made by an older version of eventproc; open it once, then copy it"
        )

    return [attrs.evolve(each, apply=refuse) for each in SYSTEM_MIGRATIONS]


@asynccontextmanager
async def _target(place: StoreAddress, source: Database) -> AsyncIterator[Database]:
    """Open the target, with the durability of the source if it is new."""
    from eventproc.store.backup.contents import close_as
    from eventproc.store.backup.copy import verify_no_files

    is_new = isinstance(place, Path) and not await anyio.Path(place).exists()
    async with AsyncExitStack() as stack:
        try:
            opened = await stack.enter_async_context(_opened(place, SYSTEM_MIGRATIONS))
        except StoreMissing:
            if isinstance(place, ServerAddress):
                await verify_no_files(source, str(place))  # before anything is made
            opened = await stack.enter_async_context(
                _opened(place, SYSTEM_MIGRATIONS, create=True, durability=source.durability)
            )
            if is_new and opened.path is not None and source.path is not None:
                close_as(opened.path, source.path)
        yield opened


@asynccontextmanager
async def _opened(
    place: StoreAddress,
    migrations: Sequence[Migration],
    *,
    create: bool = False,
    durability: Durability | None = None,
) -> AsyncIterator[Database]:
    db = await start_store(place, migrations=migrations, durability=durability, create=create)
    try:
        yield db
    finally:
        await run_uninterrupted(db.close)
