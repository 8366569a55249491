"""How a processor is to run: order, concurrency, retries, and what becomes of an event that keeps failing.

Every value is checked when the processor is declared, so that a mistake shows at import and not at the first failure.
A value that cannot be honoured is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import attrs

from eventproc.groups import GroupStart, TruncatedPolicy, check_start, stream_names
from eventproc.processors.context import AppTx, SegmentEnd
from eventproc.processors.key_state import KeyState
from eventproc.processors.retry import RetryPolicy
from eventproc.processors.timers import OnTimer
from eventproc.store.groups import ShareOptions
from eventproc.store.model.argument_checks import (
    check_choice,
    check_function,
    check_instance,
    check_int,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import DURATION_MS_MAX
from eventproc.store.model.names import StreamName
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import Event
from eventproc.streams.codec import P

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

CONCURRENCY_MAX: Final = 10_000
"""Most calls of one processor in flight in one process. Each costs a task, about 2 kB."""

BATCH_EVENTS_MAX: Final = 10_000
"""Most events that a batch handler may ask for. Higher costs memory: this is a tenth of what a processor may hold."""

EVENT_TIMEOUT_MS: Final = 60_000
"""Default timeout of a call under exactly once, where a round waits for all of its calls."""

ROUND_EVENTS: Final = 1_000
"""Events of one exactly-once round. Higher spreads its commit over more events. Lower makes emitted events visible
sooner, and a crash repeats less."""

WAITING_EVENTS_MAX: Final = 100_000
"""Events handed out and not finished beyond which a segment gets more only while it has fewer than PUT_EVENTS of them:
they wait behind stuck calls. Each costs 240 bytes beside its payload, so higher costs memory. Lower holds up the other
keys of a segment sooner: with this many, only events of less than 80 bytes do not fill 8 MiB (`owned_segment`)."""

IDLE_MS: Final = 60_000
"""Default of the time after which a segment without events is left out of the watermark. Higher: the windows of others
wait longer for it. Lower: what a slow writer sends after a pause is late more often."""

NAMES_CHECK_MS: Final = 2_000
"""Pause between two checks whether a stream was deleted and created again, which nothing else reports. Each is a read.
Higher: a processor that reads nothing of the new stream counts as running for longer."""


class ProcessingOrder(enum.StrEnum):
    """In which order events are handled, and so which calls may run at the same time."""

    SEGMENT = "segment"
    """Serial: within a segment one event after the other."""
    KEY = "key"
    """Keyed: events of one routing key one after the other, keys in parallel; events without a key in any order."""
    NONE = "none"
    """Concurrent: any order."""

    @classmethod
    def of(cls, order: object) -> ProcessingOrder:
        """Return the order for "segment", "key" or None. Raises InvalidArgument for anything else."""
        if order is None:
            return cls.NONE
        if order in ("segment", "key"):
            return cls(order)
        raise invalid_argument(
            "order", order, "it must be 'segment' (serial), 'key' (keyed) or None (concurrent)"
        )


class OnFailure(enum.StrEnum):
    """What becomes of an event whose attempts are spent."""

    DEAD_LETTER = "dead_letter"
    """It is appended to the group's dead-letter stream, in the transaction that moves progress."""
    SKIP = "skip"
    """It is logged and counts as finished."""
    STOP = "stop"
    """The processor stops; another process, or the next run, handles the event again."""


class Directive(enum.Enum):
    """What a processor does after an event whose attempts are spent."""

    RESUME = "resume"
    """Continue with the same handler."""
    RESTART = "restart"
    """Continue with a new instance of the handler's class, its state gone. A function has no state."""
    STOP = "stop"
    """Stop the processor; the event is not finished."""


@attrs.frozen
class Failure:
    """An event whose attempts are spent, as a supervisor gets it.

    Attributes:
        processor: Name of the processor.
        event: The event.
        error: What its last call raised.
        attempts: How many calls failed.
    """

    __repr__ = short_repr_of_fields

    processor: str
    event: Event
    error: Exception
    attempts: int


Supervisor: TypeAlias = Callable[[Failure], Directive]

