"""The commands on key-value tables: each a function that answers, and says whether the answer is a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import KeyVersion, Message, WireEntry
from eventproc.store import tables
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument, NotFound, VersionConflict
from eventproc.store.tables import TableEntry

PAGE_ENTRIES_MAX: Final = 1_000
"""Entries of one page."""

Answer: TypeAlias = Callable[[Database, Any], Awaitable[tuple[Message, bool]]]


async def _create(db: Database, command: c.CreateTableSegment) -> tuple[Message, bool]:
    name = command.segment
    if not 0 <= command.key_length <= tables.KEY_BYTES_MAX:
        reason = f"keys have at most {tables.KEY_BYTES_MAX:,} bytes"
        return _invalid(command, invalid_argument("length of keys", command.key_length, reason)), True
    try:
        if await db.write(partial(tables.create_table, name=name, key_length=command.key_length)):
            return c.SegmentCreated(command.request_id, name), False
    except InvalidArgument as why:
        return _invalid(command, why), True
    return c.SegmentAlreadyExists(command.request_id, name, ""), False


async def _delete(db: Database, command: c.DeleteTableSegment) -> tuple[Message, bool]:
    def delete(tx: Tx) -> bool:
        table = tables.get_table(tx, command.segment)
        if command.must_be_empty and tables.entries_after(tx, table, b"", 1):
            return False
        tables.delete_table(tx, command.segment)
        return True

    try:
        if await db.write(delete):
            return c.SegmentDeleted(command.request_id, command.segment), False
    except NotFound:
        return _missing(command), True
    return c.TableSegmentNotEmpty(command.request_id, command.segment, ""), False


async def _describe(db: Database, command: c.GetTableSegmentInfo) -> tuple[Message, bool]:
    def look(tx: Tx) -> Message:
        table = tables.get_table(tx, command.segment)
        count = tables.count_entries(tx, table)
        return c.TableSegmentInfo(command.request_id, table.name, 0, table.tail, count, table.key_length)

    return await _reading(db, command, look)


async def _update(db: Database, command: c.UpdateTableEntries) -> tuple[Message, bool]:
    entries = [TableEntry(each.key, each.value, each.version) for each in command.entries]

    def write(tx: Tx) -> Message:
        versions = tables.update_entries(tx, command.segment, entries)
        return c.TableEntriesUpdated(command.request_id, tuple(versions))

    return await _writing(db, command, write)


async def _remove(db: Database, command: c.RemoveTableKeys) -> tuple[Message, bool]:
    keys = [(each.key, each.version) for each in command.keys]

    def write(tx: Tx) -> Message:
        tables.remove_entries(tx, command.segment, keys)
        return c.TableKeysRemoved(command.request_id, command.segment)

    return await _writing(db, command, write)


async def _writing(
    db: Database, command: c.UpdateTableEntries | c.RemoveTableKeys, write: Callable[[Tx], Message]
) -> tuple[Message, bool]:
    """Write if the table ends where the command says, -1 for anywhere."""
    name, expected = command.segment, command.table_offset

    def write_at_offset(tx: Tx) -> Message:
        tail = tables.get_table(tx, name).tail
        if expected not in (-1, tail):
            return c.SegmentIsTruncated(command.request_id, name, tail, "", expected)
        return write(tx)

    try:
        return await db.write(write_at_offset), False
    except InvalidArgument as why:
        return _invalid(command, why), True
    except VersionConflict:  # usual: readers of a group race for its segments
        return c.TableKeyBadVersion(command.request_id, command.segment, ""), False
    except NotFound as why:
        if why.kind == "table":
            return _missing(command), True
        return c.TableKeyDoesNotExist(command.request_id, command.segment, ""), False


async def _read(db: Database, command: c.ReadTable) -> tuple[Message, bool]:
    def look(tx: Tx) -> Message:
        table = tables.get_table(tx, command.segment)
        found = tables.get_entries(tx, table, [each.key for each in command.keys])
        return c.TableRead(command.request_id, command.segment, _entries(found))

    return await _reading(db, command, look)


async def _read_keys(db: Database, command: c.ReadTableKeys) -> tuple[Message, bool]:
    def look(tx: Tx) -> Message:
        found = _page(tx, command.segment, command.continuation, command.count)
        keys = tuple([KeyVersion(each.key, each.version) for each in found])
        return c.TableKeysRead(command.request_id, command.segment, keys, _last(found, command.continuation))

    return await _reading(db, command, look)


async def _read_entries(db: Database, command: c.ReadTableEntries) -> tuple[Message, bool]:
    def look(tx: Tx) -> Message:
        found = _page(tx, command.segment, command.continuation, command.count)
        after = _last(found, command.continuation)
        return c.TableEntriesRead(command.request_id, command.segment, _entries(found), after)

    return await _reading(db, command, look)


async def _read_delta(db: Database, command: c.ReadTableEntriesDelta) -> tuple[Message, bool]:
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

    return await _reading(db, command, look)


async def _reading(db: Database, command: Any, look: Callable[[Tx], Message]) -> tuple[Message, bool]:
    try:
        return await db.read(look), False
    except InvalidArgument as why:
        return _invalid(command, why), True
    except NotFound:
        return _missing(command), True


def _page(tx: Tx, name: str, after: bytes, count: int) -> list[TableEntry]:
    return tables.entries_after(tx, tables.get_table(tx, name), after, _count(count))


def _count(count: int) -> int:
    return min(max(count, 1), PAGE_ENTRIES_MAX)


def _entries(found: list[TableEntry]) -> tuple[WireEntry, ...]:
    return tuple([WireEntry(each.key, each.version, each.value) for each in found])


def _last(found: list[TableEntry], before: bytes) -> bytes:
    return found[-1].key if found else before


def _missing(command: Any) -> Message:
    return c.NoSuchSegment(command.request_id, command.segment, "", -1)


def _invalid(command: Any, why: InvalidArgument) -> Message:
    return c.ErrorMessage(command.request_id, command.segment, str(why), c.ILLEGAL_ARGUMENT)


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
