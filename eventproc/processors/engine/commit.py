"""The transaction that makes finished events durable: progress, emitted events, dead letters, the user's SQL.

One transaction covers all segments of a processor. If a segment turns out to be lost, it is repeated without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from eventproc.groups import Membership, get_group
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.groups.truncation import skip
from eventproc.processors.context import AppTx, SegmentEnd
from eventproc.processors.dead_letters.operations import append_letters
from eventproc.processors.emit import append_emissions
from eventproc.processors.engine.committer import LOG, Committer, Outbox
from eventproc.processors.engine.states import KeyStateCache
from eventproc.processors.errors import ProcessorFailed
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import Telemetry
from eventproc.processors.options import OnSegmentEnd, Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import SegmentKey, note_committed
from eventproc.store.key_states import KeyChange, store_changes
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import format_segment, printable
from eventproc.store.model.progress import Progress
from eventproc.store.watermarks import event_time_of, note_event_times

PROGRESS_TABLE: Final = "eventproc_progress"
"""Name of the table with the progress of projections, in a database of the user."""


class UserDatabaseFenced(Exception):
    """The user's database has a later owner of the segment `key`, or its row was changed by others."""

    def __init__(self, key: SegmentKey) -> None:
        super().__init__(
            f"{PROGRESS_TABLE} in its database knows a later owner of segment {format_segment(key[1])} than this"
            " store, or its row was changed: empty the read model and the table, and reset the group"
        )
        self.key = key


class SuccessorsUnknown(Exception):
    """The stream was truncated beyond the successors of the segment `owned`, so they cannot be found any more."""

    def __init__(self, owned: OwnedSegment) -> None:
        super().__init__(owned)
        self.owned = owned


@attrs.frozen
class ProgressCommit:
    """One commit of a processor.

    moved: segments and their progress.
    held: segments whose progress stays, for which timers left something.
    event_times: see `OwnedSegment.event_ms`; of a processor with timers.
    completed: segments that were processed to their sealed ends.
    finished: how many events the processor had finished when this commit was taken.
    """

    moved: Mapping[OwnedSegment, Progress]
    held: Collection[OwnedSegment]
    event_times: Mapping[SegmentKey, int]
    completed: Sequence[OwnedSegment]
    outbox: Outbox[OwnedSegment]
    finished: int

    def __bool__(self) -> bool:
        return bool(self.moved or self.completed or self.outbox)

    @property
    def streams(self) -> frozenset[str] | None:
        """The streams to whose rows it keeps; None if it may change anything."""
        outbox = self.outbox
        if self.completed or outbox.letters or outbox.handled or outbox.changes:
            return None
        emitted = (each.stream for each in outbox.emissions)
        return frozenset({*(owned.assigned.stream for owned in (*self.moved, *self.held)), *emitted})


