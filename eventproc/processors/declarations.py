"""What an app declares: the options of processors, workers and projections, their defaults, and the checks of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, cast

import attrs
from typing_extensions import TypedDict, Unpack

from eventproc.groups import GroupStart, TruncatedPolicy, group_name
from eventproc.processors.handler import Handler, check_handler, check_on_timer, make_handler
from eventproc.processors.key_state import KeyState, as_key_state
from eventproc.processors.options import (
    EVENT_TIMEOUT_MS,
    IDLE_MS,
    ROUND_EVENTS,
    Batching,
    OnCommit,
    OnFailure,
    OnSegmentEnd,
    Options,
    ProcessingOrder,
    Rate,
    Supervisor,
    WorkerSettings,
)
from eventproc.processors.retry import RetryPolicy
from eventproc.processors.signatures import EventArgument, check_on_commit
from eventproc.processors.timers import OnTimer
from eventproc.store.groups import LOCK_MS, ShareOptions
from eventproc.store.model.argument_checks import (
    check_choice,
    check_function,
    check_instance,
    check_str,
    invalid_argument,
)
from eventproc.store.segments import Event
from eventproc.streams.codec import Codec, P, codec_for, decode_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

CONCURRENCY: Final = 100
"""Default of the calls in flight in one process; a serial processor has one."""

WORKER_CONCURRENCY: Final = 50
"""Default of the calls of a worker in flight in one process."""

ENDLESS_DELIVERIES: Final = 2**31 - 1
"""Deliveries of the share group of a worker that retries without an end."""

DEFAULT_RETRY: Final = RetryPolicy()

OrderName: TypeAlias = Literal["segment", "key"]
OnFailureName: TypeAlias = Literal["dead_letter", "skip", "stop"]


class HandlerOptions(TypedDict, Generic[P], total=False):
    """Options of processors, projections and workers.

    name: its name in status, logs and commands. Default: the name of the handler or function.
    payload: type of the payloads, as for readers. A payload that does not fit is a permanent failure.
    codec: converts payloads. None (default): the registered or built-in codec of `payload`.
    retry: how often and when a failing call is retried. Default: 5 attempts within about 2 s.
    on_failure: what becomes of an event whose attempts are spent: "dead_letter" (default) keeps it in the
        dead-letter stream, "skip" logs it, "stop" stops the processor. A function of rounds that fails always stops it.
    dead_letters: the dead-letter stream, as "scope/stream". Default: "<group>-dead-letters".
    supervise: called with the `Failure` after attempts are spent; returns whether to resume, restart or stop.
        None (default): resume.
    start: where a new group begins: "head" (default), "tail", stream cuts, or a time in ms.
    """

    name: str | None
    payload: type[P]
    codec: Codec[P] | None
    retry: RetryPolicy
    on_failure: OnFailureName
    dead_letters: str | None
    supervise: Supervisor | None
    start: GroupStart


class WorkerOptions(HandlerOptions[P], total=False):
    """Options of a worker, beside those of `HandlerOptions`.

    share_group: the share group whose events it handles, in all processes. A name without a scope takes the scope of
        the first stream. Default: the worker's name.
    concurrency: most calls in flight in one process. Default: 50.
    timeout_ms: longest time of one call, in ms; None (default) for no limit.
    limit: how many calls may begin in a time, in all processes together. None (default): any number.
    lock_ms: how long a process that is silent keeps its events; one that dies loses them at once. Default: 30 s.
    on_commit: SQL that runs in the transaction that accepts events, with the events as the handler got them. It may run
        several times for them; exactly one run becomes durable.
    """

    share_group: str | None
    concurrency: int
    timeout_ms: int | None
    limit: Rate | None
    lock_ms: int
    on_commit: OnCommit[P] | None


class ProjectionOptions(HandlerOptions[P], total=False):
    """Options of a projection, beside those of `HandlerOptions`.

    group: the group under which all processes share progress. A name without a scope takes the scope of the first
        stream. Default: the processor's name.
    round_events: the most events of a round. Default: 1000. A handler needs `exactly_once` for it.
    on_truncated: where to continue if the next event was truncated: "earliest" (default) at the head, "latest"
        at the tails of the truncated segments, "error" stops the processor.
    on_segment_end: called with a transaction and a `SegmentEnd` when all events of a sealed segment are finished, in
        the transaction that opens its successors: what an app keeps by segment, such as a watermark, moves on. It may
        run several times; exactly one run becomes durable. None (default).
    """

    group: str | None
    round_events: int | None
    on_truncated: TruncatedPolicy
    on_segment_end: OnSegmentEnd | None


class ProcessorOptions(ProjectionOptions[P], total=False):
    """Options of a processor, beside those of a projection.

    order: "segment": one event of a segment at a time (serial). "key" (default): one event of a key at a time
        (keyed). None: any order (concurrent).
    concurrency: most calls in flight in one process. Default: 1 with order="segment", otherwise 100.
    linger_ms: how long to wait for a full batch, in ms. Default: 0. Needs `batch`.
    timeout_ms: longest time of one call, in ms; None for no limit. Default: no limit, but 60 s with
        exactly_once, which requires a limit.
    exactly_once: process in rounds. What a round emits, its progress and `on_commit` become durable together
        or not at all. Default: False, at least once.
    on_commit: SQL that runs in the transaction of a round, with the events as the handler got them. It may run
        several times for one round, for example if a write fails and is run again; exactly one run becomes
        durable. Needs `exactly_once`.
    state: the class of the value that is kept for each routing key, or a `KeyState` with more options. The handler's
        second parameter gets the value of the event's key. What it makes of it, or returns in its place, is stored in
        the transaction that makes the event finished. A topic has none: its keys may have several partitions. None
        (default): no state.
    on_timer: called with a `Timer`, the state of its key, and a `Context`, when event time has reached what
        `Context.call_at` set; what it leaves is durable as what the handler leaves. async if the handler is. Event time
        is the lowest of the stream's segments, each as far as its events are finished without a gap; an event without
        an `event_time` counts with its timestamp. If its attempts are spent, the processor stops, or, with
        on_failure="skip", the timer is gone. Needs `state`. None (default): no timers.
    idle_ms: a segment counts for event time as long as it has unfinished events, and so long after the last one was
        finished, in ms. Default: 60 s. None: for ever.
    """

    order: OrderName | None
    concurrency: int | None
    linger_ms: int | None
    timeout_ms: int | Literal["default"] | None
    exactly_once: bool
    on_commit: OnCommit[P] | None
    state: type[Any] | KeyState[Any] | None
    on_timer: OnTimer | None
    idle_ms: int | None


class WindowOptions(ProjectionOptions[P], total=False):
    """Options of windows and joins, beside those of a projection.

    idle_ms: see `ProcessorOptions`. Default: 60 s.
    concurrency: most calls in flight in one process. Default: 100.
    timeout_ms: see `ProcessorOptions`.
    exactly_once: see `ProcessorOptions`. Windows, joins and their results are exactly once without it, too.
    """

    idle_ms: int | None
    concurrency: int | None
    timeout_ms: int | Literal["default"] | None
    exactly_once: bool


@attrs.frozen
class Processor:
    """A declared processor.

    target: the function, or the class; each process creates an instance of it.
    decode: converts payloads; None for bytes.
    """

    options: Options
    target: object
    decode: Callable[[bytes], Any] | None

    def make(self) -> Handler:
        """Return a new handler."""
        state, on_timer = self.options.state, self.options.on_timer
        return make_handler(self.target, self.decode, takes_state=state is not None, on_timer=on_timer)


def processor(
    handler: object,
    streams: tuple[str, ...],
    *,
    batch: int | None,
    group: str | None = None,
    name: str | None = None,
    order: OrderName | None = "key",
    concurrency: int | None = None,
    payload: type[Any] = bytes,
    codec: Codec[Any] | None = None,
    linger_ms: int | None = None,
    retry: RetryPolicy = DEFAULT_RETRY,
    timeout_ms: int | Literal["default"] | None = "default",
    on_failure: OnFailureName = "dead_letter",
    dead_letters: str | None = None,
    supervise: Supervisor | None = None,
    exactly_once: bool = False,
    on_commit: OnCommit[Any] | None = None,
    round_events: int | None = None,
    start: GroupStart = "head",
    on_truncated: TruncatedPolicy = "earliest",
    on_segment_end: OnSegmentEnd | None = None,
    state: type[Any] | KeyState[Any] | None = None,
    on_timer: OnTimer | None = None,
    idle_ms: int | None = IDLE_MS,
    settings: WorkerSettings | None = None,
) -> Processor:
    """Check the arguments of a declaration, and return what they declare; here are their defaults."""
    name = _name_of(name, handler, streams)
    if round_events is not None and not exactly_once:
        raise invalid_argument("round_events", round_events, "only exactly_once=True processes in rounds")
    processing_order = ProcessingOrder.of(order)
    usual = 1 if processing_order is ProcessingOrder.SEGMENT else CONCURRENCY
    usual_timeout_ms = EVENT_TIMEOUT_MS if exactly_once else None
    options = Options(
        name=name,
        streams=streams,
        group=group_name(group or name, streams),
        order=processing_order,
        concurrency=usual if concurrency is None else concurrency,
        batching=_batching(batch, linger_ms),
        retry=retry,
        timeout_ms=usual_timeout_ms if timeout_ms == "default" else timeout_ms,
        on_failure=check_choice("on_failure", on_failure, OnFailure),
        dead_letters=dead_letters,
        supervise=supervise,
        exactly_once=exactly_once,
        on_commit=on_commit,
        round_events=ROUND_EVENTS if round_events is None else round_events,
        start=start,
        on_truncated=on_truncated,
        on_segment_end=on_segment_end,
        worker=settings,
        state=as_key_state(state, name),
        on_timer=on_timer,
        idle_ms=idle_ms,
    )
    _check_signatures(handler, options, payload if codec is None or payload is not bytes else None)
    return Processor(options, handler, decode_of(codec_for(payload, codec)))


def _check_signatures(handler: object, options: Options, payload: type[Any] | None) -> None:
    """Raise InvalidArgument unless the handler and `on_commit` take what they get. payload: None: it is not known."""
    gets = EventArgument(payload, is_list=options.batching is not None)
    check_handler(handler, options.name, gets, None if options.state is None else options.state.value)
    if options.on_timer is not None:
        check_on_timer(options.on_timer, handler, options.name)
    if options.on_commit is not None:
        what = "projection" if handler is _pass_on else "on_commit"
        check_on_commit(options.name, options.on_commit, payload, what=what)


def check_options(what: str, options: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise TypeError for an option that is not known here: the processor would take it, and ignore it."""
    for name in options.keys() - known:
        raise TypeError(f"App.{what}() got an unexpected keyword argument {name!r}")


