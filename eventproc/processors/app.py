"""An app: which handlers run on which streams, declared at module level, importable, run by `ep.run(app)`.

    app = eventproc.App()

    @app.processor("shop/orders", group="mailer", order="key", concurrency=100)
    async def mail(event: eventproc.Event) -> None: ...

Declaring runs nothing and opens nothing; every option is checked immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, overload

import attrs
from typing_extensions import TypedDict, Unpack

from eventproc.groups import GroupStart, TruncatedPolicy, group_name
from eventproc.processors.context import TablesChange
from eventproc.processors.dead_letters.store import default_stream
from eventproc.processors.handler import (
    Handler,
    HandlerDecorator,
    HandlerOf,
    check_handler,
    check_on_timer,
    make_handler,
)
from eventproc.processors.key_state import KeyState, as_key_state
from eventproc.processors.options import (
    EVENT_TIMEOUT_MS,
    IDLE_MS,
    ROUND_EVENTS,
    Batching,
    DatabaseProjection,
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
from eventproc.store.model.argument_checks import check_function, check_instance, check_str, invalid_argument
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.segments import Event
from eventproc.streams.codec import Codec, P, codec_for, decode_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventproc.processors.windows import OnClose
    from eventproc.store.model.windows import Hopping, Sessions, Tumbling
    from eventproc.store.schedules import ScheduleRecord

T = TypeVar("T")

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
        the transaction that makes the event finished. None (default): no state.
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
    """Options of windows, beside those of a projection.

    idle_ms: see `ProcessorOptions`. Default: 60 s.
    concurrency: most calls in flight in one process. Default: 100.
    timeout_ms: see `ProcessorOptions`.
    exactly_once: see `ProcessorOptions`. Windows and their results are exactly once without it, too.
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


