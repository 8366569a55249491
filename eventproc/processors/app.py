"""An app: which handlers run on which streams, declared at module level, importable, run by `ep.run(app)`.

    app = eventproc.App()

    @app.processor("shop/orders", group="mailer", order="key", concurrency=100)
    async def mail(event: eventproc.Event) -> None: ...

Declaring runs nothing and opens nothing; every option is checked immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import Unpack

from eventproc.processors.context import TablesChange
from eventproc.processors.dead_letters.store import default_stream
from eventproc.processors.declarations import (
    Processor,
    ProcessorOptions,
    ProjectionOptions,
    WindowOptions,
    WorkerOptions,
    check_options,
    processor,
    projection,
    worker,
)
from eventproc.processors.handler import HandlerDecorator, HandlerOf
from eventproc.processors.key_state import KeyState
from eventproc.processors.options import DatabaseProjection, OnCommit, OnFailure, Options
from eventproc.store.model.argument_checks import check_function, invalid_argument
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.segments import Event
from eventproc.streams.codec import P

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventproc.processors.joins import IsLeft, OnSingle, Pair
    from eventproc.processors.windows import OnClose
    from eventproc.store.model.windows import Hopping, Sessions, Tumbling
    from eventproc.store.schedules import ScheduleRecord

T = TypeVar("T")


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
            batch: The most events that the handler gets in one call, as a list; with `exactly_once`, of one segment.
                None (default): one event a call.
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
            from eventproc.processors.windows import window_processor  # few programs need it

            made = window_processor(target, stream, windows, value, on_close=on_close, late=late, **options)
            self._declare(made)
            return target

        return declare

    def join(
        self,
        stream: str,
        *,
        is_left: IsLeft[P],
        within_ms: int,
        grace_ms: int | None = None,
        on_single: OnSingle[P] | None = None,
        late: str = "dead_letter",
        **options: Unpack[WindowOptions[P]],
    ) -> HandlerDecorator[Pair[P]]:
        """Decorate a function that is called for each two events of a key that are near each other in event time.

        It takes a `Pair`, and a `Context` if it has one more parameter. Each left event makes a pair with each right
        one, exactly once, unless one of them is late: event time has passed it by more than the grace period, see
        `on_timer` of `ProcessorOptions`. An event has all of its pairs in one transaction with those before it.

        The events of a key that wait for partners are its state.

        Args:
            stream: The stream to read, as "scope/stream". Its events need keys; those of both sides are written to it.
            is_left: Called with an event; returns whether it is a left one. A plain function that changes nothing.
            within_ms: How far apart the times of a pair may be, in ms.
            grace_ms: How far event time goes on behind an event before it would be late, in ms. Each event is kept for
                this time and `within_ms`. None (default): as long as `within_ms`.
            on_single: Called with a `Single` for each event that is forgotten without a partner, and a `Context`; what
                it emits is appended in the transaction that forgets the event. async only if the handler is. None
                (default): nothing is called.
            late: What becomes of a late event: "dead_letter" (default) does what `on_failure` says, "skip" drops it,
                the name of another stream, which must exist, gets it.
            options: See `WindowOptions`.

        Raises:
            InvalidArgument: An argument is of the wrong type or out of range, arguments contradict each other, or the
                annotations of a function contradict them.
            AlreadyExists: The app has a processor with this name, group or dead-letter stream.
        """

        def declare(target: T) -> T:
            from eventproc.processors.joins import join_processor  # few programs need it

            made = join_processor(
                target,
                stream,
                is_left=is_left,
                within_ms=within_ms,
                grace_ms=grace_ms,
                on_single=on_single,
                late=late,
                **options,
            )
            self._declare(made)
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
            check_options("periodic", options, ProcessorOptions.__optional_keys__)
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


def _letters_of(options: Options) -> str | None:
    """Return the stream of the processor's dead letters, None when it writes none."""
    if options.on_failure is not OnFailure.DEAD_LETTER:
        return None
    return options.dead_letters or default_stream(options.group)