def worker(
    handler: object,
    streams: tuple[str, ...],
    *,
    share_group: str | None = None,
    concurrency: int = WORKER_CONCURRENCY,
    timeout_ms: int | None = None,
    limit: Rate | None = None,
    lock_ms: int = LOCK_MS,
    on_commit: OnCommit[Any] | None = None,
    **options: Unpack[HandlerOptions[Any]],
) -> Processor:
    """Check the arguments of the declaration of a worker, and return what they declare."""
    check_options("worker", options, HandlerOptions.__optional_keys__)
    retry = options.get("retry", DEFAULT_RETRY)
    check_instance(RetryPolicy, "retry", retry, "it must be an eventproc.RetryPolicy")
    deliveries_max = ENDLESS_DELIVERIES if retry.attempts is None else retry.attempts
    settings = WorkerSettings(share=ShareOptions(lock_ms=lock_ms, deliveries_max=deliveries_max), limit=limit)
    return processor(
        handler,
        streams,
        batch=None,
        group=share_group,
        order=None,
        concurrency=concurrency,
        timeout_ms=timeout_ms,
        on_commit=on_commit,
        settings=settings,
        **options,
    )


def _name_of(name: str | None, handler: object, streams: tuple[str, ...]) -> str:
    """Return the name of a processor or worker. Raises InvalidArgument if it has none, or no streams."""
    found = name or getattr(handler, "__name__", None)
    if not found:
        raise invalid_argument("name", found, "the handler has none; give one")
    if not streams:
        raise invalid_argument("streams", streams, f"processor {found} needs at least one, as scope/stream")
    return check_str("name", found)


