"""An open directory, without `await`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path

from eventproc.blocking.group import BlockingReaderGroup
from eventproc.blocking.letters import BlockingDeadLetters
from eventproc.blocking.loop import Loop, running_loop
from eventproc.blocking.running import BlockingRunning, running_app
from eventproc.blocking.stream import BlockingStream
from eventproc.groups import GroupEnd, GroupInfo, GroupStart, TruncatedPolicy
from eventproc.processors import GRACE_MS, App, ProcessorDescription
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.catalog import Scope, StreamRecord
from eventproc.store.clock import Clock
from eventproc.store.database import Durability
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.requests import Request
from eventproc.streams.perform import WAIT_MS
from eventproc.workflows.requests import AnyRequest


class BlockingEventproc:
    """An open directory; made by `open_blocking`, usable from any thread until its block ends. See `Eventproc`."""

    def __init__(self, loop: Loop, system: Eventproc) -> None:
        self._loop = loop
        self._system = system

    @property
    def path(self) -> Path | None:
        """The directory."""
        return self._system.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._system.durability

    def create_scope(self, name: str) -> None:
        """Make a scope; one that is there is fine. See `Eventproc.create_scope`."""
        self._loop.call(self._system.create_scope, name)

    def delete_scope(self, name: str, *, recursive: bool = False, timeout_ms: int = WAIT_MS) -> None:
        """Remove a scope. See `Eventproc.delete_scope`."""
        self._loop.call(partial(self._system.delete_scope, name, recursive=recursive, timeout_ms=timeout_ms))

    def scopes(self) -> list[Scope]:
        """Return the scopes, by name."""
        return self._loop.call(self._system.scopes)

    def create_stream(
        self, name: str, *, scaling: ScalingPolicy | None = None, timeout_ms: int = WAIT_MS
    ) -> BlockingStream:
        """Make a stream and return its handle. See `Eventproc.create_stream`."""
        made = self._loop.call(
            partial(self._system.create_stream, name, scaling=scaling, timeout_ms=timeout_ms)
        )
        return BlockingStream(self._loop, made)

    def stream(self, name: str) -> BlockingStream:
        """Return the handle of a stream. Raises NotFound naming what is missing, InvalidArgument."""
        return BlockingStream(self._loop, self._loop.call(self._system.stream, name))

    def streams(self, scope: str | None = None) -> list[StreamRecord]:
        """Return the streams of a scope, or of all, by name. Raises NotFound."""
        return self._loop.call(self._system.streams, scope)

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
        """Make a group of readers that share `streams`. See `Eventproc.create_reader_group`."""
        made = self._loop.call(
            partial(
                self._system.create_reader_group,
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
        """Return the handle of a group, "scope/group". Raises NotFound, InvalidArgument."""
        return BlockingReaderGroup(self._loop, self._loop.call(self._system.reader_group, name))

    def reader_groups(self, scope: str | None = None) -> list[GroupInfo]:
        """Return the groups of a scope, or of all, those of processors included, by name. Raises NotFound."""
        return self._loop.call(self._system.reader_groups, scope)

    def submit(
        self,
        request: AnyRequest,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> Request:
        """Post a request without waiting for its outcome, and return it. See `Eventproc.submit`."""
        return self._loop.call(
            partial(
                self._system.submit,
                request,
                request_id=request_id,
                within_ms=within_ms,
                timeout_ms=timeout_ms,
            )
        )

    def request(self, request_id: str) -> Request:
        """Return a request and what became of it. Raises NotFound."""
        return self._loop.call(self._system.request, request_id)

    def requests(self, *, limit: int = 100) -> list[Request]:
        """Return the newest requests, newest first."""
        return self._loop.call(partial(self._system.requests, limit=limit))

    def wait_request(self, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
        """Return a request once it is done or rejected, whoever runs it. Raises NotFound, StillPending."""
        return self._loop.call(partial(self._system.wait_request, request_id, timeout_ms=timeout_ms))

    def dead_letters(self, group: str) -> BlockingDeadLetters:
        """Return the dead letters of the processors' group `group`. See `Eventproc.dead_letters`."""
        return BlockingDeadLetters(self._loop, self._system.dead_letters(group))

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> AbstractContextManager[BlockingRunning]:
        """Run the app's processors while the block does: `with ep.run(app) as running: running.wait()`.

        Handlers run on the loop's thread, plain functions on others: never on the caller's. Ctrl-C, which interrupts
        the block, drains as its end does; a second one, while it drains, cancels the calls that run. See
        `Eventproc.run`.
        """
        return running_app(self._loop, self._system.run(app, grace_ms=grace_ms))

    def processors(self) -> list[ProcessorDescription]:
        """Return the processors that ever ran here. See `Eventproc.processors`."""
        return self._loop.call(self._system.processors)

    def processor(self, group: str) -> ProcessorDescription:
        """Return the processor whose group is `group`. Raises NotFound, NotAProcessorGroup."""
        return self._loop.call(self._system.processor, group)

    def pause_processor(self, group: str) -> None:
        """Pause a processor durably, in all processes. See `Eventproc.pause_processor`."""
        self._loop.call(self._system.pause_processor, group)

    def resume_processor(self, group: str) -> None:
        """Take back `pause_processor`. Raises NotFound, NotAProcessorGroup."""
        self._loop.call(self._system.resume_processor, group)


@contextmanager
def open_blocking(
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> Iterator[BlockingEventproc]:
    """Open the directory `path` for code without `await`; everything as `open`.

    Runs an event loop in a thread of its own until the block ends. A forked child can use nothing of it
    (ForkedError); leaving the block there does nothing, and what was posted is its parent's to write.
    """
    with running_loop() as loop:
        opening = open_directory(
            path, durability=durability, create=create, host=host, clock=clock, faults=faults
        )
        # What the block raises stays on this side: an interrupt raised again on the loop's thread would
        # end the loop before the directory is closed.
        entered = loop.entered(opening)
        system = entered.__enter__()
        try:
            yield BlockingEventproc(loop, system)
        finally:
            if not loop.forked:
                entered.__exit__(None, None, None)
