"""A reader of a group: events of the segments that it owns, one by one or in batches.

Asking for the next event, or batch, finishes the previous one. Finished events become durable every second or 1000
events, at `commit()`, at the end of a segment, before a segment is given away, and on leaving. Leaving by an exception
does not finish what was delivered last. So a death repeats the events of one second, or 1000 events, at most.

Between two events the reader follows the group if it changed: it releases segments that are due to other readers, drops
what it had read ahead of them, and acquires segments that are due to itself. While its user works on an event it does
none of that: the segment of an event in hand is never given away.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic

import anyio
import attrs
from typing_extensions import TypeVar

from eventproc.base.tasks import HandleTasks, run_uninterrupted
from eventproc.groups.membership import DEFAULT_MEMBER, GroupMember, MemberOptions, join_member
from eventproc.groups.owned_segments import InFlight
from eventproc.groups.session import SAVE_EVENTS, MemberSession, OwnershipListener, StopOffsets
from eventproc.groups.state import SegmentOwnership
from eventproc.store.database import Database
from eventproc.store.groups import SegmentKey
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import Closed
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.openable import Openable
from eventproc.store.segments import Event
from eventproc.streams.joint_transaction import ProgressHold
from eventproc.streams.reader import Batch

if TYPE_CHECKING:
    from eventproc.store.model.time_marks import TimeWindow

LOG = logging.getLogger("eventproc.groups")

P = TypeVar("P", default=bytes)


class JoinedMember(Openable):
    """Base of what a user opens to read as a member of a group: the session, its background, and the next events.

    Opening joins the group. Leaving the block, as `close`, gives all segments back.
    """

    def __init__(
        self,
        db: Database,
        group: str,
        reader: str,
        what: str,
        chosen: MemberOptions = DEFAULT_MEMBER,
        auto_commit: bool = True,
    ) -> None:
        """what: what it is called, as "reader" or "consumer"."""
        super().__init__(f"{what} {reader} of {group}", db.handles)
        self._db = db
        self._group = group
        self.reader = reader
        self._chosen = chosen
        self._auto_commit = auto_commit
        self._member: GroupMember | None = None
        self._session: MemberSession | None = None
        self._stack = AsyncExitStack()
        self._tasks = HandleTasks(lambda _: self._wake())

    def _join(self) -> AbstractAsyncContextManager[GroupMember]:
        return join_member(self._db, self._group, self.reader, as_reader=True, chosen=self._chosen)

    def _listen(self) -> OwnershipListener:
        """Return what hears which segments are owned."""
        return OwnershipListener()

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            member = await stack.enter_async_context(self._join())
            streams = stack.enter_context(ExitStack())
            changes = stack.enter_context(self._db.subscribe())
            session = MemberSession(
                *(self._db, member, changes, streams), listener=self._listen(), auto_commit=self._auto_commit
            )
            stack.push_async_callback(self._tasks.stop)
            stack.callback(self._forget)
            self._member, self._session = member, session
            await session.follow()
            for task in (session.watch_group, session.keep_time, session.save_often):
                self._tasks.start_soon(task)
            stack.push_async_exit(self._save_last)
            self._stack = stack.pop_all()

    async def _finish(self, why: BaseException | None) -> None:
        await self._stack.__aexit__(None if why is None else type(why), why, None)

    def _forget(self) -> None:
        self._session = None

    def _wake(self) -> None:
        """Let an iteration that waits see that this reader was closed, or that a task of it failed."""
        if self._session is not None:
            self._session.wake()

    async def _save_last(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Save what is finished, on leaving. What was delivered last counts, unless an exception ends the block."""
        session, self._session = self._session, None
        assert session is not None, "an open reader has a session"

        async def save() -> None:
            async with session.turn:  # after what another task does for its next event
                session.end()
                if why is None:
                    session.finish()
                await session.complete()

        try:
            await run_uninterrupted(save)
        except Exception as failed:
            if why is None:
                raise
            LOG.warning("%s: failed to save progress on leaving: %s", self._group, failed)

    async def _advance(self, limits: StopOffsets | None, timeout_ms: int | None = None) -> bool | None:
        """Wait until there are events to deliver; return False at the end of the iteration, None after the time."""
        until = None if timeout_ms is None else anyio.current_time() + timeout_ms / 1000
        while True:
            await anyio.lowlevel.checkpoint()
            session = self._open
            async with session.turn:
                found = await self._step(session, limits)
            if found is not None:
                return found
            left_ms = None if until is None else math.ceil((until - anyio.current_time()) * 1000)
            if left_ms is not None and left_ms <= 0 and not session.is_behind:
                return None
            if not session.is_behind and not session.segments.done():
                await session.wait(left_ms)

    async def _step(self, session: MemberSession, limits: StopOffsets | None) -> bool | None:
        """Return True if there are events to deliver, False at the end, None if nothing is ready yet."""
        await session.follow()
        if limits is not None:
            await limits.ask(self._offsets())
        session.skip_expired()
        if session.waiting:
            return True
        if session.segments.done() or session.events_unsaved >= SAVE_EVENTS:
            await session.complete()
            if session.stale:
                return None
        if self._is_done(limits):
            return False
        await session.take(limits)
        if session.waiting:
            return True
        return False if session.is_held_at_an_end else None

    def _offsets(self) -> dict[SegmentKey, int]:
        assert self._member is not None, "an open reader is a member"
        offsets = {key: assignment.progress.offset for key, assignment in self._member.state.open.items()}
        return offsets | {owned.key: owned.finished.offset for owned in self._open.segments}

    def _is_done(self, limits: StopOffsets | None) -> bool:
        """Return whether this reader has nothing left to read: in the group, or before the limits."""
        assert self._member is not None, "an open reader is a member"
        state = self._member.state
        if limits is None:
            return state.is_finished
        offsets = self._offsets()
        due = [key for key, assignment in state.open.items() if assignment.target == self.reader]
        due += (each.key for each in state.reserves)  # partitions that lie before the limits may follow
        return all((limit := limits.of(key)) is not None and offsets[key] >= limit for key in due)

    @property
    def _open(self) -> MemberSession:
        if self._tasks.failure is not None:
            raise self._tasks.failure
        if self._session is None:
            raise Closed(what=self._what)
        return self._session


