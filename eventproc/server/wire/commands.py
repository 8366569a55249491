"""Every command of the segment store's protocol that this server receives or sends.

Names, types and order of fields are Pravega's. Commands that only servers and administrators exchange are left out, and
are answered like unknown ones.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from eventproc.server.wire.codec import Attribute, Encoding, KeyVersion, Message, WireEntry, message

I32: TypeAlias = Annotated[int, Encoding("i32")]
I64: TypeAlias = Annotated[int, Encoding("i64")]
U8: TypeAlias = Annotated[int, Encoding("u8")]
Flag: TypeAlias = Annotated[bool, Encoding("flag")]
Text: TypeAlias = Annotated[str, Encoding("text")]
Uuid: TypeAlias = Annotated[bytes, Encoding("uuid")]
Block: TypeAlias = Annotated[bytes, Encoding("block")]
Rest: TypeAlias = Annotated[bytes, Encoding("rest")]
EventBytes: TypeAlias = Annotated[bytes, Encoding("event")]
Keys: TypeAlias = Annotated[tuple[KeyVersion, ...], Encoding("key", True)]
Entries: TypeAlias = Annotated[tuple[WireEntry, ...], Encoding("entry", True)]
Versions: TypeAlias = Annotated[tuple[int, ...], Encoding("i64", True)]
Attributes: TypeAlias = Annotated[tuple[Attribute, ...], Encoding("attribute", True)]

NO_EVENT_NUMBER: Final = -(2**63)
"""Last event number of a writer that has none."""

NO_VALUE: Final = NO_EVENT_NUMBER
"""Value of an attribute that was never set."""

REPLACE_IF_EQUALS: Final = 4
"""Kind of an `Attribute` of a merge: the new value replaces the old one, which it names."""

ILLEGAL_ARGUMENT: Final = 0
"""Code of an `ErrorMessage` about a command that cannot succeed."""

TOKEN_REFUSED: Final = 0
"""Code of an `AuthTokenCheckFailed` that no other token of the same user changes."""

TOKEN_EXPIRED: Final = 1
"""Code of an `AuthTokenCheckFailed` after which the client asks for another token."""


@message(-127)
class Hello(Message):
    """The first frame in both directions: the versions that its sender knows."""

    high: I32
    low: I32


@message(-1)
class Padding(Message):
    """Fills the end of an append block."""

    data: Rest


@message(-2)
class PartialEvent(Message):
    """The beginning of an event, at the end of an append block."""

    data: Rest


@message(1)
class SetupAppend(Message):
    """Asks for the last event number of a writer on a segment; its blocks follow."""

    request_id: I64
    writer: Uuid
    segment: Text
    token: Text = ""


@message(2)
class AppendSetup(Message):
    """Answers `SetupAppend`."""

    request_id: I64
    segment: Text
    writer: Uuid
    last_event_number: I64


@message(3)
class AppendBlock(Message):
    """Events of a writer, to be completed by `AppendBlockEnd`."""

    writer: Uuid
    data: Rest


@message(4)
class AppendBlockEnd(Message):
    """Ends a block of events, or is one alone."""

    writer: Uuid
    size_of_whole_events: I32
    data: Block
    event_count: I32
    last_event_number: I64
    request_id: I64 = 0


@message(5)
class ConditionalAppend(Message):
    """One event, to be appended only at this offset."""

    writer: Uuid
    event_number: I64
    expected_offset: I64
    event: EventBytes
    request_id: I64 = 0


@message(89)
class ConditionalBlockEnd(Message):
    """Bytes, to be appended only at this offset."""

    writer: Uuid
    event_number: I64
    expected_offset: I64
    data: Block
    request_id: I64


@message(7)
class DataAppended(Message):
    """Events are durable."""

    writer: Uuid
    event_number: I64
    previous_event_number: I64
    request_id: I64
    offset: I64


@message(8)
class ConditionalCheckFailed(Message):
    """The segment does not end at the expected offset."""

    writer: Uuid
    event_number: I64
    request_id: I64


@message(9)
class ReadSegment(Message):
    """Asks for bytes from an offset on; waits at the tail."""

    segment: Text
    offset: I64
    suggested_length: I32
    token: Text = ""
    request_id: I64 = 0


@message(10)
class SegmentRead(Message):
    """Bytes of a segment."""

    segment: Text
    offset: I64
    at_tail: Flag
    end_of_segment: Flag
    data: Block
    request_id: I64


@message(11)
class GetStreamSegmentInfo(Message):
    """Asks how far a segment goes."""

    request_id: I64
    segment: Text
    token: Text = ""


@message(12)
class StreamSegmentInfo(Message):
    """How far a segment goes."""

    request_id: I64
    segment: Text
    exists: Flag
    is_sealed: Flag
    is_deleted: Flag
    last_modified: I64
    write_offset: I64
    start_offset: I64


@message(21)
class SegmentCreated(Message):
    """A segment was created."""

    request_id: I64
    segment: Text


@message(31)
class SegmentDeleted(Message):
    """A segment was deleted."""

    request_id: I64
    segment: Text


@message(34)
class GetSegmentAttribute(Message):
    """Asks for the value of an attribute."""

    request_id: I64
    segment: Text
    attribute: Uuid
    token: Text = ""


@message(35)
class SegmentAttribute(Message):
    """The value of an attribute, NO_VALUE if it was never set."""

    request_id: I64
    value: I64


@message(36)
class UpdateSegmentAttribute(Message):
    """Asks to set an attribute if it has the expected value."""

    request_id: I64
    segment: Text
    attribute: Uuid
    value: I64
    expected: I64
    token: Text = ""


@message(37)
class SegmentAttributeUpdated(Message):
    """Whether an attribute had the expected value. A merge whose attribute has another one is refused with it."""

    request_id: I64
    is_updated: Flag


@message(38)
class TruncateSegment(Message):
    """Asks to drop the bytes before an offset."""

    request_id: I64
    segment: Text
    offset: I64
    token: Text = ""


@message(39)
class SegmentTruncated(Message):
    """The bytes are no longer readable."""

    request_id: I64
    segment: Text


@message(40)
class CreateTransientSegment(Message):
    """Asks for a segment that lives as long as the connection, for a large event."""

    request_id: I64
    writer: Uuid
    parent: Text
    token: Text = ""


@message(50)
class WrongHost(Message):
    """Another process serves the segment; `correct_host` is its HOST:PORT. The client asks the controller again."""

    request_id: I64
    segment: Text
    correct_host: Text
    trace: Text


@message(51)
class SegmentIsSealed(Message):
    """The segment takes no more events."""

    request_id: I64
    segment: Text
    trace: Text
    offset: I64


@message(52)
class SegmentAlreadyExists(Message):
    """A segment of that name exists."""

    request_id: I64
    segment: Text
    trace: Text


@message(53)
class NoSuchSegment(Message):
    """No segment of that name exists."""

    request_id: I64
    segment: Text
    trace: Text
    offset: I64


@message(55)
class InvalidEventNumber(Message):
    """The writer's event number is not the next one; the connection ends."""

    writer: Uuid
    request_id: I64
    trace: Text
    event_number: I64