OnCommit: TypeAlias = Callable[[AppTx, Sequence[Event[P]]], None]
"""Called in the transaction of an exactly-once round with the events that were handled, as the handler got them: their
payloads are decoded. Keep it short: it holds up all writers.

It may run several times for one round, also twice in one attempt: a write that fails after a change is run again, and
so are the writes that share its commit. Exactly one run becomes durable, with its SQL. Other effects, such as a counter
in memory or a call to another service, happen as often as it runs.
"""


OnSegmentEnd: TypeAlias = Callable[[AppTx, SegmentEnd], object]
"""Called in the transaction by which a segment ends for the group."""


DatabaseProjection: TypeAlias = "Callable[[Connection, Sequence[Event[P]]], None]"
"""Called in a transaction of a database of the user, with the events of a round, in the order of each segment."""


@attrs.frozen(kw_only=True)
class Batching:
    """How many events a batch handler gets in one call.

    size: the most events of a batch.
    linger_ms: how long to wait for a full batch, in ms.
    """

    size: int
    linger_ms: int = 0

    def __attrs_post_init__(self) -> None:
        check_int("batch size", self.size, least=1, most=BATCH_EVENTS_MAX)
        check_int("linger_ms", self.linger_ms, least=0)


@attrs.frozen(kw_only=True)
class ProcessorLimits:
    """Limits of a running processor that tests set lower; users keep the defaults.

    waiting_events_max: see WAITING_EVENTS_MAX.
    names_check_ms: see NAMES_CHECK_MS.
    """

    waiting_events_max: int = WAITING_EVENTS_MAX
    names_check_ms: int = NAMES_CHECK_MS


@attrs.frozen
class Rate:
    """How many calls of a worker may begin in a time, in all processes together.

    Attributes:
        count: Calls in the time; so many may begin at once after a pause, beside those of the time that begins then.
        per_ms: The time, in ms.
        key: Returns the name under which a call is counted, for its event; each name has its own count. None (default):
            all are counted together.

    Raises:
        InvalidArgument: A value is of the wrong type or out of range.
    """

    __repr__ = short_repr_of_fields

    count: int
    per_ms: int = 1_000
    key: Callable[[Event[Any]], str] | None = None

    def __attrs_post_init__(self) -> None:
        check_int("rate.count", self.count, least=1)
        check_int("rate.per_ms", self.per_ms, least=1, most=DURATION_MS_MAX, unit="ms")
        if self.key is not None:
            check_function("rate.key", self.key)


@attrs.frozen(kw_only=True)
class WorkerSettings:
    """What only the worker of a share group has. limit: how many calls may begin in a time; None: any number."""

    share: ShareOptions
    limit: Rate | None = None

    def __attrs_post_init__(self) -> None:
        if self.limit is not None:
            check_instance(Rate, "limit", self.limit, "it must be an eventproc.Rate")