class GroupReader(JoinedMember, Generic[P]):
    """Reads events of a group, by one task at a time. Made by `Group.reader`.

    Open it with `async with`, or with `await` and `close`. Opening joins the group: see `Group.reader` for the
    errors. Leaving the block, as `close`, gives all segments back. If another task closes it, an iteration that waits
    raises Closed.
    """

    def __init__(
        self, db: Database, group: str, reader: str, *, decode: Callable[[bytes], P] | None = None
    ) -> None:
        """decode: makes payloads from bytes. None: payloads stay bytes."""
        super().__init__(db, group, reader, "reader")
        self._decode = decode
        # {stream id: number of the last mark of time that the group has passed}
        self._passed: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"GroupReader({self._group!r}, {self.reader!r}, {self._state})"

    @property
    def owned(self) -> tuple[SegmentOwnership, ...]:
        """The segments that this reader owns at this moment."""
        return tuple(
            attrs.evolve(owned.assigned, segment=printable(owned.assigned.segment))
            for owned in self._open.segments
        )

    @property
    def position(self) -> dict[str, dict[SegmentId, int]]:
        """The reader's position, {stream: {segment: offset}}: all delivered events lie before it."""
        session = self._open
        found: dict[str, dict[SegmentId, int]] = {}
        for owned in session.segments:
            found.setdefault(owned.assigned.stream, {})[printable(owned.key[1])] = owned.finished.offset
        for each in (each for each in session.in_flight if each.owned in session.segments):
            found[each.owned.assigned.stream][each.owned.key[1]] = each.end
        return found

    def hold_progress(self, txn: str) -> ProgressHold:
        """Let only a joint transaction move the progress, until the transaction ends. `ep.transaction` calls it.

        Until then the reader keeps its segments, and an iteration ends where a segment ends.

        Args:
            txn: the transaction's id.

        Raises:
            Closed: the reader is not open.
            IllegalTransition: another transaction holds the progress.
        """
        return self._open.hold(txn)

    async def commit(self) -> None:
        """Finish every delivered event, the last one included, and make that durable.

        Raises:
            NotFound: the group was deleted.
            IllegalTransition: a joint transaction holds the progress, and moves it with its commit.

        Cost:
            One write, if anything is finished that is not durable.
        """
        session = self._open
        session.verify_free("commit")
        session.finish()
        await session.save(complete=False)

    async def time_window(self, stream: str | None = None) -> TimeWindow:
        """Return between which times of its writers the group stands, as they said by `note_time`.

        It is the group's position that counts, as its readers made it durable: see `commit`. While that moves on, no
        bound goes back; but `upper` is None while the position is behind all that the writers said.

        Args:
            stream: full name of one of the group's streams. None (default): all of them, with the lowest `lower` and
                the highest `upper`, each unknown where it is unknown in one of them.

        Raises:
            InvalidArgument: the group does not read the stream.
            NotFound: the group was deleted.
            StreamReplaced: a stream of the group was deleted.
            Closed: the reader is not open.

        Cost:
            One read.
        """
        from eventproc.groups.time_windows import group_windows  # few programs need it
        from eventproc.store.model.time_marks import widest

        if stream is not None:
            check_str("stream", stream)
        self._open  # noqa: B018 - raises Closed
        windows, passed = await self._db.read(
            partial(group_windows, group=self._group, stream=stream, passed=self._passed)
        )
        self._passed |= passed
        return widest(windows)

    def __aiter__(self) -> AsyncGenerator[Event[P], None]:
        """Yield events, waiting for more. Ends when all streams of the group are sealed and processed.

        A group that reads streams to be created does not end: see `Consumer.poll`.

        Use `contextlib.aclosing` to leave such a loop early, as with any async generator.

        Raises:
            NotFound: the group was deleted.
            GroupStreamReplaced: a stream of the group was deleted.
            ReaderFenced: another process reads under this id.
            Truncated: unread events were truncated, and the group's `on_truncated` is "error".
        """
        return self._events(None)

    def until(self, cut: StreamCut | Iterable[StreamCut]) -> AsyncGenerator[Event[P], None]:
        """Yield this reader's events before `cut`, then end.

        Args:
            cut: a stream cut, or several of different streams. Streams of the group without a cut are not read.

        Raises:
            InvalidArgument: not a cut of a stream that the group reads.
            InvalidCut: the cut does not fit the stream.
            StreamReplaced: the cut is one of a deleted stream of that name.
            NotFound, GroupStreamReplaced, ReaderFenced, Truncated: as for iterating.
        """
        return self._events(cut)

    async def batches(
        self, *, until: StreamCut | Iterable[StreamCut] | None = None
    ) -> AsyncGenerator[Batch[P], None]:
        """Yield batches of events, as iterating or `until` does. Costs a few calls for each batch, whatever its size.

        Args:
            until: as the cut of `until`. None (default): wait for more events.

        Raises:
            As `until`.
        """
        limits = await self._begin(until)
        while await self._advance(limits):
            session = self._open
            yield Batch(
                [(each.owned.assigned.stream, each.run) for each in session.take_waiting()], self._decode
            )
            self._open.finish()

    async def _events(self, until: StreamCut | Iterable[StreamCut] | None) -> AsyncGenerator[Event[P], None]:
        limits = await self._begin(until)
        while await self._advance(limits):
            session = self._open
            in_flight = session.waiting.popleft()
            session.in_flight = [in_flight]
            saved = 0
            session.mark()
            stream = in_flight.owned.assigned.stream
            for count, event in enumerate(in_flight.run.events(stream, self._decode), start=1):
                in_flight.count = count
                yield event
                in_flight.done = count
                if not session.is_marked:
                    session.mark()
                if session.must_follow() or count - saved >= SAVE_EVENTS:
                    saved = count
                    async with session.turn:
                        in_flight.finish()
                        await (session.follow() if session.stale else session.save(complete=False))
                if not session.in_flight:  # its segment was lost or released
                    break
            self._open.finish()

    async def _take_back(self, _: object) -> None:
        """Count what was delivered last, and is not finished, as not delivered: a thread was interrupted before it."""
        if self._session is not None:
            for each in self._session.in_flight:
                each.count = each.done

    async def _begin(self, until: StreamCut | Iterable[StreamCut] | None) -> StopOffsets | None:
        """Finish what an earlier iteration delivered, and continue behind it."""
        session = self._open
        async with session.turn:
            session.finish()
            session.rewind()
            await session.follow()
        assert self._member is not None, "an open reader is a member"
        return None if until is None else StopOffsets(self._db, self._member.state.streams, until)


