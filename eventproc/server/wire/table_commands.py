"""The commands on key-value tables: each a function that answers. Their NotFound and InvalidArgument are refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import KeyVersion, Message, WireEntry
from eventproc.store import tables
from eventproc.store.database import Database, Tx
from eventproc.store.key_value_tables import table_of_partition
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotFound, VersionConflict
from eventproc.store.tables import TableEntry

PAGE_ENTRIES_MAX: Final = 1_000
"""Entries of one page."""

Answer: TypeAlias = Callable[[Database, Any], Awaitable[Message]]


async def _create(db: Database, command: c.CreateTableSegment) -> Message:
    name = command.segment
    if not 0 <= command.key_length <= tables.KEY_BYTES_MAX:
        reason = f"keys have at most {tables.KEY_BYTES_MAX:,} bytes"
        raise invalid_argument("length of keys", command.key_length, reason)
    if await db.write(partial(tables.create_table, name=name, key_length=command.key_length)):
        return c.SegmentCreated(command.request_id, name)
    return c.SegmentAlreadyExists(command.request_id, name, "")


async def _delete(db: Database, command: c.DeleteTableSegment) -> Message:
    def delete(tx: Tx) -> bool:
        table = tables.get_table(tx, command.segment)
        if (owner := table_of_partition(tx, command.segment)) is not None:
            reason = f"it is a partition of the key-value table {owner.name}: delete that with the controller"
            raise invalid_argument("table", command.segment, reason)
        if command.must_be_empty and tables.entries_after(tx, table, b"", 1):
            return False
        tables.delete_table(tx, command.segment)
        return True

    if await db.write(delete):
        return c.SegmentDeleted(command.request_id, command.segment)
    return c.TableSegmentNotEmpty(command.request_id, command.segment, "")


async def _describe(db: Database, command: c.GetTableSegmentInfo) -> Message:
    def look(tx: Tx) -> Message:
        table = tables.get_table(tx, command.segment)
        count = tables.count_entries(tx, table)
        return c.TableSegmentInfo(command.request_id, table.name, 0, table.tail, count, table.key_length)

    return await db.read(look)


async def _update(db: Database, command: c.UpdateTableEntries) -> Message:
    entries = [TableEntry(each.key, each.value, each.version) for each in command.entries]

    def write(tx: Tx) -> Message:
        versions = tables.update_entries(tx, command.segment, entries)
        return c.TableEntriesUpdated(command.request_id, tuple(versions))

    return await _writing(db, command, write)


async def _remove(db: Database, command: c.RemoveTableKeys) -> Message:
    keys = [(each.key, each.version) for each in command.keys]

    def write(tx: Tx) -> Message:
        tables.remove_entries(tx, command.segment, keys)
        return c.TableKeysRemoved(command.request_id, command.segment)

    return await _writing(db, command, write)


async def _writing(
    db: Database, command: c.UpdateTableEntries | c.RemoveTableKeys, write: Callable[[Tx], Message]
) -> Message:
    """Write if the table ends where the command says, -1 for anywhere."""
    name, expected = command.segment, command.table_offset

    def write_at_offset(tx: Tx) -> Message:
        tail = tables.get_table(tx, name).tail
        if expected not in (-1, tail):
            return c.SegmentIsTruncated(command.request_id, name, tail, "", expected)
        return write(tx)

    try:
        return await db.write(write_at_offset)
    except VersionConflict:  # usual: readers of a group race for its segments
        return c.TableKeyBadVersion(command.request_id, command.segment, "")
    except NotFound as why:
        if why.kind == "table":
            raise
        return c.TableKeyDoesNotExist(command.request_id, command.segment, "")


async def _read(db: Database, command: c.ReadTable) -> Message:
    def look(tx: Tx) -> Message:
        table = tables.get_table(tx, command.segment)
        found = tables.get_entries(tx, table, [each.key for each in command.keys])
        return c.TableRead(command.request_id, command.segment, _entries(found))

    return await db.read(look)


async def _read_keys(db: Database, command: c.ReadTableKeys) -> Message:
    def look(tx: Tx) -> Message:
        found = _page(tx, command)
        keys = tuple([KeyVersion(each.key, each.version) for each in found])
        return c.TableKeysRead(command.request_id, command.segment, keys, _last(found))

    return await db.read(look)


async def _read_entries(db: Database, command: c.ReadTableEntries) -> Message:
    def look(tx: Tx) -> Message:
        found = _page(tx, command)
        return c.TableEntriesRead(command.request_id, command.segment, _entries(found), _last(found))

    return await db.read(look)


async def _read_delta(db: Database, command: c.ReadTableEntriesDelta) -> Message:
    def look(tx: Tx) -> Message:
        table = tables.get_table(tx, command.segment)
        delta = tables.entries_since(tx, table, command.position, _count(command.count))
        return c.TableEntriesDeltaRead(
            command.request_id,
            command.segment,
            _entries(list(delta.entries)),
            False,
            delta.reached_end,
            delta.position,
        )

    return await db.read(look)


def _page(tx: Tx, command: c.AsksForPage) -> list[TableEntry]:
    """Return a page of a range of keys. The Java client moves `first_key`; others send the continuation."""
    return tables.entries_after(
        tx,
        tables.get_table(tx, command.segment),
        command.continuation,
        _count(command.count),
        first=command.first_key,
        last=command.last_key,
    )


def _count(count: int) -> int:
    return min(max(count, 1), PAGE_ENTRIES_MAX)


def _entries(found: list[TableEntry]) -> tuple[WireEntry, ...]:
    return tuple([WireEntry(each.key, each.version, each.value) for each in found])


def _last(found: list[TableEntry]) -> bytes:
    """Return the continuation after a page: empty for an empty page, which is the end for clients of before 0.10."""
    return found[-1].key if found else b""


ANSWERS: Final[Mapping[type[Message], Answer]] = MappingProxyType(
    {
        c.CreateTableSegment: _create,
        c.DeleteTableSegment: _delete,
        c.GetTableSegmentInfo: _describe,
        c.UpdateTableEntries: _update,
        c.RemoveTableKeys: _remove,
        c.ReadTable: _read,
        c.ReadTableKeys: _read_keys,
        c.ReadTableEntries: _read_entries,
        c.ReadTableEntriesDelta: _read_delta,
    }
)
"""The function that answers each command."""
