"""What a handler gets besides its event: the attempt, `emit`, a logger; and `AppTx`, the SQL of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload
from weakref import WeakSet

import attrs
from typing_extensions import Unpack

from eventproc.base.user_tx import OF_THREAD
from eventproc.processors.emit import Emission, EmitTarget, append_emissions
from eventproc.processors.errors import CallEnded
from eventproc.store.database import Tx
from eventproc.store.database.tx import Cursor, SqlParameters
from eventproc.store.model.argument_checks import check_function, check_int, invalid_argument
from eventproc.store.model.delays import since_1970_ms
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import EVENT_TIME_MAX
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.streams import Codec, Stream
from eventproc.streams.new_events import EmitOptions

if TYPE_CHECKING:
    from eventproc.base.spans import Traces

A = ParamSpec("A")
P = TypeVar("P")
T = TypeVar("T")

Log: TypeAlias = "LoggerAdapter[Logger]"

NoteProgress: TypeAlias = Callable[[float], None]
"""Takes how far a job is, from 0 to 1."""


class EventTime(Protocol):
    """How far event time has come for a processor with timers."""

    watermark_ms: int | None


class Emitter:
    """What a function of the user emits: events that are appended by the transaction that makes its call durable."""

    __slots__ = ("_emitted", "_traces")

    def __init__(self, traces: Traces | None = None) -> None:
        self._traces = traces
        self._emitted: list[Emission] | None = []

    @overload
    def emit(
        self,
        stream: Stream[P],
        payload: P,
        *,
        codec: Codec[P] | None = None,
        **options: Unpack[EmitOptions],
    ) -> None: ...
    @overload
    def emit(
        self,
        stream: str | EmitTarget,
        payload: object,
        *,
        codec: Codec[Any] | None = None,
        **options: Unpack[EmitOptions],
    ) -> None: ...
    def emit(
        self,
        stream: str | EmitTarget,
        payload: Any,
        *,
        codec: Codec[Any] | None = None,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> None:
        """Append an event to a stream: of a handler, in the transaction that makes the handled event finished.

        With a delay it is stored in that transaction, and appended when it is due.

        Nothing is emitted if the call fails or is cancelled, or the segment is taken over meanwhile. If the stream is
        missing or sealed by then, the processor stops, or the transaction fails.

        Args:
            stream: a stream's handle, or its name, "scope/stream".
            payload: for a handle, a value of its payload type. For a name, bytes as they are, or any value that the
                codec of its class serves, such as a str or a dataclass.
            codec: object with `encode` and `decode`, used instead.
            key: routing key; events of one key keep their order. None (default): any segment.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            id: append it unless its stream has an event with this id, see `EventWriter.write`. None (default): no id.
            priority: 0 (default) to 9; share groups deliver higher ones first.
            delay_ms: append it so many ms later. None (default): at once.
            at: append it then: a time with its zone, or ms since 1970. None (default).

        Raises:
            InvalidArgument: a writer would refuse the event too.
            CallEnded: the function has returned.
        """
        if self._emitted is None:
            raise CallEnded
        if self._traces is not None:
            headers = self._traces.carrying(headers)
        self._emitted.append(
            Emission.make(
                stream,
                payload,
                codec=codec,
                key=key,
                event_time=event_time,
                headers=headers,
                id=id,
                priority=priority,
                delay_ms=delay_ms,
                at=at,
            )
        )

    def _end(self) -> Sequence[Emission]:
        """Return what was emitted; `emit` fails from now on."""
        emitted, self._emitted = self._emitted, None
        assert emitted is not None, "a call ends once"
        return emitted


class Context(Emitter):
    """The context of one call of a handler.

    Attributes:
        attempt: Number of this call for the event, from 1: in this process, or, of a worker, in all of them.
    """

    __slots__ = (
        "_event_time",
        "_forgets",
        "_keeps_state",
        "_log",
        "_make_log",
        "_note_progress",
        "_tables",
        "_timer_ms",
        "attempt",
    )

    def __init__(
        self,
        attempt: int,
        make_log: Callable[[], Log],
        note_progress: NoteProgress | None = None,
        traces: Traces | None = None,
        *,
        keeps_state: bool = False,
        event_time: EventTime | None = None,
    ) -> None:
        super().__init__(traces)
        self.attempt = attempt
        self._event_time = event_time
        self._timer_ms: int | None = None
        self._keeps_state = keeps_state
        self._forgets = False
        self._tables: Sequence[TablesChange] = ()
        self._make_log = make_log
        self._note_progress = note_progress
        self._log: Log | None = None

    def __repr__(self) -> str:
        return f"Context(attempt={self.attempt})"

    @property
    def log(self) -> Log:
        """A logger whose records have the fields processor, stream, segment, offset, number, key and attempt."""
        if self._log is None:
            self._log = self._make_log()
        return self._log

    def change_tables(self, function: TablesChange) -> None:
        """Let a function run its SQL in the transaction that makes the handled event finished.

        It is called after the handler has returned, in the order of the calls, before `on_commit`. It may run several
        times; exactly one run becomes durable. If it fails, the whole transaction does, and is tried again as the
        processor's `retry` says; then the processor stops. So check in the handler what may be wrong with the event.

        Args:
            function: a plain function of an `AppTx`. It runs on the thread of the database, so it must be short.

        Raises:
            InvalidArgument: it is not a plain function.
            CallEnded: the handler has returned.
        """
        check_function("change_tables", function)
        if self._emitted is None:
            raise CallEnded
        self._tables = (*self._tables, function)

    def forget_state(self) -> None:
        """Let the key of the event have no state any more, once the handler has returned.

        Raises:
            InvalidArgument: the processor keeps no state.
            CallEnded: the handler has returned.
        """
        if not self._keeps_state:
            raise invalid_argument(
                "forget_state", None, "the processor keeps no state: declare it with state="
            )
        if self._emitted is None:
            raise CallEnded
        self._forgets = True

    @property
    def watermark(self) -> int | None:
        """How far event time has come for the processor, in ms since 1970; None before that is known.

        It is the lowest of its segments, see `on_timer` of `App.processor`. An event whose time is lower is late.
        """
        return None if self._event_time is None else self._event_time.watermark_ms

    def call_at(self, time: datetime | int | None) -> None:
        """Let `on_timer` be called for the key of the event once event time has come so far, durably as its state.

        A key has one timer: another one takes its place. It is called once, and its call may set the next one. It goes
        with the state of the key.

        Args:
            time: an event time: a time with its zone, or ms since 1970. None: the key has no timer any more.

        Raises:
            InvalidArgument: the time is not valid, or the processor has no `on_timer`.
            CallEnded: the handler has returned.
        """
        if self._event_time is None:
            raise invalid_argument("call_at", time, "the processor has no timers: declare it with on_timer=")
        if self._emitted is None:
            raise CallEnded
        if isinstance(time, datetime):
            time = since_1970_ms("call_at", time)
        if time is not None:
            time = check_int("call_at", time, least=-EVENT_TIME_MAX, most=EVENT_TIME_MAX)
        self._timer_ms = time

    def progress(self, part: float) -> None:
        """Note how far the job is that this event is; `Job.describe` shows it within about a second.

        Does nothing for an event that was not submitted as a job.

        Args:
            part: 0 to 1.

        Raises:
            InvalidArgument: it is no number from 0 to 1.
        """
        if not isinstance(cast("object", part), (int, float)) or not 0 <= part <= 1:
            raise invalid_argument("progress", part, "it must be a number from 0 to 1")
        if self._note_progress is not None:
            self._note_progress(float(part))


class AppTx(Emitter):
    """SQL in a transaction of eventproc: it may read everything and change tables whose names begin with `app_`.

    Transaction control, ATTACH and PRAGMA raise NotSupported. What `emit` is given is appended by the same transaction.
    """

    __slots__ = ("_cursors", "_tx")

    def __init__(self, tx: Tx) -> None:
        super().__init__()
        self._tx = tx
        self._cursors = WeakSet[Cursor]()

    def __repr__(self) -> str:
        return f"AppTx(now_ms={self._tx.now_ms})"

    @property
    def now_ms(self) -> int:
        """Time of the transaction: wall clock, ms since 1970."""
        return self._tx.now_ms

    def execute(self, sql: str, parameters: SqlParameters = ()) -> Cursor:
        """Run one statement. Fetch its rows before the function returns.

        Args:
            sql: One statement.
            parameters: Values of its placeholders.

        Raises:
            NotSupported: The statement is not allowed.
            CallEnded: The function has returned.
        """
        self._verify(sql)
        cursor = self._tx.execute(sql, parameters)
        self._cursors.add(cursor)
        return cursor

    def executemany(self, sql: str, parameters: Iterable[SqlParameters]) -> Cursor:
        """Run one statement for each row of parameters.

        Args:
            sql: One statement.
            parameters: A row of values for each run.

        Raises:
            NotSupported: The statement is not allowed.
            CallEnded: The function has returned.
        """
        self._verify(sql)
        return self._tx.executemany(sql, parameters)

    def _verify(self, sql: str) -> None:
        """Raise CallEnded and NotSupported."""
        if self._emitted is None:
            raise CallEnded
        self._tx.verify_statement(sql)

    def _end(self) -> Sequence[Emission]:
        """See `Emitter`. Ends statements whose rows were not all fetched: with some of them SQLite does not commit.

        A cursor may be kept, as by the traceback of an error.
        """
        for each in self._cursors:
            each.close()
        return super()._end()


@attrs.frozen
class SegmentEnd:
    """A segment all of whose events a processor has finished: it was sealed by a scale, a merge, or with its stream.

    Attributes:
        stream: Full name of its stream.
        segment: The segment.
        successors: Those that follow it, without empty ones that ended too; none if it was sealed with its stream. That
            of a merge waits for the others that were merged.
    """

    __repr__ = short_repr_of_fields

    stream: str
    segment: SegmentId
    successors: tuple[SegmentId, ...]


TablesChange: TypeAlias = Callable[[AppTx], object]
"""Called in a transaction of the store; what it returns is not used."""


def call_in_tx(
    tx: Tx, function: Callable[Concatenate[AppTx, A], T], *given: A.args, **named: A.kwargs
) -> tuple[T, Sequence[Emission]]:
    """Return what a function of the user returns, and what it has emitted, which this transaction appends.

    Raises what the function raises, and as `append_emissions`; then the transaction must not commit.
    """
    app_tx = AppTx(tx)
    OF_THREAD.in_tx = True
    try:
        with tx.user_sql():
            found = function(app_tx, *given, **named)
    finally:
        OF_THREAD.in_tx = False
        emitted = app_tx._end()
    append_emissions(tx, emitted)
    return found, emitted
