"""Opening a directory, or a system in memory."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from eventproc.runtime.system import Eventproc, begin_system
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.clock import Clock
from eventproc.store.database import Durability, start_database
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.argument_checks import check_instance, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.openable import Opening
from eventproc.store.segments.chunks_link import check_chunks_folder, link_chunks_folder

if TYPE_CHECKING:
    from eventproc.store.database.memory_database import MemoryStore


def open(
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> Opening[Eventproc]:
    """Open a directory, which any number of processes of this machine may share; asyncio only.

    `async with open(path) as ep:` closes it at the end of the block. `ep = await open(path)` leaves it open until
    `await ep.close()`. The block may begin and end in different tasks of one event loop.

    Args:
        path: the directory.
        durability: of a new directory: "fsync" (default; acknowledged means synced) or "os" (survives the death of
            processes). An existing directory keeps its own.
        create: make the directory if it is missing or empty. Default: True.
        host: whether this instance may run the internal processors. One that may not waits for another that does.
        chunks: a folder for the files of Spark and of moved events, new or empty: shared by the machines of a cluster,
            which see it at the same path. The directory's folder "chunks" becomes a link to it. Later openings may
            leave it out. None (default): the files lie in the directory.
        clock: source of time, randomness and ids, for tests. None (default): the machine's.
        faults: points at which a test lets the process die. Default: none.

    Raises:
        StoreMissing: the directory does not exist, and `create` is False.
        StoreUnusable: the directory is not eventproc's, newer, read-only, or on a network file system.
        NotSupported: this platform lacks something that eventproc needs.
        InvalidArgument: an option is not valid, or `durability` differs from the directory's.
        InvalidArgument: opening; `chunks` is not a folder of its own, or the directory has such files elsewhere.
            Nothing changed.
        OSError: opening; the folder `chunks` or the link to it cannot be made.
    """
    _verify_given(clock, faults)
    for what, given in (("directory", path), ("folder of chunk files", path if chunks is None else chunks)):
        if not isinstance(cast("object", given), (str, PathLike)):
            raise invalid_argument(what, given, "it must be a path, as str or pathlib.Path")
    if str(path) in ("memory", ":memory:"):
        raise InvalidArgument(
            what="directory", value=str(path), reason="use eventproc.open_memory() for memory"
        )
    chosen = None if durability is None else _durability(durability)

    folder = None if chunks is None else Path(chunks).absolute()

    async def start() -> Eventproc:
        to_link = folder is not None and check_chunks_folder(Path(path), folder)  # before anything is made
        db = await start_database(
            Path(path),
            migrations=SYSTEM_MIGRATIONS,
            durability=chosen,
            create=create,
            clock=clock,
            faults=faults,
        )
        if folder is not None and to_link:
            try:
                await anyio.to_thread.run_sync(link_chunks_folder, Path(path), folder)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await db.close()
                raise
        return await begin_system(db, host=host)

    return Opening(f"the directory {str(path)!r}", start)


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


def _verify_given(clock: object, faults: object) -> None:
    if clock is not None and not isinstance(clock, Clock):
        raise invalid_argument(
            "clock", clock, "it must be an eventproc.store.clock.Clock, or None for the machine's"
        )
    check_instance(Faults, "faults", faults, "it must be an eventproc.store.faults.Faults")


def _durability(text: Durability | str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        known = " or ".join(repr(each.value) for each in Durability)
        raise InvalidArgument(what="durability", value=str(text), reason=f"it must be {known}") from None