@attrs.frozen(kw_only=True)
class Options:
    """Everything that decides how one processor runs, checked. `App.processor` documents each field.

    streams: "scope/stream" names.
    group: "scope/group"; all processes share its progress.
    database: the user's database, in whose transaction `on_commit` runs. None: in that of the store.
    publishes: for processors of the system. The handler makes the progress of its event durable itself, in the
        transaction that publishes the event's result; the processor keeps count and never writes progress. Only such a
        handler can finish an event, so any error that it raises stops the processor unchanged.
    worker: it is the worker of a share group.
    """

    name: str
    streams: tuple[str, ...]
    group: str
    order: ProcessingOrder
    concurrency: int
    batching: Batching | None = None
    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    timeout_ms: int | None = None
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    dead_letters: str | None = None
    supervise: Supervisor | None = None
    exactly_once: bool = False
    on_commit: Callable[[Any, Sequence[Event[Any]]], None] | None = None
    database: Engine | None = None
    on_segment_end: OnSegmentEnd | None = None
    round_events: int = ROUND_EVENTS
    start: GroupStart = "head"
    on_truncated: TruncatedPolicy = "earliest"
    publishes: bool = False
    worker: WorkerSettings | None = None
    state: KeyState[Any] | None = None
    on_timer: OnTimer | None = None
    idle_ms: int | None = IDLE_MS

    @property
    def label(self) -> str:
        """Return what logs call it: "processor NAME" or "worker NAME"."""
        return f"{'processor' if self.worker is None else 'worker'} {self.name}"

    @property
    def summary(self) -> str:
        """Return a one-line description."""
        order = {
            ProcessingOrder.SEGMENT: "serial",
            ProcessingOrder.KEY: "keyed",
            ProcessingOrder.NONE: "concurrent" if self.worker is None else "a queue",
        }[self.order]
        once = "exactly once" if self.exactly_once else "at least once"
        where = f"group {self.group}, streams {', '.join(self.streams)}"
        return f"{self.name} ({where}, {order}, {self.concurrency} at a time, {once})"

    def __attrs_post_init__(self) -> None:
        check_str("name", self.name)
        if not self.publishes:  # processors of the system have reserved names
            stream_names(self.streams)
        check_start(self.start, self.streams)
        check_instance(bool, "exactly_once", self.exactly_once, "it must be True or False")
        if self.dead_letters is not None:
            StreamName.parse(self.dead_letters)
        check_int("concurrency", self.concurrency, least=1, most=CONCURRENCY_MAX)
        check_int("round_events", self.round_events, least=1, most=BATCH_EVENTS_MAX)
        if self.timeout_ms is not None:
            check_int("timeout_ms", self.timeout_ms, least=1)
        check_choice("on_truncated", self.on_truncated, get_args(TruncatedPolicy))
        assert not self.publishes or (self.on_truncated == "error" and not self.exactly_once), (
            f"{self.name}: only its handler finishes events"
        )
        check_instance(RetryPolicy, "retry", self.retry, "it must be an eventproc.RetryPolicy")
        if self.exactly_once and self.retry.frees_key:
            reason = "exactly_once=True waits for all events of a round, so nothing could go on meanwhile"
            raise invalid_argument("retry.frees_key", True, reason)
        for what, function in (
            ("supervise", self.supervise),
            ("on_commit", self.on_commit),
            ("on_segment_end", self.on_segment_end),
        ):
            if function is not None:
                check_function(what, function)
        if self.dead_letters is not None and self.on_failure is not OnFailure.DEAD_LETTER:
            reason = f"with on_failure={self.on_failure!s} no dead letters are written"
            raise invalid_argument("dead_letters", self.dead_letters, reason)
        if self.exactly_once and self.timeout_ms is None:
            raise InvalidArgument(
                what="timeout_ms",
                value="None",
                reason="exactly_once=True needs one: a round waits for all of its calls",
            )
        if self.state is not None:
            self._check_state(self.state)
        elif self.on_timer is not None:
            raise invalid_argument("on_timer", self.on_timer, "a timer goes with a state: give state= too")
        if self.idle_ms is not None:
            check_int("idle_ms", self.idle_ms, least=0, unit="ms")
        if self.on_commit is not None and not self.exactly_once and self.worker is None:
            raise InvalidArgument(
                what="on_commit",
                value=getattr(self.on_commit, "__name__", repr(self.on_commit)),
                reason="it runs in the transaction of an exactly-once round; give exactly_once=True too",
            )

    def _check_state(self, state: KeyState[Any]) -> None:
        """Raise InvalidArgument unless the events of a key follow one another, in one process at a time."""
        reason = None
        if len(self.streams) != 1:
            reason = (
                "the segments of several streams are shared out independently: emit into one stream, by key"
            )
        elif self.order is ProcessingOrder.NONE:
            reason = "order=None calls the handler for several events of a key at a time; use order='key'"
        elif self.batching is not None:
            reason = "a batch has events of several keys; leave batch= out"
        elif self.retry.frees_key:
            reason = "retry.frees_key=True handles later events of a key before an earlier one"
        elif state.changes is not None and StreamName.parse(state.changes) == StreamName.parse(
            self.streams[0]
        ):
            reason = f"its changes would be events of {state.changes} again; give changes= another stream"
        if reason is not None:
            raise invalid_argument("state", state.name, reason)
