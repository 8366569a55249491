"""A consumer: polls batches of events of the partitions that its group assigned to it, and commits its positions.

It stands on the reader session of groups: owners, fencing, rebalancing, saving and the end of segments are the group's.
With automatic commits, the next poll commits what the poll before delivered, which becomes durable every second or
1,000 events. With manual commits, only `commit` does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, TypeAlias

import anyio
from typing_extensions import TypeVar

from eventproc.base.tasks import run_uninterrupted
from eventproc.groups.membership import DEFAULT_MEMBER, MemberOptions
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import InFlight
from eventproc.groups.reader import JoinedMember
from eventproc.groups.session import SAVE_EVENTS, MemberSession, OwnershipListener
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import (
    check_int,
    check_iterable,
    check_mapping,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import IllegalTransition
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import Event, offset_at_time, offset_of_number, progress_at, segment_state
from eventproc.streams.joint_transaction import ProgressHold
from eventproc.topics.partition import TopicPartition
from eventproc.topics.rebalance_callbacks import CallbackListener, RebalanceCallbacks, partition_of

P = TypeVar("P", default=bytes)

POLL_EVENTS: Final = 500
"""Events of one poll by default, as Kafka's consumers have it. Higher: fewer calls, and a death repeats more."""

POLL_EVENTS_MAX: Final = 100_000
"""Most events of one poll. Each costs about 300 bytes beside its payload."""

PARALLEL: Final = 5
"""Partitions that `run` handles simultaneously by default."""

PartitionRef: TypeAlias = TopicPartition | tuple[str, int]
"""A partition as callers name it: `("shop/clicks", 3)`."""

DataHandler: TypeAlias = Callable[[list[Event[P]]], Awaitable[object]]
"""Handles consecutive events of one partition."""


