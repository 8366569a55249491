"""An app: which handlers run on which streams, declared at module level, importable, run by `ep.run(app)`.

    app = eventproc.App()

    @app.processor("shop/orders", group="mailer", order="key", concurrency=100)
    async def mail(event: eventproc.Event) -> None: ...

Declaring runs nothing and opens nothing; every option is checked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar

import attrs

from eventproc.groups import GroupStart, group_name
from eventproc.processors.context import AppTx
from eventproc.processors.handler import Handler, check_handler, make_handler
from eventproc.processors.options import (
    EVENT_TIMEOUT_MS,
    ROUND_EVENTS,
    Batching,
    OnCommit,
    OnFailure,
    OnTruncated,
    Options,
    Order,
    RetryPolicy,
    Supervisor,
)
from eventproc.store.model.arguments import refused
from eventproc.store.model.errors import AlreadyExists

T = TypeVar("T")

CONCURRENCY: Final = 100
"""Handlers in flight unless the processor says otherwise; a serial one has one."""

OrderName: TypeAlias = Literal["segment", "key"]
OnFailureName: TypeAlias = Literal["dead_letter", "skip", "stop"]

_UNSET: Final = -1


@attrs.frozen
class Processor:
    """A declared processor. target: the function, or the class of which each process makes an instance."""

    options: Options
    target: object
    payload: type[object]

    def make(self) -> Handler:
        """Return the handler, made anew."""
        return make_handler(self.target, self.payload)


class App:
    """Processors that are run together. Any number of processes may run the same app on one directory."""

    def __init__(self) -> None:
        self._processors: dict[str, Processor] = {}
        self._setups: list[Callable[[AppTx], None]] = []

    @property
    def processors(self) -> tuple[Processor, ...]:
        """What was declared, in that order."""
        return tuple(self._processors.values())

    @property
    def setups(self) -> tuple[Callable[[AppTx], None], ...]:
        """The functions given to `setup`, in that order."""
        return tuple(self._setups)

    def processor(
        self,
        *streams: str,
        group: str | None = None,
        name: str | None = None,
        order: OrderName | None = "key",
        concurrency: int | None = None,
        payload: type[object] = bytes,
        batch: int | None = None,
        linger_ms: int = 0,
        retry: RetryPolicy | None = None,
        timeout_ms: int | None = _UNSET,
        on_failure: OnFailureName = "dead_letter",
        dead_letters: str | None = None,
        supervise: Supervisor | None = None,
        exactly_once: bool = False,
        on_commit: OnCommit | None = None,
        round_events: int = ROUND_EVENTS,
        start: GroupStart = "head",
        on_truncated: OnTruncated = "earliest",
    ) -> Callable[[T], T]:
        """Decorate a handler: a function, or a class with `process` and, if it wants, `start` and `stop`.

        It takes an event (with `batch`, a list of up to so many; fewer when no more came within linger_ms) and, if
        it has a second parameter, a `Context`. A plain `def` runs on a thread.

        streams: "scope/stream", at least one. group: progress is kept under this name, shared by all processes; a
        bare one takes the scope of the first stream; the handler's name unless given. name: for people, the handler's
        unless given. order: "segment" (serial), "key" (keyed), None (concurrent). concurrency: calls in flight in a
        process; 1 if serial, else CONCURRENCY. payload: type of the payloads, as for readers; one that does not fit
        is a failure that no attempt mends. retry: see RetryPolicy. timeout_ms: of one call; None for none, which
        exactly once does not allow; its default there is EVENT_TIMEOUT_MS, elsewhere none. on_failure: what becomes
        of an event whose attempts are spent. dead_letters: the stream for it, "<group>-dead-letters" unless given.
        supervise: decides after such an event whether to resume, restart or stop. exactly_once: emissions, progress
        and `on_commit` of a round of up to round_events take effect together or not at all. start: where a group
        that is not there yet begins. on_truncated: where to go on when the next event is gone.

        Raises InvalidArgument, and AlreadyExists when the app has a processor of that name or group.
        """

        def declare(target: T) -> T:
            self.add(
                target,
                *streams,
                group=group,
                name=name,
                order=order,
                concurrency=concurrency,
                payload=payload,
                batch=batch,
                linger_ms=linger_ms,
                retry=retry,
                timeout_ms=timeout_ms,
                on_failure=on_failure,
                dead_letters=dead_letters,
                supervise=supervise,
                exactly_once=exactly_once,
                on_commit=on_commit,
                round_events=round_events,
                start=start,
                on_truncated=on_truncated,
            )
            return target

        return declare

    def add(
        self,
        handler: object,
        *streams: str,
        group: str | None = None,
        name: str | None = None,
        order: OrderName | None = "key",
        concurrency: int | None = None,
        payload: type[object] = bytes,
        batch: int | None = None,
        linger_ms: int = 0,
        retry: RetryPolicy | None = None,
        timeout_ms: int | None = _UNSET,
        on_failure: OnFailureName = "dead_letter",
        dead_letters: str | None = None,
        supervise: Supervisor | None = None,
        exactly_once: bool = False,
        on_commit: OnCommit | None = None,
        round_events: int = ROUND_EVENTS,
        start: GroupStart = "head",
        on_truncated: OnTruncated = "earliest",
    ) -> None:
        """Declare a processor without a decorator; see `processor`."""
        named = name or getattr(handler, "__name__", None)
        if not named:
            raise refused("name", named, "the handler has none; give one")
        if not streams:
            raise refused("streams", streams, f"processor {named} needs at least one, as scope/stream")
        options = Options(
            name=named,
            streams=streams,
            group=group_name(group or named, streams),
            order=Order.of(order),
            concurrency=(1 if order == "segment" else CONCURRENCY) if concurrency is None else concurrency,
            batching=None if batch is None else Batching(size=batch, linger_ms=linger_ms),
            retry=retry or RetryPolicy(),
            timeout_ms=(EVENT_TIMEOUT_MS if exactly_once else None) if timeout_ms == _UNSET else timeout_ms,
            on_failure=OnFailure.of(on_failure),
            dead_letters=dead_letters,
            supervise=supervise,
            exactly_once=exactly_once,
            on_commit=on_commit,
            round_events=round_events,
            start=start,
            on_truncated=on_truncated,
        )
        if linger_ms and batch is None:
            raise refused(
                "linger_ms", linger_ms, "it is how long a batch waits to become full; give batch too"
            )
        check_handler(handler, named)
        for other in self._processors.values():
            if options.name == other.options.name:
                raise AlreadyExists(kind="processor", name=options.name)
            if options.group == other.options.group:
                raise AlreadyExists(kind="group of a processor", name=options.group)
        self._processors[options.name] = Processor(options, handler, payload)

    def setup(self, function: Callable[[AppTx], None]) -> Callable[[AppTx], None]:
        """Decorate a function that makes the app's tables, whose names begin with `app_`.

        It runs at each start, in a transaction of its own, before any processor: `CREATE TABLE IF NOT EXISTS`.
        """
        self._setups.append(function)
        return function
