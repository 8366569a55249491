"""Opening a directory, or a system in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote

import anyio
import anyio.to_thread

from eventproc.base.clock import Clock
from eventproc.runtime.system import Eventproc, begin_system
from eventproc.store.address import A_PATH, start_store, store_address
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Durability, verify_complete
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.file_store import is_url, open_file_store
from eventproc.store.model.argument_checks import check_choice, check_instance, invalid_argument
from eventproc.store.model.errors import StoreMissing
from eventproc.store.openable import Opening
from eventproc.store.postgres.address import ServerAddress
from eventproc.store.segments.chunks_link import (
    check_chunks_folder,
    claim_place,
    is_place,
    link_chunks_folder,
    owner_of,
    set_place,
    verify_no_url,
)

if TYPE_CHECKING:
    from eventproc.store.database.memory_database import MemoryStore


def open(
    path: str | PathLike[str],
    *,
    schema: str | None = None,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> Opening[Eventproc]:
    """Open a directory, which any number of processes of this machine may share, or a store on a server; asyncio only.

    `async with open(path) as ep:` closes it at the end of the block. `ep = await open(path)` leaves it open until
    `await ep.close()`. The block may begin and end in different tasks of one event loop.

    Args:
        path: the directory. Or the URL of a PostgreSQL database, postgresql://USER@HOST/DATABASE?schema=NAME by libpq's
            rules, which any number of machines may share; NAME (default: eventproc) holds the tables. It needs the
            extra `postgres`; passwords belong into PGPASSFILE.
        schema: of a database, instead of NAME. None (default): that of the URL.
        durability: of a new store: "fsync" (default; acknowledged means synced) or "os" (survives the death of
            processes). An existing one keeps its own.
        create: make the directory if it is missing or empty. Default: True.
        host: whether this instance may run the internal processors. One that may not waits for another that does.
        chunks: a folder for the files of Spark and of moved events, new or empty: shared by the machines of a cluster,
            which see it at the same path. The directory's folder "chunks" becomes a link to it. Or a URL of object
            storage, s3://BUCKET/PREFIX, gs://... or az://..., with credentials from the environment, which needs the
            extra `objects`; for a store on a server only that. Later openings may leave it out. None (default): the
            files lie in the directory; on a server no events are moved.
        clock: source of time, randomness and ids, for tests. None (default): the machine's.
        faults: points at which a test lets the process die. Default: none.

    Raises:
        StoreMissing: the directory does not exist, and `create` is False.
        StoreUnusable: the directory is not eventproc's, newer, read-only, on a network file system, or an unfinished
            copy.
        Unreachable: opening; the server of the URL does not answer.
        NotSupported: this platform lacks something that eventproc needs.
        InvalidArgument: an option is not valid, or `durability` differs from the directory's.
        DirectoryInUse: opening; `chunks` is a URL, and other processes have the store open, which has none yet.
        InvalidArgument: opening; `chunks` is not a place of its own, or the store has such files elsewhere.
            Nothing changed.
        Unreachable: opening; the storage of the URL does not answer or refuses. Nothing changed.
        OSError: opening; the folder `chunks` or the link to it cannot be made.
    """
    _verify_given(clock, faults)
    address = store_address(path, schema=schema)
    if chunks is not None and not isinstance(cast("object", chunks), (str, PathLike)):
        raise invalid_argument("folder of chunk files", chunks, A_PATH)
    if chunks == "":  # what an unset variable makes; as a path it would be the current directory
        raise invalid_argument("folder of chunk files", chunks, "it is empty")
    chosen = None if durability is None else check_choice("durability", durability, Durability)
    if isinstance(address, ServerAddress):
        opened, owner = f"the store {address.name!r}", address.name
        start_at = partial(start_store, address, migrations=SYSTEM_MIGRATIONS)
        url, folder = _place_of(chunks)
        if folder is not None:
            reason = (
                "a store on a server keeps them where every machine finds them, such as s3://BUCKET/PREFIX"
            )
            raise invalid_argument("place of chunk files", str(folder), reason)
    else:
        url, folder = _place_of(chunks)
        opened, owner = f"the directory {str(path)!r}", owner_of(address)
        start_at = partial(_start_directory, address, folder)
    start_at = partial(start_at, durability=chosen, clock=clock, faults=faults)

    async def start() -> Eventproc:
        db = await (start_at(create=create) if url is None else _start_with_url(url, owner, start_at, create))
        async with _closing_if_it_fails(db):
            await db.read(partial(verify_complete, name=db.name))
        return await begin_system(db, host=host)

    return Opening(opened, start)


async def _start_directory(
    path: Path,
    folder: Path | None,
    *,
    durability: Durability | None,
    create: bool,
    clock: Clock | None,
    faults: Faults,
) -> Database:
    """Open a directory. folder: where its chunk files shall lie, if the caller says."""
    to_link = folder is not None and check_chunks_folder(path, folder)  # before anything is made
    db = await start_store(
        path, migrations=SYSTEM_MIGRATIONS, durability=durability, create=create, clock=clock, faults=faults
    )
    if folder is not None:
        async with _closing_if_it_fails(db):
            await db.read(partial(verify_no_url, folder=folder))
            if to_link:
                await anyio.to_thread.run_sync(link_chunks_folder, path, folder)
    return db


def open_memory(
    *, host: bool = True, clock: Clock | None = None, faults: Faults = NO_FAULTS
) -> Opening[Eventproc]:
    """Open an empty system in memory, discarded when it is closed: the same code, on asyncio and trio.

    Use it as `open`: in `async with`, or with `await` and `close`.

    Args:
        host: whether this instance runs the internal processors. Default: True.
        clock: source of time, randomness and ids, for tests. None (default): the machine's.
        faults: points at which a test lets the process die. Default: none.

    Raises:
        InvalidArgument: an option is not valid.
    """
    from eventproc.store.database.memory_database import start_memory_database  # few programs need it

    _verify_given(clock, faults)

    async def start() -> Eventproc:
        db = start_memory_database(migrations=SYSTEM_MIGRATIONS, clock=clock, faults=faults)
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return await begin_system(db, host=host)

    return Opening("a system in memory", start)


async def open_in_store(
    store: MemoryStore, *, host: bool = True, clock: Clock, faults: Faults = NO_FAULTS
) -> Eventproc:
    """Return one more opening of a system in memory, for tests of several instances. `close` ends it.

    store: what the openings share; it outlives them. The rest is as in `open_memory`.
    """
    from eventproc.store.database.memory_database import start_memory_database

    db = start_memory_database(migrations=[], clock=clock, faults=faults, store=store)
    await anyio.lowlevel.cancel_shielded_checkpoint()
    return await begin_system(db, host=host)


def _place_of(chunks: str | PathLike[str] | None) -> tuple[str | None, Path | None]:
    """Return the URL, or the folder, that the caller chose for chunk files. A file URL names a folder."""
    if chunks is None:
        return None, None
    place = str(chunks)
    if not is_url(place):
        return None, Path(place).absolute()
    if place.startswith("file:///"):
        return None, Path(unquote(place.removeprefix("file://")))
    return open_file_store(place).place, None  # raises for a URL that cannot be used


class _StartStore(Protocol):
    """Opens a store, and makes it if it is missing and `create` is true."""

    async def __call__(self, *, create: bool) -> Database: ...


async def _start_with_url(url: str, owner: str, start_at: _StartStore, create: bool) -> Database:
    """Open a store whose chunk files lie at a URL, or shall lie there. owner: names the store."""
    try:
        db = await start_at(create=False)
    except StoreMissing:
        if not create:
            raise
        await anyio.to_thread.run_sync(claim_place, owner, url)  # before anything is made
        db = await start_at(create=True)
    async with _closing_if_it_fails(db):
        await _use_url(db, owner, url)
    return db


@asynccontextmanager
async def _closing_if_it_fails(db: Database) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        with anyio.CancelScope(shield=True):
            await db.close()
        raise


async def _use_url(db: Database, owner: str, url: str) -> None:
    """Let the chunk files of a store lie at a URL. Raises InvalidArgument, DirectoryInUse, Unreachable."""
    if await db.read(partial(is_place, url=url)):
        return
    db.verify_alone()  # another process may be writing a file to the place of before
    await anyio.to_thread.run_sync(claim_place, owner, url)
    await db.write(partial(set_place, url=url))


def _verify_given(clock: object, faults: object) -> None:
    if clock is not None and not isinstance(clock, Clock):
        raise invalid_argument(
            "clock", clock, "it must be an eventproc.base.clock.Clock, or None for the machine's"
        )
    check_instance(Faults, "faults", faults, "it must be an eventproc.store.faults.Faults")
