"""How a processor is to run: order, concurrency, retries, what becomes of an event that keeps failing.

Every value is checked when the processor is declared, so that a mistake shows at import, not at the first
failure. What is not enforced is refused.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import attrs
from tenacity import RetryCallState, wait_exponential, wait_random

from eventproc.groups import GroupStart, check_start, stream_names
from eventproc.processors.context import AppTx
from eventproc.store.model.argument_checks import check_instance, check_int, check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.names import StreamName
from eventproc.store.segments import Event

CONCURRENCY_MAX: Final = 10_000
"""Handlers of one processor in flight in one process. Each costs a task, about 2 KB."""

BATCH_EVENTS_MAX: Final = 10_000
"""Events that a batch handler may ask for at once. More is memory: a tenth of what a processor holds at most."""

EVENT_TIMEOUT_MS: Final = 60_000
"""Timeout of one call of a handler under exactly once, where a round waits for all of its handlers."""

ROUND_EVENTS: Final = 1_000
"""Events of one exactly-once round. More amortises its commit over more events; fewer makes outputs visible
sooner, and repeats less after a crash."""


def check_function(what: str, function: object) -> None:
    """Raise InvalidArgument unless it can be called and is no `async def`: nobody would await what that returns."""
    if not callable(function):
        raise invalid_argument(what, function, "it must be a function")
    if any(inspect.iscoroutinefunction(each) for each in (function, type(function).__call__)):
        raise invalid_argument(
            what, function, "it must be a plain function: it runs in a transaction, or decides at once"
        )


class ProcessingOrder(enum.StrEnum):
    """In which order events are handled, and so what may run at the same time."""

    SEGMENT = "segment"
    """Serial: within a segment one event after the other."""
    KEY = "key"
    """Keyed: events of one routing key one after the other, keys in parallel; events without a key in any order."""
    NONE = "none"
    """Concurrent: any order."""

    @classmethod
    def of(cls, order: object) -> ProcessingOrder:
        """Return the order that a caller names: "segment", "key" or None. Raises InvalidArgument."""
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
    """The processor stops, and the event is handled again by whoever takes over or starts next."""

    @classmethod
    def of(cls, choice: object) -> OnFailure:
        """Return what a caller names. Raises InvalidArgument."""
        if choice in ("dead_letter", "skip", "stop"):
            return cls(choice)
        raise invalid_argument("on_failure", choice, "it must be 'dead_letter', 'skip' or 'stop'")


class Directive(enum.Enum):
    """What a processor does after an event whose attempts are spent."""

    RESUME = "resume"
    """Go on with the same handler."""
    RESTART = "restart"
    """Go on with a handler made anew, its state gone: only a class has one."""
    STOP = "stop"
    """Stop the processor; the event is not finished."""


@attrs.frozen
class Failure:
    """An event whose attempts are spent, as a supervisor sees it."""

    processor: str
    event: Event
    error: Exception
    attempts: int


Supervisor: TypeAlias = Callable[[Failure], Directive]

OnCommit: TypeAlias = Callable[[AppTx, Sequence[Event]], None]
"""Called in the transaction of an exactly-once round with the events that were handled: short, for all writers wait.

It may run several times for one round, twice in one attempt too: a write that fails after a change is run again by
itself, and so are those that share its commit. Of all runs one is durable, with what it did by SQL; whatever else it
does, a counter in memory or a call to the outside, is done as often as it ran.
"""


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often a failing handler is tried, in place, its key held.

    attempts: calls in all, at least 1. wait_ms: pause after the first; it doubles up to wait_ms_max, and up to
    jitter_ms are added at random, so that what failed together does not come back together. permanent: errors
    that no repetition mends; they spend all attempts at once.
    """

    attempts: int = 5
    wait_ms: int = 100
    wait_ms_max: int = 10_000
    jitter_ms: int = 100
    permanent: tuple[type[Exception], ...] = ()

    def __attrs_post_init__(self) -> None:
        check_int("retry.attempts", self.attempts, least=1)
        check_int("retry.wait_ms", self.wait_ms, least=0)
        check_int("retry.wait_ms_max", self.wait_ms_max, least=self.wait_ms)
        check_int("retry.jitter_ms", self.jitter_ms, least=0)
        reason = "it must be a tuple of exception classes"
        for kind in check_instance(tuple, "retry.permanent", self.permanent, reason):
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise invalid_argument("retry.permanent", self.permanent, reason)

    def pause_ms(self, attempt: int) -> int:
        """Return the pause after failed attempt number `attempt`, counted from 1."""
        grown = wait_exponential(multiplier=self.wait_ms / 1000, max=self.wait_ms_max / 1000)
        wait = grown + wait_random(0, self.jitter_ms / 1000)
        state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
        state.attempt_number = attempt
        return round(wait(state) * 1000)

    def is_spent(self, attempt: int, error: Exception) -> bool:
        """Return whether attempt number `attempt`, which ended in `error`, was the last."""
        return attempt >= self.attempts or isinstance(error, self.permanent)