class ThreadBatch(Generic[P]):
    """A run whose events a thread beside the event loop delivers. Made by `ThreadIteration.advance`."""

    def __init__(
        self, session: MemberSession, in_flight: InFlight, decode: Callable[[bytes], P] | None
    ) -> None:
        self._session = session
        self._in_flight = in_flight
        self._decode = decode
        self._saved = 0

    def events(self, keep_up: Callable[[], bool]) -> Iterator[Event[P]]:
        """Yield the events; on the thread. keep_up: runs the method of that name on the event loop."""
        in_flight = self._in_flight
        last, stream = len(in_flight.run), in_flight.owned.assigned.stream
        try:
            for count, event in enumerate(in_flight.run.events(stream, self._decode), start=1):
                yield event
                if count == last or self._must_keep_up(count):
                    in_flight.done = count
                    if count == last or not keep_up():
                        return
                else:
                    in_flight.count = count + 1
                    in_flight.done = count
        except GeneratorExit:
            raise
        except BaseException:  # such as of a payload that cannot be decoded: its event was not delivered
            in_flight.count = in_flight.done
            raise

    def _must_keep_up(self, count: int) -> bool:
        # The loop may change these values while this thread reads them; an older value does no harm. A `commit`
        # may have finished this event already: then its segment may be given away, now or earlier.
        session, is_idle = self._session, self._in_flight.done == count
        must_save = not session.is_marked or count - self._saved >= SAVE_EVENTS
        return is_idle or must_save or session.must_follow()

    async def keep_up(self) -> bool:
        """Follow the group and save, between two events; on the loop. Return whether the run is still this reader's."""
        session, in_flight = self._session, self._in_flight
        async with session.turn:
            in_flight.finish()
            session.mark()
            if session.stale:
                await session.follow()
            elif in_flight.done - self._saved >= SAVE_EVENTS:
                await session.save(complete=False)
                self._saved = in_flight.done
            if in_flight not in session.in_flight:  # its segment was lost or released
                return False
            in_flight.count += 1
            return True


class ThreadIteration(Generic[P]):
    """One iteration over a group reader for a thread beside the event loop. Its methods run on the loop.

    It hands over one run of events at a time, not one event. Everything that holds for iterating a reader holds
    here. The thread counts the events it delivers in `InFlight`; `count` stays ahead of `done` from the first event to
    the last, so that the loop never finds the reader idle between two events.
    """

    def __init__(self, reader: GroupReader[P], until: StreamCut | Iterable[StreamCut] | None) -> None:
        self._reader = reader
        self._until = until
        self._begun = False
        self._limits: StopOffsets | None = None

    async def advance(self) -> ThreadBatch[P] | None:
        """Finish the run before, and wait for the next one; None at the end. Raises as iterating does."""
        reader = self._reader
        if self._begun:
            reader._open.finish()
        else:
            self._limits = await reader._begin(self._until)
            self._begun = True
        if not await reader._advance(self._limits):
            return None
        session = reader._open
        in_flight = session.waiting.popleft()
        in_flight.count = 1
        session.in_flight = [in_flight]
        return ThreadBatch(session, in_flight, reader._decode)
