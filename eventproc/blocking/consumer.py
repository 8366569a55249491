"""Consumer groups and their consumers, without `await`. Callbacks and handlers are plain functions, run in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, overload

import anyio.to_thread
from typing_extensions import TypeVar

from eventproc.blocking._generated import ConsumerCalls, ConsumerGroupCalls
from eventproc.blocking.loop import Loop, Opened
from eventproc.groups.assignors import Assignor
from eventproc.streams import Codec
from eventproc.topics import Consumer, ConsumerGroup, TopicEvent, TopicPartition
from eventproc.topics.consumer import PARALLEL, POLL_EVENTS, PartitionRef
from eventproc.topics.consumer_session import CALLBACK_MS, PartitionsCallback

P = TypeVar("P", default=bytes)
Q = TypeVar("Q")
R = TypeVar("R")

BlockingCallback: TypeAlias = Callable[[tuple[TopicPartition, ...]], object]
"""Called, in a thread beside the event loop, with the partitions that a consumer gained or lost."""


class BlockingConsumer(ConsumerCalls, Opened, Generic[P]):
    """Consumes events of a group, by one thread at a time; made open by `BlockingConsumerGroup.consumer`.

    See `Consumer`. Opening raises ReaderOnline, NotFound, NotAReaderGroup and GroupStreamReplaced.
    """

    def __init__(self, loop: Loop, consumer: Consumer[P]) -> None:
        super().__init__(loop, consumer)
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"Blocking{self._consumer!r}"

    @property
    def id(self) -> str:
        """Its id, unique among the consumers of the group that are online."""
        return self._consumer.id

    @property
    def subscription(self) -> tuple[str, ...] | None:
        """The topics that it consumes, by names or patterns; None: every topic of the group."""
        return self._consumer.subscription

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are assigned to this consumer now, sorted; a hand-over."""
        return self._on_loop(lambda: self._consumer.assignment)

    @property
    def position(self) -> dict[TopicPartition, int]:
        """The offset of the next event to deliver, for each assigned partition; a hand-over."""
        return self._on_loop(lambda: self._consumer.position)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions that are paused; a hand-over."""
        return self._on_loop(lambda: self._consumer.paused)

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The durable offset of each assigned partition; a hand-over."""
        return self._on_loop(lambda: self._consumer.committed)

    def poll(self, events_max: int = POLL_EVENTS, *, timeout_ms: int | None = None) -> list[TopicEvent[P]]:
        """Return the next events of the assigned partitions, as soon as there are any. See `Consumer.poll`."""
        return self._loop.call(partial(self._consumer.poll, events_max, timeout_ms=timeout_ms))

    def pause(self, partitions: Iterable[PartitionRef]) -> None:
        """Deliver no events of these partitions until `resume`. See `Consumer.pause`."""
        self._on_loop(partial(self._consumer.pause, partitions))

    def resume(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver events of these partitions again. See `Consumer.resume`."""
        self._on_loop(partial(self._consumer.resume, partitions))

    def run(
        self,
        handler: Callable[[list[TopicEvent[P]]], object],
        *,
        poll_max: int = POLL_EVENTS,
        parallel: int = PARALLEL,
    ) -> None:
        """Poll, and let `handler` handle the events of each partition, in threads. See `Consumer.run`."""

        async def handle(events: list[TopicEvent[P]]) -> None:
            await anyio.to_thread.run_sync(handler, events)

        handle.__qualname__ = getattr(handler, "__qualname__", repr(handler))
        self._loop.call(partial(self._consumer.run, handle, poll_max=poll_max, parallel=parallel))

    def __iter__(self) -> Iterator[TopicEvent[P]]:
        """Yield events, waiting for more; ends when all topics are sealed and processed. One hand-over for each."""
        while events := self.poll(1):
            yield from events

    def _on_loop(self, work: Callable[[], R]) -> R:
        async def run() -> R:
            return work()

        return self._loop.call(run)


class BlockingConsumerGroup(ConsumerGroupCalls):
    """The handle of a consumer group; made by `create_consumer_group` and `consumer_group`. See `ConsumerGroup`."""

    def __init__(self, loop: Loop, group: ConsumerGroup) -> None:
        super().__init__(loop, group)
        self.name = group.name

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @overload
    def consumer(
        self,
        consumer: str,
        *,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
        on_lost: BlockingCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> BlockingConsumer[bytes]: ...
    @overload
    def consumer(
        self,
        consumer: str,
        *,
        payload: type[Q] | None = None,
        codec: Codec[Q] | None = None,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
        on_lost: BlockingCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> BlockingConsumer[Q]: ...
    def consumer(
        self,
        consumer: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
        on_lost: BlockingCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> BlockingConsumer[Any]:
        """Join the group and return the open consumer, to be closed or used in `with`. See `ConsumerGroup.consumer`.

        The callbacks run in threads, and may call methods of the consumer other than `poll`.
        """
        made = self._twin.consumer(
            consumer,
            payload=payload,
            codec=codec,
            topics=topics,
            static_ms=static_ms,
            assignor=assignor,
            auto_commit=auto_commit,
            on_assigned=_in_thread(on_assigned),
            on_revoked=_in_thread(on_revoked),
            on_lost=_in_thread(on_lost),
            callback_ms=callback_ms,
        )
        return BlockingConsumer(self._loop, made)._opened()


def _in_thread(callback: BlockingCallback | None) -> PartitionsCallback | None:
    if callback is None:
        return None

    async def call(partitions: tuple[TopicPartition, ...]) -> None:
        await anyio.to_thread.run_sync(callback, partitions, abandon_on_cancel=True)

    return call
