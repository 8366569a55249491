"""What goes wrong with processors and their handlers."""

from __future__ import annotations

from eventproc.store.model.advice import Rejected, error


@error
class HandlerTimeout(Rejected):
    """A call of a handler took longer than its timeout, and was cancelled; it counts as a failed attempt."""

    processor: str
    timeout_ms: int

    def __str__(self) -> str:
        return f"{self.processor}: the handler was cancelled after {self.timeout_ms / 1000:g} s"


@error
class CallEnded(Rejected):
    """Something emitted for a call of a handler that is over: nothing would make it durable with its event."""

    attempt: int

    def __str__(self) -> str:
        return "the handler has returned: what it starts must end before it does, or it cannot emit"


@error
class HandlerCancelled(Rejected):
    """A call of a handler ended as cancelled, though nobody cancelled it: what it awaited was; it counts as failed."""

    processor: str

    def __str__(self) -> str:
        return f"{self.processor}: something that the handler awaited was cancelled"


@error
class HandlerStuck(Rejected):
    """A handler on a thread, which nothing can interrupt, overran its timeout."""

    processor: str
    event: str
    timeout_ms: int

    def __str__(self) -> str:
        return (
            f"{self.processor}: the handler still runs for {self.event} after {self.timeout_ms / 1000:g} s, and a "
            "plain function on a thread cannot be interrupted; give it time limits of its own, or make it async"
        )


@error
class ProcessorFailed(Rejected):
    """A processor stopped because of a failure; what it had not finished will be handled again when it is run."""

    processor: str
    reason: str

    def __str__(self) -> str:
        return f"processor {self.processor} stopped: {self.reason}"


@error
class NotOfProcessor(Rejected):
    """The group is there, and no processor's: readers share it."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"group {self.group!r} is no processor's but one of {self.kind}"
