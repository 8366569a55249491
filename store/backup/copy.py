"""Copying a store into an empty one, between a directory and a server in both directions, so that it can be resumed.

The source is only read, except that its tables in the layout of before become Iceberg's. A row of `meta` in the
target says that a copy is under way; until the last transaction deletes it, the target does not open, so that the copy
may take any number of transactions. At the end everything is read once more on both sides and compared. Source:
docs/design/copy.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio.to_thread
import attrs

from eventproc.store.backup.contents import check_copied, forget_outside_readers, read_blocks
from eventproc.store.backup.results import CopyResult
from eventproc.store.backup.rows import (
    Content,
    Key,
    NewStore,
    Range,
    Row,
    Table,
    contents,
    new_store,
    user_tables,
)
from eventproc.store.catalog import list_streams
from eventproc.store.database import COPY, Database, Tx, verify_complete
from eventproc.store.database.standalone import Advance
from eventproc.store.file_store import FileStore
from eventproc.store.ingestion.pointers import has_tables, table_store
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.inspection.database_file import directory_identity, event_files
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import (
    AlreadyExists,
    CorruptRecord,
    DirectoryInUse,
    IllegalTransition,
    NotSupported,
    StoreUnusable,
)
from eventproc.store.schema import advance_identities
from eventproc.store.segments.file_blobs import chunk_files, find_chunk_files
from eventproc.store.thread_work import WorkStopped
from eventproc.store.transactions.decisions import abort_open as abort_open_txns

KEPT: Final = ("blob", "extent")
"""Tables whose rows an interrupted copy leaves to the next one: nearly all bytes of a store. Their rows are unique by
their key only, so that those of before stand in no other row's way."""

PASSES: Final = 3
"""How often all bytes pass: when they are copied, and when both sides are compared."""


async def check_source(
    source: Database, *, to_server: bool, abort_open: bool, leave_sql_tables: bool
) -> tuple[str, ...]:
    """Refuse a source that cannot be copied, before a target is made; return the tables that are left behind.

    Raises DirectoryInUse, IllegalTransition (a transaction is open), NotSupported (tables of users' SQL; to a server
    also published tables, and texts with NUL), StoreUnusable (the source is an unfinished copy).
    """
    source.verify_alone()
    tables = (await new_store()).tables if to_server and source.path is not None else ()

    def check(tx: Tx) -> tuple[str, ...]:
        verify_complete(tx, source.name)
        if not abort_open and (found := tx.execute(_OPEN_TXNS).fetchone()) is not None:
            name = f"transaction {found[1]} of {found[0]} in {source.name}"
            why = IllegalTransition(state="open", event="copy", name=name)
            why.add_note("end it, or abort all open ones in the copy with abort_open (--abort-open)")
            raise why
        users = user_tables(tx)
        if users and not leave_sql_tables:
            remedy = (
                "copy them with other tools, and let leave_sql_tables (--leave-sql-tables) leave them out"
            )
            raise NotSupported(what=f"copying tables of users' SQL ({', '.join(users)})", remedy=remedy)
        for table in tables:
            if (text := table.find_nul(tx)) is not None:
                remedy = (
                    "PostgreSQL stores no NUL character: delete what has this name, or copy to a directory"
                )
                raise NotSupported(what=f"copying {text!r} in table {table.name} to a server", remedy=remedy)
        return tuple(users)

    return await source.read(check)


_OPEN_TXNS: Final = (
    "SELECT stream, id, stream_id FROM txn WHERE finished = 0 AND state = 'open' ORDER BY stream, id"
)


async def verify_no_files(source: Database, target: str) -> None:
    """Raise NotSupported if the source has events or tables in files, for which the target has no place.

    target: its name.
    """
    if await source.read(lambda tx: bool(event_files(tx) or has_tables(tx))):
        what = f"copying events or tables in files to {target}, which has no place for them,"
        remedy = "create it first: open it once with chunks='s3://BUCKET/PREFIX'"
        raise NotSupported(what=what, remedy=remedy)