async def _pass_on(_event: Event[Any]) -> None:
    """The handler of a projection, whose function gets the events when their round is committed."""


def projection(
    function: object,
    streams: tuple[str, ...],
    *,
    database: Engine | None,
    **options: Unpack[ProjectionOptions[Any]],
) -> Processor:
    """Check the arguments of a projection, and return the processor that it is."""
    check_options("projection", options, ProjectionOptions.__optional_keys__)
    check_function("projection", function)
    on_commit = cast("OnCommit[Any]", function)  # or of a `Connection`, with a database
    if database is not None:
        check_database(database)
        if (hook := options.get("on_segment_end")) is not None:
            reason = "with database=, the transaction that ends a segment is not that of the read model"
            raise invalid_argument("on_segment_end", hook, reason)
    options["name"] = options.get("name") or getattr(function, "__name__", None)
    if options["name"] is None:
        raise invalid_argument("name", None, "the function has none; give one")
    declared = processor(
        _pass_on, streams, batch=None, order="segment", exactly_once=True, on_commit=on_commit, **options
    )
    return attrs.evolve(declared, options=attrs.evolve(declared.options, database=database))


def check_database(database: object) -> None:
    """Raise InvalidArgument unless it is a SQLAlchemy engine."""
    try:
        from sqlalchemy import Engine  # few programs need it
    except ImportError:
        remedy = "it must be a SQLAlchemy engine: pip install 'eventproc[sqlalchemy]'"
        raise invalid_argument("database", database, remedy) from None
    check_instance(Engine, "database", database, "it must be a SQLAlchemy engine, as create_engine returns")


def _batching(batch: int | None, linger_ms: int | None) -> Batching | None:
    """Return how a handler is batched, None if it gets single events. Raises InvalidArgument."""
    if batch is None:
        if linger_ms:
            reason = "it is how long to wait for a full batch; give batch too"
            raise invalid_argument("linger_ms", linger_ms, reason)
        return None
    return Batching(size=batch, linger_ms=0 if linger_ms is None else linger_ms)