class App:
    """Processors that run together. Any number of processes may run the same app on one directory."""

    def __init__(self) -> None:
        self._processors: dict[str, Processor] = {}
        self._setups: list[TablesChange] = []
        self._schedules: dict[str, ScheduleRecord] = {}

    def __repr__(self) -> str:
        return f"App({', '.join(self._processors)})"

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The declared processors, in the order of their declaration."""
        return tuple(self._processors.values())

    @property
    def setups(self) -> tuple[TablesChange, ...]:
        """The functions given to `setup`, in the order of their declaration."""
        return tuple(self._setups)

    @property
    def schedules(self) -> tuple[ScheduleRecord, ...]:
        """What `periodic` has declared, in the order of the declarations."""
        return tuple(self._schedules.values())

    @overload
    def processor(
        self, *streams: str, batch: None = None, **options: Unpack[ProcessorOptions[P]]
    ) -> HandlerDecorator[Event[P]]: ...
    @overload
    def processor(
        self, *streams: str, batch: int, **options: Unpack[ProcessorOptions[P]]
    ) -> HandlerDecorator[list[Event[P]]]: ...
    @overload
    def processor(
        self, *streams: str, batch: int | None, **options: Unpack[ProcessorOptions[P]]
    ) -> HandlerDecorator[Any]: ...
    def processor(
        self, *streams: str, batch: int | None = None, **options: Unpack[ProcessorOptions[Any]]
    ) -> Callable[[T], T]:
        """Decorate a handler, which is called for each event of the streams.

        A handler is a function, or a class with `process` and optionally `start` and `stop`. It takes an event, or a
        list of events with `batch`; then the state of its key, with `state`; and a `Context` if it has one more
        parameter. A plain `def` runs on a thread. Its
        annotations must fit `payload` and `batch`: `Event[Order]` with payload=Order, `list[Event[Order]]` with batch.

        Args:
            streams: The streams to read, as "scope/stream", at least one.
            batch: The most events that the handler gets in one call, as a list. None (default): one event a call.
            options: See `ProcessorOptions`.

        Raises:
            InvalidArgument: An argument is of the wrong type or out of range, arguments contradict each other, or the
                annotations of the handler or of `on_commit` contradict `payload` or `batch`.
            AlreadyExists: The app has a processor with this name, group or dead-letter stream.
        """
        if any(callable(each) for each in streams):
            reason = 'it needs the names of streams: write @app.processor("scope/stream")'
            raise invalid_argument("processor", streams[0], reason)

        def declare(target: T) -> T:
            self._declare(processor(target, streams, batch=batch, **options))
            return target

        return declare

    def window(
        self,
        stream: str,
        windows: Tumbling | Hopping | Sessions,
        *,
        value: type[Any] | KeyState[Any],
        on_close: OnClose | None = None,
        late: str = "dead_letter",
        **options: Unpack[WindowOptions[P]],
    ) -> HandlerDecorator[Event[P]]:
        """Decorate a function that folds the events of each key into windows of event time.

        It takes an event, a `Window`, whose value it changes or for whose value it returns another one, and a `Context`
        if it has one more parameter. An event is counted in each of its windows exactly once, or is late. A window
        closes when event time has passed its end and the grace period, see `on_timer` of `ProcessorOptions`.

        The open windows of a key are its state, `ep.state(group, dict[str, Total])`, by their bounds, as in "0/60000".

        Args:
            stream: The stream to read, as "scope/stream". Its events need keys.
            windows: `Tumbling`, `Hopping` or `Sessions` of `eventproc.windows`.
            value: The class of a window's value, or `KeyState(dict[str, Total])` with more options. Called without
                arguments, it makes the value of a new window.
            on_close: Called with each `Window` that has closed, and a `Context`; what it emits is appended in the
                transaction that closes the window. async only if the handler is. None (default): nothing is called.
            late: What becomes of an event whose windows are all closed: "dead_letter" (default) does what `on_failure`
                says, "skip" drops it, the name of another stream, which must exist, gets it.
            options: See `WindowOptions`.

        Raises:
            InvalidArgument: An argument is of the wrong type or out of range, arguments contradict each other, or the
                annotations of the function contradict them.
            AlreadyExists: The app has a processor with this name, group or dead-letter stream.
        """

        def declare(target: T) -> T:
            from eventproc.processors.windows import declared_windows  # few programs need it

            declared = declared_windows(
                target,
                stream,
                windows,
                value,
                name=options.get("name"),
                payload=options.get("payload", bytes),
                codec=options.get("codec"),
                on_close=on_close,
                late=late,
            )
            chosen = cast("ProcessorOptions[Any]", {**options, "name": declared.name})
            chosen["state"], chosen["on_timer"] = declared.state, declared.on_timer
            self._declare(processor(declared.handler, (stream,), batch=None, **chosen))
            return target

        return declare

    def worker(self, *streams: str, **options: Unpack[WorkerOptions[P]]) -> HandlerDecorator[Event[P]]:
        """Decorate the handler of a job queue: it is called for each event of a share group, in no order.

        A call that fails is repeated after a pause, by whichever process has room then; other events go on meanwhile.
        Its attempts are counted over all processes, and one that kills its process counts too. The event is accepted in
        the transaction that appends what the handler emitted and runs `on_commit`: all of it, or nothing. Higher
        priorities go first.

        Args:
            streams: The streams to consume, as "scope/stream", at least one.
            options: See `WorkerOptions`.

        Raises:
            InvalidArgument: An argument is of the wrong type or out of range, or the annotations of the handler or of
                `on_commit` contradict `payload`.
            AlreadyExists: The app has a processor or worker with this name, group or dead-letter stream.
        """

        def declare(target: T) -> T:
            self._declare(worker(target, streams, **options))
            return target

        return declare

    @overload
    def projection(
        self, *streams: str, database: None = None, **options: Unpack[ProjectionOptions[P]]
    ) -> Callable[[OnCommit[P]], OnCommit[P]]: ...
    @overload
    def projection(
        self, *streams: str, database: Engine, **options: Unpack[ProjectionOptions[P]]
    ) -> Callable[[DatabaseProjection[P]], DatabaseProjection[P]]: ...
    def projection(
        self, *streams: str, database: Engine | None = None, **options: Unpack[ProjectionOptions[Any]]
    ) -> Callable[[T], T]:
        """Decorate a function that keeps a read model: it gets a transaction and the events of a round.

        It is the `on_commit` of a processor that processes exactly once and has no handler: each event is in the
        transaction of one round, in the order of its segment. The function is called again if its transaction fails,
        so it must change nothing else. If its attempts are spent, the processor stops.

        Args:
            streams: The streams to read, as "scope/stream", at least one.
            database: A SQLAlchemy engine of the database with the read model: the function gets a `Connection` of it,
                on a thread, and must neither commit nor roll back. The table `eventproc_progress` in it is created
                when the app runs. None (default): the function gets an `AppTx` of the store.
            options: See `ProjectionOptions`.

        Raises:
            InvalidArgument: An argument is of the wrong type or out of range, or the annotations of the function
                contradict `payload`.
            AlreadyExists: The app has a processor with this name, group or dead-letter stream.
        """

        def declare(function: T) -> T:
            self._declare(projection(function, streams, database=database, **options))
            return function

        return declare

    def periodic(
        self,
        schedule: str,
        *,
        cron: str,
        tz: str = "UTC",
        missed: str = "latest",
        **options: Unpack[ProcessorOptions[Any]],
    ) -> Callable[[T], T]:
        """Decorate a handler, which is called once for each time that a cron expression names, over all processes.

        It is the handler of a processor of the stream `schedule`, which a schedule of the same name appends to. When
        the app starts, it creates both, or changes the schedule to what is declared here; the scope must exist. The
        event time is the tick. A handler that fails is retried, and then the event becomes a dead letter, as with any
        processor.

        Args:
            schedule: full name of the stream and the schedule, "scope/name".
            cron: the expression, see `Schedules.create`.
            tz: name of its time zone. Default: UTC.
            missed: what becomes of ticks that no process was there for, see `Schedules.create`. Default: the last one.
            options: See `ProcessorOptions`.

        Raises:
            InvalidArgument: An argument is not valid.
            AlreadyExists: The app has a periodic handler of this name, or a processor with its name or group.
        """
        from eventproc.store.model.schedules import check_timetable  # few programs need it
        from eventproc.streams.schedules import as_schedule

        declared = as_schedule(schedule, cron, schedule, tz, missed=missed)
        check_timetable(cron, tz, 0)
        if schedule in self._schedules:
            raise AlreadyExists(kind="periodic handler", name=schedule)

        def declare(target: T) -> T:
            self._declare(processor(target, (schedule,), batch=None, **options))
            self._schedules[schedule] = declared
            return target

        return declare

    @overload
    def add(
        self,
        handler: HandlerOf[Event[P]],
        *streams: str,
        batch: None = None,
        **options: Unpack[ProcessorOptions[P]],
    ) -> None: ...
    @overload
    def add(
        self,
        handler: HandlerOf[list[Event[P]]],
        *streams: str,
        batch: int,
        **options: Unpack[ProcessorOptions[P]],
    ) -> None: ...
    def add(
        self,
        handler: object,
        *streams: str,
        batch: int | None = None,
        **options: Unpack[ProcessorOptions[Any]],
    ) -> None:
        """Declare a processor without a decorator.

        Args:
            handler: The function or class that `processor` would decorate.

        The other parameters and the errors are those of `processor`.
        """
        self._declare(processor(handler, streams, batch=batch, **options))

    def _declare(self, processor: Processor) -> None:
        """Add a processor. Raises AlreadyExists if another one has its name, group or dead-letter stream."""
        options = processor.options
        for other in self._processors.values():
            if options.name == other.options.name:
                raise AlreadyExists(kind="processor", name=options.name)
            if options.group == other.options.group:
                raise AlreadyExists(kind="group of a processor", name=options.group)
            letters = _letters_of(options)
            if letters is not None and letters == _letters_of(other.options):
                raise AlreadyExists(kind="dead-letter stream of a processor", name=letters)
        self._processors[options.name] = processor

    def setup(self, function: TablesChange) -> TablesChange:
        """Decorate a function that creates the app's tables.

        It runs at each start, in a transaction of its own, before any processor: use `CREATE TABLE IF NOT EXISTS`.

        Args:
            function: A plain function of an `AppTx`. The names of its tables begin with `app_`.

        Raises:
            InvalidArgument: It is not a plain function.
        """
        check_function("setup", function)
        self._setups.append(function)
        return function


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
        on_failure=OnFailure.of(on_failure),
        dead_letters=dead_letters,
        supervise=supervise,
        exactly_once=exactly_once,
        on_commit=on_commit,
        round_events=ROUND_EVENTS if round_events is None else round_events,
        start=start,
        on_truncated=on_truncated,
        on_segment_end=on_segment_end,
        worker=settings,
        state=as_key_state(state),
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


def _letters_of(options: Options) -> str | None:
    """Return the stream of the processor's dead letters, None when it writes none."""
    if options.on_failure is not OnFailure.DEAD_LETTER:
        return None
    return options.dead_letters or default_stream(options.group)