async def copy_database(
    source: Database, target: Database, *, left_tables: tuple[str, ...], advance: Advance
) -> CopyResult:
    """Copy everything into a target that is new, empty, or an unfinished copy of the same source; compare it.

    left_tables: of users' SQL, for the result. advance: called with the bytes done and all bytes, also from a thread.

    Transactions that are open are aborted in the target. Raises InvalidArgument (both are the same store),
    AlreadyExists (the target is not empty), StoreUnusable (it holds a copy of another store), DirectoryInUse,
    NotSupported (it has no place for chunk files): nothing changed. CorruptRecord (the copy differs), and errors of the
    databases: the target is an unfinished copy, which does not open.
    """
    identity = await source.read(directory_identity)
    if identity == await target.read(directory_identity):
        reason = f"it is the same store as the source {source.name}; name a new or empty one"
        raise invalid_argument("target", target.name, reason)
    if await source.read(has_tables):
        await on_tables(source, lambda _: None)  # those of before get their metadata before rows are copied
    new = await new_store()
    await _begin(source, target, new, identity)
    stop = threading.Event()
    try:
        copying = _Copying(source, target, new.tables, advance, stop)
        return await copying.run(left_tables)
    finally:
        stop.set()  # a read of a cancelled call still runs on its thread


async def _begin(source: Database, target: Database, new: NewStore, identity: str) -> None:
    """Mark the target as an unfinished copy, and empty it, except for what an earlier copy of this source left."""
    if await target.read(find_chunk_files) is None:
        await verify_no_files(source, target.name)

    def mark(tx: Tx) -> bool:
        found = tx.execute("SELECT value FROM meta WHERE key = ?", (COPY,)).fetchone()
        if found is not None and found[0] != identity:
            reason = "holds an unfinished copy of another store; remove it, or name another target"
            raise StoreUnusable(path=target.name, reason=reason)
        if found is None and new.find_more(tx) is not None:
            remedy = "it is not empty; name a new or empty directory, or another schema"
            raise AlreadyExists(kind="store", name=target.name, remedy=remedy)
        if found is None:
            tx.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (COPY, identity))
        return found is None

    def unmark(tx: Tx) -> None:
        tx.execute("DELETE FROM meta WHERE key = ?", (COPY,))

    def empty(tx: Tx) -> None:
        for table in new.tables:
            if table.name not in KEPT:
                table.delete(tx, Range(None, None))

    marked = await target.write(mark)
    try:
        target.verify_alone()  # who opens it from now on finds the mark
    except DirectoryInUse:
        if marked:
            await target.write(unmark)
        raise
    await target.write(empty)