class Consumer(JoinedMember, Generic[P]):
    """Consumes events of a group, by one task at a time. Made by `Group.consumer`.

    Open it with `async with`, or with `await` and `close`. Opening joins the group: see `Group.consumer` for
    the errors. Leaving the block, as `close`, calls `on_revoked` and gives all partitions back. A cancellation does
    not call it.
    """

    def __init__(
        self,
        db: Database,
        group: str,
        consumer: str,
        *,
        decode: Callable[[bytes], P] | None = None,
        auto_commit: bool = True,
        callbacks: RebalanceCallbacks,
        chosen: MemberOptions = DEFAULT_MEMBER,
    ) -> None:
        """decode: makes payloads from bytes. None: payloads stay bytes."""
        super().__init__(db, group, consumer, "consumer", chosen, auto_commit)
        self._subscription = chosen.subscription
        self._decode = decode
        self._callbacks = callbacks
        self._begun: dict[OwnedSegment, tuple[int, int]] = {}  # positions before the last delivery
        self._next: tuple[InFlight, Iterator[Event[P]]] | None = None

    def __repr__(self) -> str:
        return f"Consumer({self._group!r}, {self.reader!r}, {self._state})"

    @property
    def id(self) -> str:
        """Its id, unique among the consumers of the group that are online."""
        return self.reader

    def _listen(self) -> OwnershipListener:
        return CallbackListener(self._callbacks, self._what)

    async def _finish(self, why: BaseException | None) -> None:
        try:
            if why is None or isinstance(why, Exception):
                await run_uninterrupted(self._revoke_all)
        finally:
            await super()._finish(why)

    async def _revoke_all(self) -> None:
        if self._session is not None and self._tasks.failure is None:
            session = self._open
            async with session.turn:
                try:
                    await session.before_leaving()
                finally:
                    session.end()  # it must get no partitions any more

    @property
    def subscription(self) -> tuple[str, ...] | None:
        """The topics that it consumes, by names or patterns; None: every topic of the group."""
        return self._subscription

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Consume other topics from now on. Only partitions of topics that come or go move, at the next poll.

        Args:
            topics: names, or patterns such as "shop/orders-*", which also match topics that are created later.

        Raises:
            NotFound: the group was deleted.
            InvalidArgument: a name or a pattern is not valid.
        """
        await self._subscribe(tuple(check_iterable("topics", topics, "a sequence of names is needed")))

    async def unsubscribe(self) -> None:
        """Consume every topic of the group again, whatever its topics.

        Raises:
            NotFound: the group was deleted.
        """
        await self._subscribe(None)

    async def _subscribe(self, topics: tuple[str, ...] | None) -> None:
        session = self._open
        assert self._member is not None, "an open consumer is a member"
        await self._member.subscribe(topics)
        self._subscription = topics
        session.wake()

    async def leave(self) -> None:
        """Close it, and give up its partitions immediately, also those of a static consumer.

        Raises:
            As `close`.
        """
        self._verify_no_callback("leave")
        session, member = self._open, self._member
        assert member is not None, "an open consumer is a member"
        try:
            await self._revoke_all()
        finally:  # also if a callback failed
            async with session.turn:
                session.finish()
                await session.complete()
                await member.leave(for_good=True)
        await self.close()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are assigned to this consumer now, sorted."""
        return tuple(map(partition_of, self._open.assigned))

    @property
    def position(self) -> dict[TopicPartition, int]:
        """The number of the next event to deliver, for each assigned partition."""
        return {partition_of(each): each.next_number for each in self._open.assigned}

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions that are paused."""
        return tuple(partition_of(each) for each in self._open.assigned if each.paused)

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The number of the event at which another consumer would continue, for each assigned partition."""
        return {partition_of(each): each.durable.number for each in self._open.assigned}

    async def poll(self, events_max: int = POLL_EVENTS, *, timeout_ms: int | None = None) -> list[Event[P]]:
        """Return the next events of the assigned partitions, as soon as there are any.

        Between two polls the consumer follows its group, which may take partitions from it. With automatic commits,
        the events of the poll before count as processed. Events of one partition come in order.

        Args:
            events_max: most events to return. Default: 500.
            timeout_ms: how long to wait for events, in ms. 0 returns what there is. None (default): no limit.

        Returns:
            The events. Empty after `timeout_ms`, and when all topics are sealed and processed. A group of which a
            consumer has a pattern, or the name of a topic that does not exist, waits for topics; so does one of which a
            topic was deleted.

        Raises:
            NotFound: the group was deleted.
            GroupStreamReplaced: a topic of the group was deleted.
            ReaderFenced: another process consumes under this id.
            Truncated: unread events were truncated, and the group's `on_truncated` is "error".
            InvalidArgument: a payload is not of the consumer's type. The position stays at that event: `seek` skips it.
            IllegalTransition: a callback polls.
            Exception: what a callback raised.
        """
        check_int("events_max", events_max, least=1, most=POLL_EVENTS_MAX)
        if timeout_ms is not None:
            check_int("timeout_ms", timeout_ms, least=0, unit="ms")
        return await self._poll(events_max, timeout_ms) or []

    async def _poll(self, events_max: int, timeout_ms: int | None) -> list[Event[P]] | None:
        """Return events, none after the time, None at the end."""
        self._verify_no_callback("poll")
        self._open.finish()
        found = await self._advance(None, timeout_ms)
        if found:
            return self._deliver(events_max)
        return None if found is False else []

    def _deliver(self, events_max: int) -> list[Event[P]]:
        """Return the next events of those that were read ahead, and move the positions behind them.

        If a payload cannot be decoded, the events before it are returned; the next call raises the error.
        """
        session = self._open
        session.delivered_ms = self._db.clock.monotonic_ms()
        found: list[Event[P]] = []
        self._begun = {}
        while len(found) < events_max:
            session.skip_expired()
            if not session.waiting:
                break
            in_flight = session.waiting[0]
            owned = in_flight.owned
            if self._next is None or self._next[0] is not in_flight:
                self._next = in_flight, in_flight.run.events(owned.assigned.stream, self._decode)
            begun = len(found)
            try:
                for event in self._next[1]:
                    found.append(event)
                    if len(found) == events_max:
                        break
            except Exception:
                self._next = None
                if len(found) == begun:
                    session.reread(owned)
                    if not found:
                        raise
                    return found
                self._move_on(in_flight, len(found) - begun)
                session.reread(owned)
                return found
            self._move_on(in_flight, len(found) - begun)
            if in_flight.count == len(in_flight.run):
                session.waiting.popleft()
                self._next = None
        return found

    def _move_on(self, in_flight: InFlight, count: int) -> None:
        owned, run, before = in_flight.owned, in_flight.run, in_flight.count
        if before == 0:
            owned.next_offset = run.start
        self._begun.setdefault(owned, (run.first_number + before, owned.next_offset))
        in_flight.count += count
        owned.next_number = run.first_number + in_flight.count
        payloads = run.payloads[before : in_flight.count]
        owned.next_offset += FRAME_BYTES * count + sum(map(len, payloads))
        if in_flight.skipped and in_flight.count == len(run):
            owned.next_number += in_flight.skipped
            owned.next_offset = in_flight.skipped_end
        if count:
            self._open.moved[owned.key] = owned

    @contextmanager
    def _handling(self) -> Iterator[set[TopicPartition]]:
        """Let nothing that was delivered last count as finished before the block has put its partition into the set.

        At the end of the block, also by a cancellation, the other partitions go back to where they were before.
        """
        session = self._open
        handled: set[TopicPartition] = set()
        session.auto_commit = False
        try:
            yield handled
        finally:
            session.auto_commit = self._auto_commit
            self._go_back(session, handled)

    async def _take_back(self, events: Collection[Event[P]]) -> None:
        """Go back to before the last delivery, of `events`: a thread was interrupted before it had them."""
        if events and self._session is not None:
            self._go_back(self._session)

    def _go_back(self, session: MemberSession, handled: Collection[TopicPartition] = ()) -> None:
        for owned, (number, offset) in self._begun.items():
            if owned in session.segments and partition_of(owned) not in handled:
                session.move(owned, number, offset)

    async def __aiter__(self) -> AsyncGenerator[Event[P], None]:
        """Yield events, waiting for more. Ends when all topics are sealed and processed, and the group awaits no other.

        Asking for the next event counts as a poll. Use `contextlib.aclosing` to leave such a loop early.

        Raises:
            As `poll`.
        """
        while True:
            session = self._open
            may_deliver = session.waiting and not session.turn.locked() and not session.must_follow()
            if may_deliver and session.events_unsaved < SAVE_EVENTS:
                session.finish()
                found: list[Event[P]] | None = self._deliver(1)
            else:
                found = await self._poll(1, None)
            if found is None:
                return
            for event in found:
                yield event

    def hold_progress(self, txn: str) -> ProgressHold:
        """Let only a joint transaction move the progress, until the transaction ends. `ep.transaction` calls it.

        Its commit commits the positions of all assigned partitions. Until then the consumer keeps its partitions.

        Args:
            txn: the transaction's id.

        Raises:
            Closed: the consumer is not open.
            IllegalTransition: another transaction holds the progress, or a callback begins this one.
        """
        self._verify_no_callback("begin a transaction")
        return self._open.hold(txn)

    async def commit(self, numbers: Mapping[PartitionRef, int] | None = None) -> None:
        """Make positions durable: another consumer would continue there.

        Args:
            numbers: {(topic, partition): number of the next event to read}. None (default): the positions of all
                assigned partitions, so that every event that was delivered counts as processed.

        Raises:
            SegmentFenced: a partition with delivered events was taken from this consumer. Its number is unchanged; the
                others are committed. Nothing is committed if `numbers` names one that is not assigned.
            InvalidArgument: `numbers` has the wrong form, or a number lies beyond the end of its partition.
            NotFound: the group was deleted.
            IllegalTransition: a joint transaction holds the progress, and moves it with its commit.

        Cost:
            One write, if anything moved; with `numbers` also a read.
        """
        session = self._open
        session.verify_free("commit")
        session.fenced = None
        if numbers is None:
            if (lost := session.lost) is not None:
                session.fenced = self._fenced(lost)
            committed = session.commit_assigned()
        else:
            committed = []
            wanted = as_numbers(numbers)
            partitions = {where: self._assigned(where) for where in wanted}
            places = await self._places({partitions[where]: number for where, number in wanted.items()})
            for owned, number, offset in places:
                if owned in session.segments:
                    session.commit_position(owned, number, offset)
                    owned.must_save = not owned.is_saved
                    committed.append(owned)
                else:
                    session.fenced = self._fenced(owned)
        await session.save(complete=False)
        for owned in committed:  # another task may have released it since, at an earlier event
            if owned not in session.segments and owned.durable != owned.finished:
                session.fenced = self._fenced(owned)
        if session.fenced is not None:
            raise session.fenced

    async def seek(self, partition: PartitionRef, number: int) -> None:
        """Deliver another event of a partition next. The committed number changes with the next commit.

        Args:
            partition: (topic, partition), one that is assigned to this consumer.
            number: of the event, from the first one that is kept to the end of the partition.

        Raises:
            SegmentFenced: the partition is not assigned to this consumer.
            InvalidArgument: the number lies outside the partition.

        Cost:
            One read.
        """
        await self._seek({_partition(partition): check_int("number", number, least=0)})

    async def seek_to_beginning(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver the first events that are kept next.

        Args:
            partitions: of which partitions. None (default): of all assigned ones.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        await self._seek(dict.fromkeys(self._named(partitions), 0), clamp=True)

    async def seek_to_end(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver only events that are written from now on.

        Args:
            partitions: of which partitions. None (default): of all assigned ones.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        await self._seek(dict.fromkeys(self._named(partitions), 2**62), clamp=True)

    async def seek_to_time(self, time_ms: int, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver the events next that were appended at a time or later; none, where there are none yet.

        Partitions that are added later, also in new topics of a pattern, begin with their first event.

        Args:
            time_ms: the wall time, in ms since 1970.
            partitions: of which partitions. None (default): of all assigned ones, of whatever topics.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
            InvalidArgument: it is no time in ms.

        Cost:
            One read, which decodes an extent for each partition.
        """
        check_int("time_ms", time_ms, least=0)
        wanted = [self._assigned(where) for where in self._named(partitions)]

        def look(tx: Tx) -> list[tuple[OwnedSegment, int, int]]:
            places = (progress_at(tx, *each.key, offset_at_time(tx, *each.key, time_ms)) for each in wanted)
            return [(each, at.number, at.offset) for each, at in zip(wanted, places, strict=True)]

        self._move(await self._db.read(look))

    def pause(self, partitions: Iterable[PartitionRef]) -> None:
        """Deliver no events of these partitions until `resume`. They stay assigned, and their lag grows.

        A partition that is revoked and assigned again is not paused.

        Args:
            partitions: (topic, partition) of each.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        session = self._open
        for owned in [self._assigned(where) for where in self._named(partitions)]:
            owned.paused = True
            session.reread(owned)

    def resume(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver events of these partitions again, from where they were paused.

        Args:
            partitions: (topic, partition) of each. None (default): all that are paused.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        chosen = self.paused if partitions is None else self._named(partitions)
        for owned in [self._assigned(where) for where in chosen]:
            owned.paused = False
        self._open.wake()

    async def run(
        self, handler: DataHandler[P], *, poll_max: int = POLL_EVENTS, parallel: int = PARALLEL
    ) -> None:
        """Poll, and let `handler` handle the events of each partition, several partitions simultaneously.

        The events of a poll are committed when all its calls have returned. Ends as iterating does. A processor on the
        topic does the same with retries and dead letters: see `App.processor`.

        Args:
            handler: an `async` function, called with consecutive events of one partition.
            poll_max: most events of one poll. Default: 500.
            parallel: most partitions handled simultaneously. Default: 5.

        Raises:
            Exception: what the handler raised. The other partitions are committed, and the next poll repeats the
                events of the failed one.
            ExceptionGroup: calls for several partitions failed.
            NotFound, GroupStreamReplaced, ReaderFenced, Truncated: as `poll`.
        """
        check_int("poll_max", poll_max, least=1, most=POLL_EVENTS_MAX)
        limiter = anyio.CapacityLimiter(check_int("parallel", parallel, least=1))
        self._open.handler = getattr(handler, "__qualname__", repr(handler))
        while (events := await self._poll(poll_max, None)) is not None:
            by_partition: dict[TopicPartition, list[Event[P]]] = {}
            for event in events:
                by_partition.setdefault(TopicPartition(event.stream, event.partition), []).append(event)
            failures: list[Exception] = []
            with self._handling() as handled:

                async def handle(where: TopicPartition, events: list[Event[P]]) -> None:
                    async with limiter:
                        try:
                            await handler(events)
                            handled.add(where)
                        except Exception as why:
                            failures.append(why)  # noqa: B023

                async with anyio.create_task_group() as tasks:
                    for where, mine in by_partition.items():
                        tasks.start_soon(handle, where, mine)
            self._open.commit_positions()
            await self._open.save(complete=False)
            if failures:
                raise failures[0] if len(failures) == 1 else ExceptionGroup("handlers failed", failures)

    async def _seek(self, wanted: Mapping[TopicPartition, int], *, clamp: bool = False) -> None:
        partitions = {self._assigned(where): number for where, number in wanted.items()}
        self._move(await self._places(partitions, clamp=clamp))

    def _move(self, places: Iterable[tuple[OwnedSegment, int, int]]) -> None:
        """Deliver the events at these numbers and byte offsets next, where the segments are still owned."""
        session = self._open
        for owned, number, offset in places:
            if owned in session.segments:
                session.move(owned, number, offset)

    async def _places(
        self, wanted: Mapping[OwnedSegment, int], *, clamp: bool = False
    ) -> list[tuple[OwnedSegment, int, int]]:
        """Return the number and the byte offset of events. Raises InvalidArgument unless they lie in the partition."""

        def look(tx: Tx) -> list[tuple[OwnedSegment, int, int]]:
            return [(each, *_place(tx, each, number, clamp=clamp)) for each, number in wanted.items()]

        return await self._db.read(look) if wanted else []

    def _named(self, partitions: Iterable[PartitionRef] | None) -> tuple[TopicPartition, ...]:
        if partitions is None:
            return self.assignment
        return as_partitions(partitions)

    def _assigned(self, where: TopicPartition) -> OwnedSegment:
        for owned in self._open.assigned:
            if partition_of(owned) == where:
                return owned
        raise self._not_assigned(where, -1)

    def _fenced(self, owned: OwnedSegment) -> SegmentFenced:
        return self._not_assigned(partition_of(owned), owned.assigned.owner_epoch)

    def _not_assigned(self, where: TopicPartition, epoch: int) -> SegmentFenced:
        assert self._member is not None, "an open consumer is a member"
        ids = {stream.name: stream.stream_id for stream in self._member.state.streams}
        return SegmentFenced(
            group=self._group,
            reader=self.reader,
            stream_id=ids.get(where.topic, 0),
            segment=str(where.partition if where.topic in ids else where),
            owner_epoch=epoch,
        )

    async def close(self) -> None:
        """Close it, as leaving its block without an error does: its partitions go to others, after `on_revoked`.

        Raises:
            IllegalTransition: a callback closes it, which would wait for itself.
            Exception: as leaving the block.
        """
        if self._session is not None:  # until all callbacks have been called
            self._verify_no_callback("close")
        await super().close()

    def _verify_no_callback(self, what: str) -> None:
        if self._open.listener.is_calling:
            raise IllegalTransition(
                name=self._what, event=what, state="running a callback; it may only commit"
            )


def _place(tx: Tx, owned: OwnedSegment, number: int, *, clamp: bool) -> tuple[int, int]:
    state = segment_state(tx, *owned.key)
    low, high = (0, 0) if state is None else (state.head_number, state.tail_number)
    if clamp:
        number = min(max(number, low), high)
    elif not low <= number <= high:
        raise invalid_argument("number", number, f"{partition_of(owned)} has numbers {low} to {high}")
    return number, 0 if state is None else offset_of_number(tx, *owned.key, number)


def _partition(partition: object) -> TopicPartition:
    """Return the partition that a caller names. Raises InvalidArgument."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise invalid_argument("partition", partition, "it must be a pair (topic, partition)")
    topic, number = partition
    return TopicPartition(check_str("topic", topic), check_int("partition", number, least=0))


def as_partitions(partitions: object) -> tuple[TopicPartition, ...]:
    """Return the partitions that a caller passed. Raises InvalidArgument."""
    reason = "a sequence of (topic, partition) is needed"
    return tuple(map(_partition, check_iterable("partitions", partitions, reason)))


def as_numbers(numbers: object) -> dict[TopicPartition, int]:
    """Return the event numbers that a caller passed. Raises InvalidArgument."""
    return {
        _partition(partition): check_int("number", number, least=0)
        for partition, number in check_mapping(
            "numbers", numbers, "it must be {(topic, partition): number}"
        ).items()
    }