@attrs.frozen(kw_only=True)
class Batching:
    """Events that a batch handler gets at once: at most `size`; fewer when no more came within `linger_ms`."""

    size: int
    linger_ms: int = 0

    def __attrs_post_init__(self) -> None:
        check_int("batch size", self.size, least=1, most=BATCH_EVENTS_MAX)
        check_int("linger_ms", self.linger_ms, least=0)


OnTruncated: TypeAlias = Literal["earliest", "latest", "error"]
"""Where a segment goes on whose next event was truncated: at the head, at the tail, or the processor stops."""


@attrs.frozen(kw_only=True)
class Options:
    """Everything that decides how one processor runs, checked.

    streams: "scope/stream" names. group: "scope/group"; its progress is shared by all processes. concurrency:
    handlers in flight in one process. timeout_ms: of one call of the handler, None for none. start: where a new
    group begins. round_events: of one exactly-once round.

    publishes: for processors of the system. The handler makes the progress of its event durable by itself, in the
    transaction that publishes what became of it; the processor only keeps account, and never writes progress.
    Nobody but the handler could finish an event, so what it raises stops the processor, as it is.
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
    on_commit: OnCommit | None = None
    round_events: int = ROUND_EVENTS
    start: GroupStart = "head"
    on_truncated: OnTruncated = "earliest"
    publishes: bool = False

    @property
    def summary(self) -> str:
        """Return in a line what it is."""
        order = {
            ProcessingOrder.SEGMENT: "serial",
            ProcessingOrder.KEY: "keyed",
            ProcessingOrder.NONE: "concurrent",
        }[self.order]
        once = "exactly once" if self.exactly_once else "at least once"
        where = f"group {self.group}, streams {', '.join(self.streams)}"
        return f"{self.name} ({where}, {order}, {self.concurrency} at a time, {once})"

    def __attrs_post_init__(self) -> None:
        check_str("name", self.name)
        if not self.publishes:  # the system's own have names that nobody else may take
            stream_names(self.streams)
        check_start(self.start, self.streams)
        check_instance(bool, "exactly_once", self.exactly_once, "it must be True or False")
        if self.dead_letters is not None:
            StreamName.parse(self.dead_letters)
        check_int("concurrency", self.concurrency, least=1, most=CONCURRENCY_MAX)
        check_int("round_events", self.round_events, least=1, most=BATCH_EVENTS_MAX)
        if self.timeout_ms is not None:
            check_int("timeout_ms", self.timeout_ms, least=1)
        if self.on_truncated not in ("earliest", "latest", "error"):
            raise invalid_argument(
                "on_truncated", self.on_truncated, "it must be 'earliest', 'latest' or 'error'"
            )
        assert not self.publishes or (self.on_truncated == "error" and not self.exactly_once), (
            f"{self.name}: only its handler finishes events"
        )
        check_instance(RetryPolicy, "retry", self.retry, "it must be an eventproc.RetryPolicy")
        for what, function in (("supervise", self.supervise), ("on_commit", self.on_commit)):
            if function is not None:
                check_function(what, function)
        if self.dead_letters is not None and self.on_failure is not OnFailure.DEAD_LETTER:
            raise invalid_argument(
                "dead_letters", self.dead_letters, f"with on_failure={self.on_failure!s} there are none"
            )
        if self.exactly_once and self.timeout_ms is None:
            raise InvalidArgument(
                what="timeout_ms",
                value="None",
                reason="exactly once needs one: a round waits for all of its handlers",
            )
        if self.on_commit is not None and not self.exactly_once:
            raise InvalidArgument(
                what="on_commit",
                value=getattr(self.on_commit, "__name__", repr(self.on_commit)),
                reason="it runs in the transaction of an exactly-once round; give exactly_once=True too",
            )