@attrs.define
class _Copying:
    """One run of a copy, with its progress."""

    _source: Database
    _target: Database
    _tables: tuple[Table, ...]
    _advance: Advance
    _stop: threading.Event
    _done: int = 0
    _total: int = 0

    async def run(self, left_tables: tuple[str, ...]) -> CopyResult:
        """Copy, compare and finish."""
        files = await self._source.read(event_files)
        rows_bytes = await self._source.read(lambda tx: sum(each.size(tx) for each in self._tables))
        self._total = PASSES * rows_bytes + sum(each.bytes for each in files)
        for table in self._tables:
            await self._copy_table(table)
        copied = await self._copy_files()
        expected = await self._source.read(partial(contents, tables=self._tables, read=self._note))
        found = await self._target.read(partial(contents, tables=self._tables, read=self._note))
        self._compare(expected, found)
        self._target.verify_alone()  # an opening of a server shows within a second
        await self._target.write(self._finish)
        streams = {each.stream_id for each in await self._target.read(list_streams)}
        segments = [each for each in found.values() if each.stream_id in streams]
        return CopyResult(
            source=self._source.name,
            target=self._target.name,
            streams=len(streams),
            events=sum(each.count for each in segments),
            bytes=sum(each.size for each in segments),
            files=copied,
            left_tables=left_tables,
        )

    def _note(self, size: int) -> None:
        """Count bytes that have passed."""
        if self._stop.is_set():
            raise WorkStopped
        self._done = min(self._done + size, self._total)
        self._advance(self._done, self._total)

    async def _copy_table(self, table: Table) -> None:
        after: Key | None = None
        while (part := await self._source.read(partial(table.batch, after=after))) is not None:
            if table.name not in KEPT or not await self._is_copied(table, part):
                rows = await self._source.read(partial(table.select, part=part))
                await self._target.write(partial(_replace, table, part, rows), size_bytes=part.size)
            self._note(part.size)
            after = part.end
        await self._target.write(partial(table.delete, part=Range(after, None)))

    async def _is_copied(self, table: Table, part: Range) -> bool:
        """Return whether an interrupted copy left the rows of a range."""
        outline = partial(table.select, part=part, columns=table.outline)
        return await self._target.read(outline) == await self._source.read(outline)

    async def _copy_files(self) -> int:
        """Copy the chunk files with events, and the files of tables, that the target lacks; return their number."""
        files = [_File(each.path, each.bytes, each.checksum) for each in await self._source.read(event_files)]
        if files:
            source, target = await self._source.read(chunk_files), await self._target.read(chunk_files)
            await self._copy_missing(source, target, files)
        tables: list[_File] = []
        if await self._source.read(has_tables):
            source, target = await self._source.read(table_store), await self._target.read(table_store)
            found = await on_tables(self._source, lambda each: each.contents())
            sizes = [(path, source.size(path) if size is None else size) for path, size in found]
            tables = [_File(path, size) for path, size in sizes if size is not None]
            await self._copy_missing(source, target, tables)
        return len(files) + len(tables)

    async def _copy_missing(self, source: FileStore, target: FileStore, files: list[_File]) -> None:
        def copy_missing() -> None:
            for each in files:
                if target.size(each.path) is not None:  # an interrupted copy made it
                    if _is_copied(source, target, each, self._note):
                        continue
                    target.delete(each.path)
                _copy_file(source, target, each, self._note)

        await anyio.to_thread.run_sync(copy_missing, abandon_on_cancel=True)

    def _compare(self, expected: dict[str, Content], found: dict[str, Content]) -> None:
        for name in {**expected, **found}:
            if (before := expected.get(name)) != (after := found.get(name)):
                raise CorruptRecord(
                    key=f"{name} in {self._target.name}",
                    reason=f"has {_shown(after)}, and in {self._source.name} {_shown(before)}",
                    remedy="remove the target, and copy again while no process uses the source",
                )

    def _finish(self, tx: Tx) -> None:
        """End what the copy has of processes that do not use it, and let it be opened."""
        for stream, stream_id in {(each[0], each[2]) for each in tx.execute(_OPEN_TXNS).fetchall()}:
            abort_open_txns(tx, stream, stream_id, reason="the store was copied")
        forget_outside_readers(tx)
        if tx.on_server:
            advance_identities(tx, [each.name for each in self._tables if each.has_identity])
        tx.execute("DELETE FROM meta WHERE key = ?", (COPY,))


def _replace(table: Table, part: Range, rows: list[Row], tx: Tx) -> None:
    table.delete(tx, part)
    table.insert(tx, rows)


@attrs.frozen
class _File:
    """A file beside a database. checksum: CRC-32; None if it is not known."""

    path: str
    bytes: int
    checksum: int | None = None


def _is_copied(source: FileStore, target: FileStore, file: _File, on_block: Callable[[int], None]) -> bool:
    """Return whether an existing file is the copy, and make that durable: a loss of power may have damaged it."""
    found = read_blocks(target.blocks(file.path), on_block, lambda _: None)
    checksum = file.checksum
    if checksum is None:
        _, checksum = read_blocks(source.blocks(file.path), on_block, lambda _: None)
    if found != (file.bytes, checksum):
        return False
    target.sync(file.path)
    return True


def _copy_file(source: FileStore, target: FileStore, file: _File, on_block: Callable[[int], None]) -> None:
    copy = target.create(file.path)
    try:
        size, checksum = read_blocks(source.blocks(file.path), on_block, copy.write)
        expected = checksum if file.checksum is None else file.checksum
        check_copied(source.show(file.path), (size, checksum), (file.bytes, expected))
        copy.finish()
    except FileNotFoundError as why:
        reason = "file not found, but rows of the database name it"
        raise CorruptRecord(key=f"file {source.show(file.path)}", reason=reason) from why
    finally:
        copy.abandon()
    target.sync(file.path)


def _shown(content: Content | None) -> str:
    if content is None:
        return "nothing"
    what = "rows" if content.stream_id is None else f"events, {content.size} bytes"
    return f"{content.count} {what}, hash {content.digest.hex()[:8]}"
