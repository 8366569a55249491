"""What a consumer delivers: events that name their topic, partition and offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple

from typing_extensions import TypeVar

from eventproc.store.model.short_repr import short_repr
from eventproc.store.segments import EventRun

P = TypeVar("P", default=bytes)


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain pair `("shop/clicks", 3)` is equal to it, and accepted wherever one is expected.

    topic: "scope/topic". partition: its number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class TopicEvent(NamedTuple, Generic[P]):
    """One event as a consumer sees it.

    payload: what was written: bytes, or a value of the consumer's type. key: routing key, or None.
    timestamp: when it was appended, ms since 1970. event_time: the user's time in ms, or None.
    topic: "scope/topic". partition: its number. offset: the event's number in the partition, from 0.
    headers: the user's, empty when there are none.
    """

    payload: P
    key: str | None
    timestamp: int
    event_time: int | None
    topic: str
    partition: int
    offset: int
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_repr(value)}" for name, value in self._asdict().items())
        return f"TopicEvent({shown})"


_make_event: Final[Any] = partial(tuple.__new__, TopicEvent)
"""`TopicEvent(*columns)` without a Python frame per event."""


def events_of(
    run: EventRun, where: TopicPartition, decode: Callable[[bytes], P] | None
) -> Iterator[TopicEvent[P]]:
    """Yield the events of a run in order, each decoded when it is asked for."""
    columns = zip(
        run.payloads if decode is None else map(decode, run.payloads),
        run.keys if run.keys is not None else repeat(None),
        run.times if run.times is not None else repeat(run.time),
        run.event_times if run.event_times is not None else repeat(None),
        repeat(where.topic),
        repeat(where.partition),
        range(run.first_number, run.first_number + len(run.payloads)),
        run.shown_headers(),
        strict=False,  # the repeating columns never end
    )
    return map(_make_event, columns)
