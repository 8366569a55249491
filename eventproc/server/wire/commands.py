"""Every command of the segment store's protocol that this server receives or sends.

Names, types and order of fields are Pravega's. Commands that only servers and administrators exchange are left out, and
are answered like unknown ones.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from eventproc.server.wire import codec
from eventproc.server.wire.codec import Attribute, KeyVersion, Message, WireEntry, list_of, message

I32: TypeAlias = Annotated[int, codec.I32]
I64: TypeAlias = Annotated[int, codec.I64]
Flag: TypeAlias = Annotated[bool, codec.FLAG]
Text: TypeAlias = Annotated[str, codec.TEXT]
Uuid: TypeAlias = Annotated[bytes, codec.UUID]
Block: TypeAlias = Annotated[bytes, codec.BLOCK]
Rest: TypeAlias = Annotated[bytes, codec.REST]
EventBytes: TypeAlias = Annotated[bytes, codec.EVENT]
Keys: TypeAlias = Annotated[tuple[KeyVersion, ...], list_of(codec.KEY)]
Entries: TypeAlias = Annotated[tuple[WireEntry, ...], list_of(codec.ENTRY)]
Versions: TypeAlias = Annotated[tuple[int, ...], list_of(codec.I64)]
Attributes: TypeAlias = Annotated[tuple[Attribute, ...], list_of(codec.ATTRIBUTE)]

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


@message()
class OfSegment(Message):
    """What begins with the number of a request and the name of its segment."""

    request_id: I64
    segment: Text


@message()
class AsksOfSegment(OfSegment):
    """A request that needs a token."""

    token: Text


@message()
class RefusedSegment(OfSegment):
    """A refusal."""

    trace: Text


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
class AppendSetup(OfSegment):
    """Answers `SetupAppend`."""

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
class GetStreamSegmentInfo(OfSegment):
    """Asks how far a segment goes."""

    token: Text = ""


@message(12)
class StreamSegmentInfo(OfSegment):
    """How far a segment goes."""

    exists: Flag
    is_sealed: Flag
    is_deleted: Flag
    last_modified: I64
    write_offset: I64
    start_offset: I64


@message(21)
class SegmentCreated(OfSegment):
    """A segment was created."""


@message(31)
class SegmentDeleted(OfSegment):
    """A segment was deleted."""


@message(34)
class GetSegmentAttribute(OfSegment):
    """Asks for the value of an attribute."""

    attribute: Uuid
    token: Text = ""


@message(35)
class SegmentAttribute(Message):
    """The value of an attribute, NO_VALUE if it was never set."""

    request_id: I64
    value: I64


@message(36)
class UpdateSegmentAttribute(OfSegment):
    """Asks to set an attribute if it has the expected value."""

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
class TruncateSegment(OfSegment):
    """Asks to drop the bytes before an offset."""

    offset: I64
    token: Text = ""


@message(39)
class SegmentTruncated(OfSegment):
    """The bytes are no longer readable."""


@message(40)
class CreateTransientSegment(Message):
    """Asks for a segment that lives as long as the connection, for a large event."""

    request_id: I64
    writer: Uuid
    parent: Text
    token: Text = ""


@message(50)
class WrongHost(OfSegment):
    """Another process serves the segment; `correct_host` is its HOST:PORT. The client asks the controller again."""

    correct_host: Text
    trace: Text


@message(51)
class SegmentIsSealed(RefusedSegment):
    """The segment takes no more events."""

    offset: I64


@message(52)
class SegmentAlreadyExists(RefusedSegment):
    """A segment of that name exists."""


@message(53)
class NoSuchSegment(RefusedSegment):
    """No segment of that name exists."""

    offset: I64


@message(56)
class SegmentIsTruncated(OfSegment):
    """The bytes were truncated."""

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
class ErrorMessage(OfSegment):
    """Something else went wrong."""

    text: Text
    code: I32


@message(68)
class GetTableSegmentInfo(OfSegment):
    """Asks how large a table is."""

    token: Text = ""


@message(69)
class TableSegmentInfo(OfSegment):
    """How large a table is."""

    start: I64
    length: I64
    entry_count: I64
    key_length: I32


@message(70)
class CreateTableSegment(OfSegment):
    """Asks for a new table."""

    token: Text = ""
    is_sorted: Flag = False
    key_length: I32 = 0
    rollover_bytes: I64 = 0


@message(71)
class DeleteTableSegment(OfSegment):
    """Asks to delete a table."""

    must_be_empty: Flag
    token: Text = ""


@message(74)
class UpdateTableEntries(AsksOfSegment):
    """Asks to write entries, all or none."""

    entries: Entries
    table_offset: I64 = -1


@message(75)
class TableEntriesUpdated(Message):
    """The entries were written, and have these versions."""

    request_id: I64
    versions: Versions


@message(76)
class RemoveTableKeys(AsksOfSegment):
    """Asks to remove keys, all or none."""

    keys: Keys
    table_offset: I64 = -1


@message(77)
class TableKeysRemoved(OfSegment):
    """The keys were removed."""


@message(78)
class ReadTable(AsksOfSegment):
    """Asks for the entries of keys."""

    keys: Keys


@message(79)
class TableRead(OfSegment):
    """The entries of the keys, in their order."""

    entries: Entries


@message(80)
class TableSegmentNotEmpty(RefusedSegment):
    """The table has entries, and was not deleted."""


@message(81)
class TableKeyDoesNotExist(RefusedSegment):
    """A key that should have a version is absent."""


@message(82)
class TableKeyBadVersion(RefusedSegment):
    """A key has another version than expected."""


@message()
class AsksForPage(AsksOfSegment):
    """Asks for a page; `continuation` is the last key of the one before. Clients of before 0.10 send a prefix."""

    count: I32
    continuation: Block
    prefix: Block = b""
    first_key: Block = b""
    last_key: Block = b""


@message(83)
class ReadTableKeys(AsksForPage):
    """Asks for keys."""


@message(84)
class TableKeysRead(OfSegment):
    """A page of keys."""

    keys: Keys
    continuation: Block


@message(85)
class ReadTableEntries(AsksForPage):
    """Asks for entries."""


@message(86)
class TableEntriesRead(OfSegment):
    """A page of entries."""

    entries: Entries
    continuation: Block


@message(88)
class ReadTableEntriesDelta(AsksOfSegment):
    """Asks for the entries that were written from a position on."""

    position: I64
    count: I32


@message(87)
class TableEntriesDeltaRead(OfSegment):
    """A page of entries in the order of writing."""

    entries: Entries
    should_clear: Flag
    reached_end: Flag
    position: I64


@message(100)
class KeepAlive(Message):
    """Keeps the connection in use; not answered."""
