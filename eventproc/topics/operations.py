"""Changes of a topic that are planned from what it is when they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs
from typing_extensions import Unpack

from eventproc.store.catalog import StreamRecord, current_epoch, get_topic
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.partitions import Router, growth, partition_ids
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import from_json
from eventproc.store.segments import known_state
from eventproc.store.segments.offsets import offset_after, offset_at_time
from eventproc.streams.operations import Scaling, TruncateTo
from eventproc.streams.request_calls import WAIT_MS, ChangeOptions, Patience, request_part_id, run_request
from eventproc.workflows.requests import (
    PRESENT,
    DeleteStream,
    OfStream,
    SealStream,
    TruncateStream,
    stream_of,
)


def _topic_of(tx: Tx, change: OfStream) -> StreamRecord:
    """Return the topic that a change is of. Raises NotFound for the name of another stream, and as `stream_of`."""
    if change.stream_id == PRESENT:
        get_topic(tx, change.stream)
    return stream_of(tx, change)


def _more(count: int) -> int:
    return check_int("partitions to add", count, least=1)


@attrs.frozen
class AddPartitions(Scaling):
    """Add partitions; the reserve of the topic is replaced. Planning raises InvalidArgument."""

    count: int = attrs.field(converter=_more)

    def replaced(self, epoch: Epoch) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
        """See `Scaling`."""
        return growth(epoch, count=self.count)


@attrs.frozen
class TruncatePartitions(OfStream):
    """Remove the oldest events of all partitions, or of one, up to exactly one limit.

    partition: its number; None: all. before_ms: what was appended before this wall time. before_number: the events of
    the partition before this number. cut: all events before a cut, head, tail or a time, as `TruncateTo` takes it.
    Making one raises InvalidArgument.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = TruncateStream.kind
    partition: int | None = None
    before_ms: int | None = None
    before_number: int | None = None
    cut: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse limits that contradict each other."""
        limits = {"cut": self.cut, "before_ms": self.before_ms, "before_number": self.before_number}
        given = [name for name, value in limits.items() if value is not None]
        if len(given) != 1:
            reason = "give exactly one of cut, before_ms and before_number"
            raise InvalidArgument(what="truncation", value=", ".join(given) or "no limit", reason=reason)
        if self.cut is not None and self.partition is not None:
            reason = "a cut names all partitions; give before_ms or before_number for one"
            raise InvalidArgument(what="partition", value=str(self.partition), reason=reason)
        if self.before_ms is not None:
            check_int("before_ms", self.before_ms, unit="ms")
        elif self.before_number is not None:
            check_int("before_number", self.before_number, least=0)
            if self.partition is None:
                reason = "each partition counts its own events; name the partition"
                raise InvalidArgument(what="before_number", value=str(self.before_number), reason=reason)

    def plan(self, tx: Tx) -> TruncateStream:
        """See `Operation`. Raises NotFound as for `SealTopic`; InvalidArgument: no such partition or limit."""
        found = _topic_of(tx, self)
        if self.cut is not None:
            return TruncateTo(found.name, found.stream_id, self.cut, if_version=self.if_version).plan(tx)
        numbers = None
        if self.partition is not None and self.before_number is not None:
            numbers = {self.partition: self.before_number}
        heads = new_heads(
            *(tx, found),
            partition=self.partition,
            before_ms=self.before_ms,
            before_numbers=numbers,
        )
        return TruncateStream(found.name, found.stream_id, heads, if_version=self.if_version)


@attrs.frozen
class SealTopic(OfStream):
    """Seal a topic. Planning raises NotFound if the name is that of a stream that is not a topic."""

    kind: ClassVar[str] = SealStream.kind

    def plan(self, tx: Tx) -> SealStream:
        """See `Operation`."""
        return SealStream(self.stream, _topic_of(tx, self).stream_id, if_version=self.if_version)


async def delete_topic(db: Database, name: str, stream_id: int, **options: Unpack[ChangeOptions]) -> None:
    """Seal and delete a topic; see `Topic.delete`. A repeated call needs no topic: the first one has deleted it.

    stream_id: its id; PRESENT: that of the topic that has the name. Raises NotFound.
    """
    patience = Patience.of(db, options.get("timeout_ms", WAIT_MS))
    request_id = options.get("request_id")
    options["request_id"] = None if request_id is None else request_part_id(request_id, "seal")
    sealed = await run_request(db, SealTopic(name, stream_id), **options)
    # Of the topic that was sealed: the name may be that of another one since.
    delete = DeleteStream(name, from_json(sealed.body, SealStream).stream_id)
    await run_request(db, delete, request_id=request_id, timeout_ms=patience.remaining_ms(db))


def new_heads(
    tx: Tx,
    topic: StreamRecord,
    *,
    partition: int | None = None,
    before_ms: int | None = None,
    before_numbers: Mapping[int, int] | None = None,
) -> dict[SegmentId, int]:
    """Return the offsets of the cut at which a truncation puts the head: the heads of now, moved where events go.

    partition: the only one to truncate by a time; None: all. before_ms: what `Topic.truncate` says. before_numbers:
    the number that it calls `before_number`, of each partition to truncate.
    Raises InvalidArgument if there is no such partition, or the number lies beyond its end.
    """
    epoch = current_epoch(tx, topic)
    router = Router(epoch)
    chosen = partition_ids(epoch)
    if partition is not None:
        chosen = (router.partition(partition, topic=topic.name),)
    numbers = {
        router.partition(each, topic=topic.name): number for each, number in (before_numbers or {}).items()
    }
    heads = {}
    for segment in epoch.ids:
        state = known_state(tx, topic.stream_id, segment)
        head = state.head
        if segment in chosen and before_ms is not None:
            head = max(head, offset_at_time(tx, topic.stream_id, segment, before_ms))
        elif (before_number := numbers.get(segment)) is not None:
            if before_number > state.tail_number:
                reason = f"partition {number_of(segment)} ends at event {state.tail_number}"
                raise InvalidArgument(what="before_number", value=str(before_number), reason=reason)
            gone = before_number - state.head_number
            head = offset_after(tx, topic.stream_id, segment, head, gone) if gone > 0 else head
        heads[segment] = head
    return heads
