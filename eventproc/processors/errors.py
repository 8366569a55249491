"""Errors of processors and their handlers. Users import them from `eventproc.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from eventproc.store.model.errors import Rejected, error
from eventproc.store.model.group_errors import OWNERS

ERROR_CHARS_MAX: Final = 4096
"""Longest text of an error that a dead letter keeps, in characters; also of its type's and its processor's name.
Higher: listing dead letters reads a page of text for each. Lower: long messages lose their end."""

LEAVES_MAX: Final = 8
"""Errors of an exception group that its text names. Higher: long lines for a group of many equal errors."""


@error
class HandlerTimeout(Rejected):
    """A handler's call took longer than its timeout and was cancelled; it counts as a failed attempt.

    Make the handler faster, or raise the processor's `timeout_ms`.
    """

    processor: str
    timeout_ms: int

    def __str__(self) -> str:
        return f"{self.processor}: the handler was cancelled after {self.timeout_ms / 1000:g} s"


@error
class CallEnded(Rejected):
    """`emit` or SQL came after the handler or function had returned, so it would not be durable with what that did.

    Await everything that the handler starts before it returns.
    """

    _text = (
        "the function has returned: what it starts must end before, or it can neither emit nor change tables"
    )


@error
class HandlerCancelled(Rejected):
    """A task or future that the handler awaited was cancelled, but the handler was not; a failed attempt.

    Find the task or future that the handler awaits, and the code that cancels it.
    """

    _text = "{processor}: something that the handler awaited was cancelled"
    processor: str


@error
class HandlerStuck(Rejected):
    """A plain function on a thread, which nothing can interrupt, overran its timeout.

    Give the function time limits of its own, or make it async.
    """

    processor: str
    event: str
    timeout_ms: int

    def __str__(self) -> str:
        return (
            f"{self.processor}: the handler still runs for {self.event} after {self.timeout_ms / 1000:g} s, and a "
            "plain function on a thread cannot be interrupted; give it time limits of its own, or make it async"
        )


@error
class PayloadUndecodable(Rejected):
    """The payload of an event is not of the processor's payload type, which no repetition changes: the last attempt.

    Correct the payload type or the codec and redrive the dead letter, or drop it.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@error
class KeyNeeded(Rejected):
    """A processor with a state by key got an event without a key, which no repetition changes: the last attempt.

    Write the events of the stream with keys.
    """

    _text = "{processor} keeps a state by key, and this event has none"
    processor: str


@error
class EventLate(Rejected):
    """An event came after its windows had closed, or its partners may be forgotten. No repetition changes that.

    Let windows or events wait for longer (`grace_ms`), or give late events a stream (`late`).
    """

    _text = "{processor}: an event of {time} ms came when event time had reached {watermark} ms, which is too late"
    processor: str
    time: int
    watermark: int


@error
class ProcessorFailed(Rejected):
    """A processor stopped because of a failure.

    Correct the cause and run the app again: it continues with the first unfinished event.
    """

    _text = "processor {processor} stopped: {reason}"
    processor: str
    reason: str


@error
class HandlerAbandoned(ProcessorFailed):
    """User code of a processor still ran, some time after its cancellation, when the app was closed.

    Let cancellations pass: `except Exception` does not catch them. End the process: the code goes on until then.
    """

    _text = (
        "processor {processor} was abandoned: {reason} ignores its cancellation and goes on; let "
        "cancellations pass (`except Exception` does not catch them), and end the process"
    )


@error
class NotAProcessorGroup(Rejected):
    """The group belongs to readers, share consumers or clients of Kafka or Pravega, and not to a processor or worker.

    Use `ep.group(name)` or `ep.share_group(name)`, or give the group of a processor or worker.
    """

    group: str
    kind: str

    def __str__(self) -> str:
        return f"group {self.group!r} belongs to {OWNERS.get(self.kind, self.kind)}, not to a processor or worker"


def type_name(kind: type) -> str:
    """Return the name of a class for dead letters and measurements: with its module, unless it is a built-in."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_text(why: BaseException) -> str:
    """Return the text of an error, even if its `str()` fails; that of a group also names the errors in it."""
    try:
        text = str(why)
    except Exception:
        text = "it has no text: its str() fails"
    if isinstance(why, BaseExceptionGroup):
        leaves = [failure_text(each) for each in islice(_leaves(why), LEAVES_MAX + 1)]
        if len(leaves) > LEAVES_MAX:
            leaves[-1] = "..."
        return f"{text}: {', '.join(leaves)}"
    return text


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors of a group, and of the groups in it."""
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def failure_text(why: BaseException) -> str:
    """Return an error as a status shows it: its class and its text, at most ERROR_CHARS_MAX characters."""
    return f"{type(why).__name__}: {error_text(why)}"[:ERROR_CHARS_MAX]