class SegmentCommitter(Committer[OwnedSegment, ProgressCommit]):
    """Takes what is finished at one moment and commits it; one commit at a time.

    outbox: what waits for the next commit.
    truncated: events that were truncated before they were handled, as far as this process found that.
    """

    def __init__(
        self,
        db: Database,
        options: Options,
        membership: Membership,
        segments: OwnedSegments,
        counters: Counters,
        measure: Telemetry,
        *,
        project: Callable[[ProgressCommit], Awaitable[None]] | None,
        follow: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
        write_status: Callable[[Tx, str], None],
        is_called: Callable[[OwnedSegment], bool],
        states: KeyStateCache | None = None,
    ) -> None:
        """Create the committer.

        is_called: whether a call of a segment runs: of one whose events are all finished, for a timer.
        states: notes what became durable. None: the handler takes no state.
        follow: reads the ownership again, and drops the segments that were lost.
        project: makes what a projection handled durable in the user's database. None: there is none.
        """
        super().__init__(db, options, counters, measure, ended=ended, write_status=write_status)
        self.truncated = 0
        self._membership = membership
        self._segments = segments
        self._follow = follow
        self._is_called = is_called
        self._states = states
        self._project_into = project
        self._passed: dict[OwnedSegment, None] = {}  # those whose successors are unknown

    async def _commit_all(self) -> None:
        await super()._commit_all()
        while self._passed:
            await self.skip(next(iter(self._passed)))

    async def _recover(self, why: Exception) -> bool:
        if isinstance(why, SegmentFenced):
            await self._follow()
        elif isinstance(why, SuccessorsUnknown):
            self._passed[why.owned] = None
        elif isinstance(why, UserDatabaseFenced):
            await self._follow()
            if why.key in {owned.key for owned, _ in self.outbox.of(set(self._segments)).handled}:
                raise ProcessorFailed(processor=self._options.name, reason=str(why)) from None
        else:
            return False
        return True

    def _take(self) -> ProgressCommit:
        now: dict[OwnedSegment, Progress] = {}
        segments, counters = self._segments, self._counters
        if self._options.publishes:  # each handler made the progress of its event durable
            (stream,) = self._options.streams
            self._measure.finished(stream, counters.finished - counters.committed)
            counters.committed = counters.finished
        elif counters.finished != counters.committed or any(
            owned.offset != owned.durable.offset for owned in segments
        ):
            now = {owned: owned.snapshot() for owned in segments}
        moved = {owned: progress for owned, progress in now.items() if progress != owned.durable}
        completed = [
            owned for owned in segments.done() if owned not in self._passed and not self._is_called(owned)
        ]
        for owned in completed:
            owned.closing = True  # its timers belong to its successors
        outbox, self.outbox = divided(self.outbox.of(set(segments)), now)
        held: Collection[OwnedSegment] = ()
        times: dict[SegmentKey, int] = {}
        if self._options.on_timer is not None:
            held = outbox.holders() - moved.keys()
            times = {owned.key: newest for owned in moved if (newest := owned.event_ms) is not None}
        return ProgressCommit(moved, held, times, completed, outbox, counters.finished)

    async def _publish(self, commit: ProgressCommit) -> None:
        await super()._publish(await self._project(commit))

    async def _project(self, commit: ProgressCommit) -> ProgressCommit:
        """Let the user's database have what a projection handled; return what is left for this one."""
        if self._project_into is None or not commit.outbox.handled:
            return commit
        try:
            await self._project_into(commit)
        except BaseException:
            self._put_back(commit)
            raise
        return attrs.evolve(commit, outbox=attrs.evolve(commit.outbox, handled=[]))

    async def skip(self, owned: OwnedSegment) -> None:
        """Move the group to the head or the tail of the segment; everything before was truncated, or its successors.

        The group reassigns what it skips. So the segment is lost, and returns at its new position. The stream's other
        segments stay, because calls for events that were read before the truncation may run.
        """
        group, policy, stream_id = self._options.group, self._options.on_truncated, owned.key[0]
        if policy == "error":
            name = owned.assigned.stream
            reason = f"{name} was truncated beyond the successors of segment {format_segment(owned.key[1])}"
            raise ProcessorFailed(processor=self._options.name, reason=reason)

        def move_on(tx: Tx) -> int:
            (stream,) = (each for each in get_group(tx, group).streams if each.stream_id == stream_id)
            return skip(tx, group, stream, policy, only=[owned.key[1]])

        what = f"skipping what was truncated, for {self._options.label}"
        lost = await retry_transient(
            lambda: self._db.write(move_on, step=Step.PROCESSOR_SKIP), what, self._db.clock, LOG
        )
        self._passed.pop(owned, None)
        self.truncated += lost
        says = "%s: %d events that follow %r were truncated before they were handled"
        LOG.warning(says, self._options.label, lost, owned)
        await self._follow()

    def _store_states(self, tx: Tx, outbox: Outbox[OwnedSegment]) -> None:
        state, by_stream = self._options.state, defaultdict[int, list[KeyChange]](list)
        assert state is not None, f"{self._options.name} keeps no state"
        for cached, _, data, timer_ms in outbox.states:
            by_stream[cached.owned.key[0]].append(KeyChange(cached.key, data, timer_ms))
        for stream_id, changes in by_stream.items():
            store_changes(
                tx, stream_id, self._options.group, changes, version=state.version, ttl_ms=state.ttl_ms
            )

    def publish(self, tx: Tx, commit: ProgressCommit) -> None:
        """See `Committer.publish`. Raises SegmentFenced, SuccessorsUnknown, and as `append_emissions`, too."""
        options, outbox = self._options, commit.outbox
        moved = {owned.assigned: progress for owned, progress in commit.moved.items()}
        self._membership.move(tx, moved, [owned.assigned for owned in commit.held])
        if commit.event_times:
            note_event_times(tx, options.group, commit.event_times)
        if outbox.states:
            self._store_states(tx, outbox)
        append_emissions(tx, outbox.emissions)
        append_letters(tx, options.group, options.dead_letters, [letter for _, letter in outbox.letters])
        self._run_user_sql(tx, outbox)
        for owned in commit.completed:
            event_ms = event_time_of(tx, options.group, owned.key) if options.on_timer is not None else None
            try:
                successors = self._membership.complete(tx, owned.assigned)
            except NotFound as why:
                raise SuccessorsUnknown(owned) from why
            if event_ms is not None:  # they go on from there, and count as it did, also without an event
                keys = [(owned.key[0], each) for each in successors]
                note_event_times(tx, options.group, dict.fromkeys(keys, event_ms))
                note_committed(tx, options.group, keys)
            if options.on_segment_end is not None:
                ids = [printable(each) for each in (owned.key[1], *successors)]
                end = SegmentEnd(owned.assigned.stream, ids[0], tuple(ids[1:]))
                tell = partial(_tell, options.on_segment_end, end)
                self._call_user(tx, "on_segment_end", tell, f"the end of {owned!r}")

    def _note_durable(self, commit: ProgressCommit) -> None:
        for owned, progress in commit.moved.items():
            count = _count(progress) - _count(owned.durable)
            self._measure.finished(owned.assigned.stream, count)
            owned.durable = progress
        for owned, _ in commit.outbox.letters:
            self._measure.dead_lettered(owned.assigned.stream, 1)
        ended = self._segments.drop([owned.key for owned in commit.completed if owned in self._segments])
        if self._states is not None:
            self._states.saved(commit.outbox.states)
            for owned in ended:
                self._states.lose(owned)


def _tell(hook: OnSegmentEnd, end: SegmentEnd, tx: AppTx) -> object:
    return hook(tx, end)


def divided(
    outbox: Outbox[OwnedSegment], now: Mapping[OwnedSegment, Progress]
) -> tuple[Outbox[OwnedSegment], Outbox[OwnedSegment]]:
    """Return the part of the events that are finished in `now`, and the part that has to wait until they are.

    Only progress with all the ranges it may have leaves finished events out (`OwnedSegment.snapshot`).
    """
    full = {owned: progress for owned, progress in now.items() if progress.full}
    if not full:
        return outbox, Outbox()

    def is_left_out(owned: OwnedSegment, number: int) -> bool:
        return owned in full and not full[owned].is_finished(number)

    return outbox.where(lambda *event: not is_left_out(*event)), outbox.where(is_left_out, of_batch=all)


def _count(progress: Progress) -> int:
    """Return how many events are finished."""
    return progress.number + sum(high - low for low, high, _ in progress.finished)
