"""An open directory, without `await`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

from eventproc.blocking._generated import DeadLettersCalls, EventprocCalls, RequestsCalls
from eventproc.blocking.group import BlockingReaderGroup
from eventproc.blocking.loop import Loop, Opened
from eventproc.blocking.running import BlockingRunning, running_app
from eventproc.blocking.stream import BlockingStream
from eventproc.blocking.synchronizer import BlockingStateSynchronizer
from eventproc.groups import GroupEnd, GroupStart, TruncatedPolicy
from eventproc.processors import GRACE_MS, App
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.clock import Clock
from eventproc.store.database import Durability
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.openable import Opening
from eventproc.store.replicated import ReplicatedType
from eventproc.streams import Codec
from eventproc.streams.request_calls import WAIT_MS

P = TypeVar("P")
S = TypeVar("S")
U = TypeVar("U")


class BlockingRequests(RequestsCalls):
    """The requests of a directory; `ep.requests`. See `Requests`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"


class BlockingDeadLetters(DeadLettersCalls):
    """The dead letters of one group; made by `BlockingEventproc.dead_letters`. See `DeadLetters`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @property
    def group(self) -> str:
        """The group's full name."""
        return self._twin.group


class BlockingEventproc(EventprocCalls, Opened):
    """An open directory; made by `open_blocking`, usable from any thread until it is closed. See `Eventproc`.

    Closing it closes the writers, readers and running apps that are still open, the newest first.
    """

    def __init__(self, loop: Loop, system: Eventproc) -> None:
        super().__init__(loop, system)
        self.requests = BlockingRequests(loop, system.requests)

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    def __del__(self) -> None:
        if not (self.closed or self._loop.forked):
            text = f"unclosed {self!r}: leave its `with`, or call `ep.close()`"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _leave(self, why: BaseException | None) -> None:
        interrupted = True
        try:
            with ExitStack() as closing:
                closing.callback(super()._leave, why)
                for each in self._loop.opened:
                    closing.callback(each.__exit__, None if why is None else type(why), why, None)
            interrupted = False
        finally:
            self._loop.end(interrupted=interrupted)

    @property
    def path(self) -> Path | None:
        """The directory."""
        return self._twin.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._twin.durability

    @overload
    def create_stream(
        self, name: str, *, scaling: ScalingPolicy | None = None, timeout_ms: int = WAIT_MS
    ) -> BlockingStream: ...
    @overload
    def create_stream(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        scaling: ScalingPolicy | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingStream[P]: ...
    def create_stream(
        self,
        name: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        scaling: ScalingPolicy | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingStream[Any]:
        """Create a stream and return its handle. See `Eventproc.create_stream`."""
        made = self._loop.call(
            partial(
                self._twin.create_stream,
                name,
                payload=payload,
                codec=codec,
                scaling=scaling,
                timeout_ms=timeout_ms,
            )
        )
        return BlockingStream(self._loop, made)

    @overload
    def stream(self, name: str) -> BlockingStream: ...
    @overload
    def stream(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingStream[P]: ...
    def stream(
        self, name: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> BlockingStream[Any]:
        """Return the handle of a stream. See `Eventproc.stream`."""
        found = self._loop.call(partial(self._twin.stream, name, payload=payload, codec=codec))
        return BlockingStream(self._loop, found)

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        lease_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
    ) -> BlockingReaderGroup:
        """Create a group of readers that share `streams`. See `Eventproc.create_reader_group`."""
        made = self._loop.call(
            partial(
                self._twin.create_reader_group,
                name,
                streams,
                start=start,
                until=until,
                lease_ms=lease_ms,
                checkpoint_ms=checkpoint_ms,
                on_truncated=on_truncated,
            )
        )
        return BlockingReaderGroup(self._loop, made)

    def reader_group(self, name: str) -> BlockingReaderGroup:
        """Return the handle of a reader group. See `Eventproc.reader_group`."""
        return BlockingReaderGroup(self._loop, self._loop.call(self._twin.reader_group, name))

    def synchronizer(
        self, name: str, kind: ReplicatedType[S, U], *, initial: S | None = None
    ) -> BlockingStateSynchronizer[S, U]:
        """Return a member's copy of an object that several processes share. See `Eventproc.synchronizer`."""
        member = self._loop.call(partial(self._twin.synchronizer, name, kind, initial=initial))
        return BlockingStateSynchronizer(self._loop, member)

    def dead_letters(self, group: str) -> BlockingDeadLetters:
        """Return the dead letters of a processor's group. See `Eventproc.dead_letters`."""
        return BlockingDeadLetters(self._loop, self._twin.dead_letters(group))

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until the result is closed: `with ep.run(app) as running: running.wait()`.

        Async handlers run on the loop's thread, plain functions on other threads; none runs on the caller's. Ctrl-C
        interrupts the block and drains, as its end does; a second one while it drains cancels the running calls. See
        `Eventproc.run`.
        """
        return running_app(self._loop, self._twin.run(app, grace_ms=grace_ms))


def open_blocking(
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> BlockingEventproc:
    """Open the directory `path` for code without `await`; everything as `open`.

    Use it in `with`, or call `close`. Runs an event loop in a thread of its own until then. A forked child can use
    nothing of it (ForkedError); closing it there does nothing, and what was posted is its parent's to write.
    """
    opening = open_directory(
        path, durability=durability, create=create, host=host, clock=clock, faults=faults
    )
    loop = Loop.begin()
    try:
        return BlockingEventproc(loop, open_on(loop, opening))
    except BaseException:
        loop.end(interrupted=True)
        raise


def open_on(loop: Loop, opening: Opening[Eventproc]) -> Eventproc:
    """Open a directory on a loop."""

    async def start() -> Eventproc:
        return await opening

    return loop.open(start, Eventproc.close)
