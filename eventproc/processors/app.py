"""An app: which handlers run on which streams, declared at module level, importable, run by `ep.run(app)`.

    app = eventproc.App()

    @app.processor("shop/orders", group="mailer", order="key", concurrency=100)
    async def mail(event: eventproc.Event) -> None: ...

Declaring runs nothing and opens nothing; every option is checked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack

import attrs

from eventproc.groups import GroupStart, group_name
from eventproc.processors.context import AppTx
from eventproc.processors.dead_letters.store import default_stream
from eventproc.processors.handler import Handler, check_handler, make_handler
from eventproc.processors.options import (
    EVENT_TIMEOUT_MS,
    ROUND_EVENTS,
    Batching,
    OnCommit,
    OnFailure,
    OnTruncated,
    Options,
    ProcessingOrder,
    RetryPolicy,
    Supervisor,
    check_function,
)
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import AlreadyExists
from eventproc.streams.codec import codec_for

T = TypeVar("T")

CONCURRENCY: Final = 100
"""Handlers in flight unless the processor says otherwise; a serial one has one."""

OrderName: TypeAlias = Literal["segment", "key"]
OnFailureName: TypeAlias = Literal["dead_letter", "skip", "stop"]


class Choices(TypedDict, total=False):
    """How a processor is to run; everything may be left out.

    group: progress is kept under this name, shared by all processes; a bare one takes the scope of the first stream;
    the processor's name unless given. name: for people, the handler's unless given. order: "segment" (serial), "key"
    (keyed, the default), None (concurrent). concurrency: calls in flight in a process; 1 if serial, else
    CONCURRENCY. payload: type of the payloads, as for readers; one that does not fit is a failure that no attempt
    mends. batch: events that the handler takes at once, at most; linger_ms: how long to wait for as many. retry: see
    RetryPolicy. timeout_ms: of one call; None for none, which exactly once does not allow; EVENT_TIMEOUT_MS there
    unless given, elsewhere none. on_failure: what becomes of an event whose attempts are spent: "dead_letter" (the
    default), "skip", "stop". dead_letters: the stream for it, "<group>-dead-letters" unless given. supervise:
    decides after such an event whether to resume, restart or stop. exactly_once: what a round of up to
    round_events emits, its progress and on_commit take effect together or not at all. on_commit: SQL of a round; it may
    run several times for one, and what one run did in its transaction is there then, see OnCommit. start: where a
    group that is not there yet begins, "head" unless given. on_truncated: where to go on when the next event is gone:
    "earliest" (the default), "latest", "error".
    """

    group: str
    name: str
    order: OrderName | None
    concurrency: int
    payload: type[object]
    batch: int
    linger_ms: int
    retry: RetryPolicy
    timeout_ms: int | None
    on_failure: OnFailureName
    dead_letters: str
    supervise: Supervisor
    exactly_once: bool
    on_commit: OnCommit
    round_events: int
    start: GroupStart
    on_truncated: OnTruncated


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

    def processor(self, *streams: str, **choices: Unpack[Choices]) -> Callable[[T], T]:
        """Decorate a handler: a function, or a class with `process` and, if it wants, `start` and `stop`.

        It takes an event (with `batch`, a list of them) and, if it has a second parameter, a `Context`. A plain
        `def` runs on a thread. streams: "scope/stream", at least one. choices: see `Choices`.

        Raises InvalidArgument, and AlreadyExists when the app has a processor of that name or group, or one whose dead
        letters go to the same stream.
        """

        def declare(target: T) -> T:
            self.add(target, *streams, **choices)
            return target

        return declare

    def add(self, handler: object, *streams: str, **choices: Unpack[Choices]) -> None:
        """Declare a processor without a decorator; see `processor`."""
        if unknown := sorted(choices.keys() - Choices.__annotations__.keys()):
            raise invalid_argument(
                "choice", unknown[0], f"a processor has {', '.join(Choices.__annotations__)}"
            )
        options = _options(handler, streams, choices)
        check_handler(handler, options.name)
        payload = choices.get("payload", bytes)
        codec_for(payload)
        for other in self._processors.values():
            if options.name == other.options.name:
                raise AlreadyExists(kind="processor", name=options.name)
            if options.group == other.options.group:
                raise AlreadyExists(kind="group of a processor", name=options.group)
            letters = _letters_of(options)
            if letters is not None and letters == _letters_of(other.options):
                raise AlreadyExists(kind="dead-letter stream of a processor", name=letters)
        self._processors[options.name] = Processor(options, handler, payload)

    def setup(self, function: Callable[[AppTx], None]) -> Callable[[AppTx], None]:
        """Decorate a function that makes the app's tables, whose names begin with `app_`.

        It runs at each start, in a transaction of its own, before any processor: `CREATE TABLE IF NOT EXISTS`.
        """
        check_function("setup", function)
        self._setups.append(function)
        return function


def _letters_of(options: Options) -> str | None:
    """Return the stream of the processor's dead letters, None when it writes none."""
    if options.on_failure is not OnFailure.DEAD_LETTER:
        return None
    return options.dead_letters or default_stream(options.group)


def _options(handler: object, streams: tuple[str, ...], choices: Choices) -> Options:
    name = choices.get("name") or getattr(handler, "__name__", None)
    if not name:
        raise invalid_argument("name", name, "the handler has none; give one")
    if not streams:
        raise invalid_argument("streams", streams, f"processor {name} needs at least one, as scope/stream")
    order = ProcessingOrder.of(choices.get("order", "key"))
    exactly_once, batch = choices.get("exactly_once", False), choices.get("batch")
    if batch is None and (linger_ms := choices.get("linger_ms")):
        raise invalid_argument(
            "linger_ms", linger_ms, "it is how long a batch waits to be full; give batch too"
        )
    if "round_events" in choices and not exactly_once:
        raise invalid_argument(
            "round_events", choices["round_events"], "only exactly_once=True goes in rounds"
        )
    return Options(
        name=name,
        streams=streams,
        group=group_name(choices.get("group") or name, streams),
        order=order,
        concurrency=choices.get("concurrency", 1 if order is ProcessingOrder.SEGMENT else CONCURRENCY),
        batching=None if batch is None else Batching(size=batch, linger_ms=choices.get("linger_ms", 0)),
        retry=choices.get("retry", RetryPolicy()),
        timeout_ms=choices.get("timeout_ms", EVENT_TIMEOUT_MS if exactly_once else None),
        on_failure=OnFailure.of(choices.get("on_failure", "dead_letter")),
        dead_letters=choices.get("dead_letters"),
        supervise=choices.get("supervise"),
        exactly_once=exactly_once,
        on_commit=choices.get("on_commit"),
        round_events=choices.get("round_events", ROUND_EVENTS),
        start=choices.get("start", "head"),
        on_truncated=choices.get("on_truncated", "earliest"),
    )
