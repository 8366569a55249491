"""What consumers get: the batches that follow, from memory or the database, and the offsets of times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs

from eventproc.server.access.authority import Caller
from eventproc.server.kafka.calls import (
    EpochEnd,
    EpochPlace,
    Fetch,
    FoundOffset,
    ListOffsets,
    OffsetForLeaderEpoch,
    PartitionAnswer,
    TopicPlace,
    WantedPlace,
)
from eventproc.server.kafka.kafka_errors import REFUSALS, KafkaCode, KafkaRefusal, code_of
from eventproc.server.kafka.recent_batches import RecentBatches
from eventproc.server.kafka.record_batches import encode_runs
from eventproc.server.kafka.served_topics import ServedTopic, ServedTopics
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import (
    EventRun,
    SegmentState,
    number_at,
    offset_at_time,
    offset_of_number,
    read,
    segment_state,
)
from eventproc.streams.fetch import watch_stream

FETCH_BYTES_MAX: Final = 8 * 2**20
"""Bytes of one answer, give or take a batch. Clients ask for 50 MiB. Higher: more memory for each connection; lower:
more calls of a consumer of many partitions."""

WAIT_MS_MAX: Final = 30_000
"""How long a consumer may let the server wait for events. Higher: the server notices later that the peer has left."""

LEADER_EPOCH: Final = 0
"""Epoch of the leader of each partition: it never changes."""

LATEST: Final = -1
EARLIEST: Final = -2


class _Partition(NamedTuple):
    """A partition as one transaction finds it."""

    topic: ServedTopic
    segment: SegmentId
    state: SegmentState


@attrs.define
class _Growth:
    """How much has come to some partitions since their records were read, by their tails alone.

    A tail counts payloads, not keys and headers; how large events are with them is known of those that were read.
    """

    _missing_bytes: float = 0
    _event_bytes: float = 0
    _tail_bytes: int = -1
    _tail_number: int = -1

    def note(self, wanted: Sequence[WantedPlace], found: Sequence[_Partition], size: int, least: int) -> None:
        """Note that the partitions have a size from the wanted places on, which is less than the least one."""
        self._tail_bytes, self._tail_number = _tails(found)
        self._missing_bytes = least - size
        self._event_bytes = size / max(self._tail_number - sum(each.offset for each in wanted), 1)

    def may_suffice(self, wanted: Sequence[WantedPlace], found: Sequence[_Partition | Exception]) -> bool:
        """Return whether to read: half of what was missing seems to be there, or a partition is refused."""
        known = [each for each in found if isinstance(each, _Partition)]
        if len(known) < len(found) or any(map(_is_outside, wanted, known)):
            return True
        tail_bytes, tail_number = _tails(known)
        if (events := tail_number - self._tail_number) == 0:
            return False
        grown_bytes = max(tail_bytes - self._tail_bytes, events * self._event_bytes)
        return not self._event_bytes or 2 * grown_bytes >= self._missing_bytes


def _tails(partitions: Sequence[_Partition]) -> tuple[int, int]:
    return sum(each.state.tail for each in partitions), sum(each.state.tail_number for each in partitions)


def _is_outside(wanted: WantedPlace, partition: _Partition) -> bool:
    return not partition.state.head_number <= wanted.offset <= partition.state.tail_number


@attrs.define(eq=False)
class PartitionReader:
    """Reads for one connection. changes: active; it gets the topics to watch. caller: returns the user as it is now."""

    _db: Database
    _topics: ServedTopics
    _recent: RecentBatches
    _changes: Subscription
    _caller: Callable[[], Awaitable[Caller]]
    _watched: set[int] = attrs.field(factory=set, init=False)

    async def fetch(self, call: Fetch, caller: Caller) -> list[PartitionAnswer]:
        """Return what follows in the partitions of a request, after a wait for events if there are too few."""
        until_ms = self._db.clock.monotonic_ms() + min(call.wait_ms, WAIT_MS_MAX)
        bytes_max = max(min(call.bytes_max, FETCH_BYTES_MAX), 1)
        least = min(max(call.bytes_min, 1), bytes_max)
        places = [each.place for each in call.wanted]
        growth = _Growth()
        while True:
            found = await self._db.read(partial(self._find_all, places=places, caller=caller))
            is_new = self._watch(found)
            left_ms = until_ms - self._db.clock.monotonic_ms()
            if is_new or left_ms <= 0 or growth.may_suffice(call.wanted, found):
                answers = await self._collect(call.wanted, found, bytes_max)
                size_bytes = sum(len(each.records) for each in answers)
                refused = any(each.code is not KafkaCode.NONE for each in answers)
                if size_bytes >= least or refused or left_ms <= 0:
                    return answers
                known = [each for each in found if isinstance(each, _Partition)]
                growth.note(call.wanted, known, size_bytes, least)
            if not is_new:  # else an append may have come between the read and the watch
                await self._changes.wait(left_ms)
                caller = await self._caller()  # a grant may have been revoked meanwhile

    def _watch(self, found: Sequence[_Partition | Exception]) -> bool:
        """Watch the topics that were found; return whether one of them was not watched yet."""
        wanted = {each.topic.stream_id for each in found if isinstance(each, _Partition)}
        for stream_id in self._watched - wanted:
            self._changes.discard(watch_stream(stream_id).channel)
        added = wanted - self._watched
        for stream_id in added:
            self._changes.add(watch_stream(stream_id))
        self._watched = wanted
        return bool(added)

    def _find_all(self, tx: Tx, places: Sequence[TopicPlace], caller: Caller) -> list[_Partition | Exception]:
        found: list[_Partition | Exception] = []
        for each in places:
            try:
                found.append(self._find(tx, each, caller))
            except REFUSALS as why:
                found.append(why)
        return found

    def _find(self, tx: Tx, where: TopicPlace, caller: Caller) -> _Partition:
        self._topics.verify(caller, Permission.READ, where.topic)
        topic = self._topics.get(tx, where.topic)
        segment = topic.segment(where)
        if (state := segment_state(tx, topic.stream_id, segment)) is None:
            raise NotFound(kind="partition", name=f"{topic.stream} {where.partition}")
        return _Partition(topic, segment, state)

    async def _collect(
        self, wanted: Sequence[WantedPlace], found: Sequence[_Partition | Exception], bytes_max: int
    ) -> list[PartitionAnswer]:
        """Return what follows in each partition: from memory, else from the database, up to bytes_max in all.

        Only the first batch of an answer may be larger: consumers refuse an answer that is too large.
        """
        answers: list[PartitionAnswer] = []
        is_empty = True
        for each, partition in zip(wanted, found, strict=True):
            if isinstance(partition, Exception):
                answers.append(PartitionAnswer(each.place, code_of(partition)))
                continue
            first, end = partition.state.head_number, partition.state.tail_number
            records, code = b"", KafkaCode.NONE
            if _is_outside(each, partition):
                code = KafkaCode.OFFSET_OUT_OF_RANGE
            elif each.offset < end and bytes_max > 0:
                room = max(min(each.bytes_max, bytes_max), 1)
                records = await self._records(partition, each.offset, room)
                if len(records) > room and not is_empty:
                    # What the answer has no room for, it has none for in other partitions either, most likely.
                    records = b""
                    if room == bytes_max:
                        bytes_max = 0
            is_empty = is_empty and not records
            bytes_max -= len(records)
            answers.append(PartitionAnswer(each.place, code, records, end, first))
        return answers

    async def _records(self, partition: _Partition, offset: int, bytes_max: int) -> bytes:
        topic, segment, _ = partition
        # With a time to live, what was kept may have expired.
        if topic.ttl_ms is None and (kept := self._recent.find(topic.stream_id, segment, offset, bytes_max)):
            return b"".join(kept)
        runs, now_ms = await self._db.read(
            partial(
                _read_from, stream_id=topic.stream_id, segment=segment, number=offset, bytes_max=bytes_max
            )
        )
        batches: list[bytes] = []
        size_bytes = 0
        for batch in encode_runs(runs, topic.ttl_ms, now_ms) if runs else ():
            if batches and size_bytes + len(batch.data) > bytes_max:
                break
            batches.append(batch.data)
            size_bytes += len(batch.data)
        return b"".join(batches)

    async def list_offsets(self, call: ListOffsets, caller: Caller) -> list[FoundOffset]:
        """Return the first events of some times, by the times at which they were appended."""
        return await self._db.read(partial(self._list_offsets, call=call, caller=caller))

    def _list_offsets(self, tx: Tx, call: ListOffsets, caller: Caller) -> list[FoundOffset]:
        found: list[FoundOffset] = []
        for where, time_ms in call.times:
            try:
                found.append(_offset_at(tx, where, self._find(tx, where, caller), time_ms))
            except REFUSALS as why:
                found.append(FoundOffset(where, code_of(why)))
        return found

    async def epoch_ends(self, call: OffsetForLeaderEpoch, caller: Caller) -> list[EpochEnd]:
        """Return where epochs of leaders end."""
        return await self._db.read(partial(self._epoch_ends, call=call, caller=caller))

    def _epoch_ends(self, tx: Tx, call: OffsetForLeaderEpoch, caller: Caller) -> list[EpochEnd]:
        found: list[EpochEnd] = []
        for each in call.wanted:
            try:
                found.append(_epoch_end(each, self._find(tx, each.place, caller)))
            except REFUSALS as why:
                found.append(EpochEnd(each.place, code_of(why)))
        return found


def _epoch_end(wanted: EpochPlace, partition: _Partition) -> EpochEnd:
    if wanted.current > LEADER_EPOCH:
        raise KafkaRefusal(KafkaCode.UNKNOWN_LEADER_EPOCH, f"no leader has had epoch {wanted.current}")
    if wanted.epoch != LEADER_EPOCH:
        return EpochEnd(wanted.place, KafkaCode.NONE)
    return EpochEnd(wanted.place, KafkaCode.NONE, LEADER_EPOCH, partition.state.tail_number)


def _read_from(
    tx: Tx, stream_id: int, segment: SegmentId, number: int, bytes_max: int
) -> tuple[list[EventRun], int]:
    """Return the events from a number on, none if they are gone meanwhile, and the time of the transaction."""
    if segment_state(tx, stream_id, segment) is None:
        return [], tx.now_ms
    offset = offset_of_number(tx, stream_id, segment, number)
    return read(tx, stream_id, {segment: (offset, None)}, bytes_max=bytes_max).runs, tx.now_ms


def _offset_at(tx: Tx, where: TopicPlace, partition: _Partition, time_ms: int) -> FoundOffset:
    topic, segment, state = partition
    if time_ms == LATEST:
        return FoundOffset(where, KafkaCode.NONE, state.tail_number)
    if time_ms == EARLIEST:
        return FoundOffset(where, KafkaCode.NONE, state.head_number)
    if time_ms < 0:
        raise KafkaRefusal(KafkaCode.UNSUPPORTED_VERSION, f"time {time_ms} has a meaning that is not served")
    offset = offset_at_time(tx, topic.stream_id, segment, time_ms)
    runs = read(tx, topic.stream_id, {segment: (offset, None)}, bytes_max=1).runs
    if not runs:
        return FoundOffset(where, KafkaCode.NONE)
    time = runs[0].time if runs[0].times is None else runs[0].times[0]
    return FoundOffset(where, KafkaCode.NONE, number_at(tx, topic.stream_id, segment, offset), time)