@message(56)
class SegmentIsTruncated(Message):
    """The bytes were truncated."""

    request_id: I64
    segment: Text
    start_offset: I64
    trace: Text
    offset: I64


@message(57)
class OperationUnsupported(Message):
    """This server does not serve that command."""

    request_id: I64
    operation: Text
    trace: Text


@message(58)
class MergeSegments(Message):
    """Asks to append all of a transient segment to its parent."""

    request_id: I64
    target: Text
    source: Text
    token: Text = ""
    attributes: Attributes = ()


@message(59)
class SegmentsMerged(Message):
    """The segments were merged."""

    request_id: I64
    target: Text
    source: Text
    offset: I64


@message(60)
class AuthTokenCheckFailed(Message):
    """The token of a command does not allow it."""

    request_id: I64
    trace: Text
    code: I32


@message(61)
class ErrorMessage(Message):
    """Something else went wrong."""

    request_id: I64
    segment: Text
    text: Text
    code: I32


@message(68)
class GetTableSegmentInfo(Message):
    """Asks how large a table is."""

    request_id: I64
    segment: Text
    token: Text = ""


@message(69)
class TableSegmentInfo(Message):
    """How large a table is."""

    request_id: I64
    segment: Text
    start: I64
    length: I64
    entry_count: I64
    key_length: I32


@message(70)
class CreateTableSegment(Message):
    """Asks for a new table."""

    request_id: I64
    segment: Text
    token: Text = ""
    is_sorted: Flag = False
    key_length: I32 = 0
    rollover_bytes: I64 = 0


@message(71)
class DeleteTableSegment(Message):
    """Asks to delete a table."""

    request_id: I64
    segment: Text
    must_be_empty: Flag
    token: Text = ""


@message(74)
class UpdateTableEntries(Message):
    """Asks to write entries, all or none."""

    request_id: I64
    segment: Text
    token: Text
    entries: Entries
    table_offset: I64 = -1


@message(75)
class TableEntriesUpdated(Message):
    """The entries were written, and have these versions."""

    request_id: I64
    versions: Versions


@message(76)
class RemoveTableKeys(Message):
    """Asks to remove keys, all or none."""

    request_id: I64
    segment: Text
    token: Text
    keys: Keys
    table_offset: I64 = -1


@message(77)
class TableKeysRemoved(Message):
    """The keys were removed."""

    request_id: I64
    segment: Text


@message(78)
class ReadTable(Message):
    """Asks for the entries of keys."""

    request_id: I64
    segment: Text
    token: Text
    keys: Keys


@message(79)
class TableRead(Message):
    """The entries of the keys, in their order."""

    request_id: I64
    segment: Text
    entries: Entries


@message(80)
class TableSegmentNotEmpty(Message):
    """The table has entries, and was not deleted."""

    request_id: I64
    segment: Text
    trace: Text


@message(81)
class TableKeyDoesNotExist(Message):
    """A key that should have a version is absent."""

    request_id: I64
    segment: Text
    trace: Text


@message(82)
class TableKeyBadVersion(Message):
    """A key has another version than expected."""

    request_id: I64
    segment: Text
    trace: Text


@message(83)
class ReadTableKeys(Message):
    """Asks for keys; `continuation` is the last key of the page before."""

    request_id: I64
    segment: Text
    token: Text
    count: I32
    continuation: Block


@message(84)
class TableKeysRead(Message):
    """A page of keys."""

    request_id: I64
    segment: Text
    keys: Keys
    continuation: Block


@message(85)
class ReadTableEntries(Message):
    """Asks for entries; `continuation` is the last key of the page before."""

    request_id: I64
    segment: Text
    token: Text
    count: I32
    continuation: Block


@message(86)
class TableEntriesRead(Message):
    """A page of entries."""

    request_id: I64
    segment: Text
    entries: Entries
    continuation: Block


@message(88)
class ReadTableEntriesDelta(Message):
    """Asks for the entries that were written from a position on."""

    request_id: I64
    segment: Text
    token: Text
    position: I64
    count: I32


@message(87)
class TableEntriesDeltaRead(Message):
    """A page of entries in the order of writing."""

    request_id: I64
    segment: Text
    entries: Entries
    should_clear: Flag
    reached_end: Flag
    position: I64


@message(100)
class KeepAlive(Message):
    """Keeps the connection in use; not answered."""
