"""The transaction that makes finished events durable: progress, emitted events, dead letters, the user's SQL.

One transaction covers all segments of a processor. If a segment turns out to be lost, it is repeated without it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

import anyio
import attrs

from eventproc.groups import Membership, get_group
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.groups.truncation import skip
from eventproc.processors.context import AppTx
from eventproc.processors.dead_letters.operations import FailedEvent, append_letters
from eventproc.processors.emit import Emission, append_emissions
from eventproc.processors.engine.key_queues import describe_event
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import SegmentKey
from eventproc.store.model.counts import counted
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import format_segment
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event

LOG = logging.getLogger("eventproc.processors")

COMMIT_MS: Final = 1_000
"""Longest time between two commits: a crash repeats what was finished since the last one."""

COMMIT_EVENTS: Final = 5_000
"""Finished events after which a commit begins immediately. Higher: a crash repeats more where handlers are quick; where
they are not, COMMIT_MS is the limit. Lower: more commits, each about a millisecond of CPU and two thread switches. With
1,000 a handler that does nothing reaches two thirds of its rate."""

BEHIND_EVENTS_MAX: Final = 4 * COMMIT_EVENTS
"""Events finished during one commit after which no call begins until it ends: while the disk is full, or another
process holds the lock. Higher: a crash then repeats more. Lower: a slow disk is felt more."""

BEHIND_BYTES_MAX: Final = 16 * 2**20
"""Payload bytes of emitted events and dead letters during one commit after which no call begins until it ends."""

PROGRESS_TABLE: Final = "eventproc_progress"
"""Name of the table with the progress of projections, in a database of the user."""

_size_of: Final = attrgetter("size_bytes")


class CommitHookFailed(Exception):
    """The user's `on_commit` raised `error` for these events, of which there is at least one."""

    def __init__(self, handled: Sequence[tuple[OwnedSegment, Event[Any]]], error: Exception) -> None:
        events = f"{counted(len(handled), 'event')}, first {describe_event(handled[0][1])}"
        super().__init__(f"{failure_text(error)} (its events: {events})")
        self.error = error


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


@attrs.define(eq=False)
class Outbox:
    """What handlers left to be made durable, each with its segment. What belongs to a lost segment is discarded.

    emitted: events, with the number of the event whose handler emitted them.
    letters: dead letters.
    handled: the handled events of an exactly-once round, as the handler got them, for the user's `on_commit`.
    """

    emitted: list[tuple[OwnedSegment, int, Sequence[Emission]]] = attrs.field(factory=list)
    letters: list[tuple[OwnedSegment, FailedEvent]] = attrs.field(factory=list)
    handled: list[tuple[OwnedSegment, Event[Any]]] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.emitted or self.letters or self.handled)

    def joined(self, later: Outbox) -> Outbox:
        """Return this outbox followed by a later one."""
        return Outbox(
            emitted=self.emitted + later.emitted,
            letters=self.letters + later.letters,
            handled=self.handled + later.handled,
        )

    def of(self, segments: Collection[OwnedSegment]) -> Outbox:
        """Return the part of these segments. The others were lost to a reader that handles their events again."""
        return self._where(lambda owned, _: owned in segments)

    def divided(self, now: Mapping[OwnedSegment, Progress]) -> tuple[Outbox, Outbox]:
        """Return the part of the events that are finished in `now`, and the part that has to wait until they are.

        Only progress with all the ranges it may have leaves finished events out (`OwnedSegment.snapshot`).
        """
        full = {owned: progress for owned, progress in now.items() if progress.full}
        if not full:
            return self, Outbox()

        def is_left_out(owned: OwnedSegment, number: int) -> bool:
            return owned in full and not full[owned].is_finished(number)

        return self._where(lambda *event: not is_left_out(*event)), self._where(is_left_out)

    def _where(self, holds: Callable[[OwnedSegment, int], bool]) -> Outbox:
        return Outbox(
            emitted=[each for each in self.emitted if holds(each[0], each[1])],
            letters=[each for each in self.letters if holds(each[0], each[1].event.number)],
            handled=[each for each in self.handled if holds(each[0], each[1].number)],
        )


@attrs.frozen
class ProgressCommit:
    """One commit of a processor.

    moved: segments and their progress.
    completed: segments that were processed to their sealed ends.
    finished: how many events the processor had finished when this commit was taken.
    """

    moved: Mapping[OwnedSegment, Progress]
    completed: Sequence[OwnedSegment]
    outbox: Outbox
    finished: int

    def __bool__(self) -> bool:
        return bool(self.moved or self.completed or self.outbox)

    @property
    def streams(self) -> frozenset[str] | None:
        """The streams to whose rows it keeps; None if it may change anything."""
        if self.completed or self.outbox.letters or self.outbox.handled:
            return None
        emitted = (each.stream for _, _, emitted in self.outbox.emitted for each in emitted)
        return frozenset({*(owned.assigned.stream for owned in self.moved), *emitted})

    def publish(self, tx: Tx, membership: Membership, options: Options) -> None:
        """Do all of it in `tx`, or nothing.

        Raises SegmentFenced, CommitHookFailed, SuccessorsUnknown, and as `append_emissions`.
        """
        membership.move(tx, {owned.assigned: progress for owned, progress in self.moved.items()})
        append_emissions(tx, [each for _, _, emitted in self.outbox.emitted for each in emitted])
        append_letters(tx, options.group, options.dead_letters, [letter for _, letter in self.outbox.letters])
        if options.on_commit is not None and self.outbox.handled:
            self._call_hook(tx, options)
        for owned in self.completed:
            try:
                membership.complete(tx, owned.assigned)
            except NotFound as why:
                raise SuccessorsUnknown(owned) from why

    def _call_hook(self, tx: Tx, options: Options) -> None:
        assert options.on_commit is not None, "checked by the caller"
        try:
            with tx.user_sql():
                options.on_commit(AppTx(tx), [event for _, event in self.outbox.handled])
        except Exception as why:
            raise CommitHookFailed(self.outbox.handled, why) from why


class Committer:
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
    ) -> None:
        """Create the committer.

        project: makes what a projection handled durable in the user's database. None: there is none.
        follow: reads the ownership again, and drops the segments that were lost.
        ended: called after each commit, also after a failed one.
        """
        self.outbox = Outbox()
        self.truncated = 0
        self._began: int | None = None  # how many events were finished when the present commit was taken
        self._came_bytes = 0  # payload bytes added to the outbox since then
        self._db = db
        self._options = options
        self._membership = membership
        self._segments = segments
        self._counters = counters
        self._measure = measure
        self._project_into = project
        self._follow = follow
        self._ended = ended
        self._durable: ProgressCommit | None = None  # the last one that became durable
        self._lock = anyio.Lock()
        self._due = anyio.Event()
        self._asked = False

    def emit(self, owned: OwnedSegment, number: int, emitted: Sequence[Emission]) -> None:
        """Add what the handler of event `number` emitted, and commit soon."""
        self.outbox.emitted.append((owned, number, emitted))
        self._came_bytes += sum(map(_size_of, emitted))
        self.ask()

    def add_dead_letter(self, owned: OwnedSegment, letter: FailedEvent) -> None:
        """Add a dead letter."""
        self.outbox.letters.append((owned, letter))
        self._came_bytes += len(letter.event.payload)

    @property
    def is_behind(self) -> bool:
        """Whether the present commit must end before further calls begin, because too many results wait behind it."""
        if self._began is None:
            return False
        return (
            self._came_bytes >= BEHIND_BYTES_MAX or self._counters.finished - self._began >= BEHIND_EVENTS_MAX
        )

    def ask(self) -> None:
        """Let `run` commit immediately."""
        if not self._asked:
            self._asked = True
            self._due.set()

    async def run(self) -> None:
        """Commit when asked to, and every COMMIT_MS, until cancelled."""
        while True:
            with anyio.move_on_after(COMMIT_MS / 1000):
                await self._due.wait()
            self._due, self._asked = anyio.Event(), False
            await self.commit()

    async def commit(self) -> None:
        """Make durable everything that is finished at this moment.

        Raises ProcessorFailed when `on_commit` spent its attempts, and database errors other than Retryable.
        """
        async with self._lock:
            hook_failures = 0
            skipped: dict[OwnedSegment, None] = {}
            while commit := self._take(skipped):
                try:
                    await self._publish(await self._project(commit))
                except SegmentFenced:
                    await self._follow()
                except UserDatabaseFenced as why:
                    await self._follow()
                    if why.key in {owned.key for owned, _ in self.outbox.of(set(self._segments)).handled}:
                        raise ProcessorFailed(processor=self._options.name, reason=str(why)) from None
                except CommitHookFailed as why:
                    hook_failures += 1
                    await self.pause_hook(hook_failures, why.error, str(why))
                except SuccessorsUnknown as why:
                    skipped[why.owned] = None
                else:
                    break
            for owned in skipped:
                await self.skip(owned)

    def _take(self, incomplete: Collection[OwnedSegment] = ()) -> ProgressCommit:
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
        completed = [owned for owned in segments.done() if owned not in incomplete]
        outbox, self.outbox = self.outbox.of(set(segments)).divided(now)
        return ProgressCommit(moved, completed, outbox, counters.finished)

    async def _project(self, commit: ProgressCommit) -> ProgressCommit:
        """Let the user's database have what a projection handled; return what is left for this one."""
        if self._project_into is None or not commit.outbox.handled:
            return commit
        try:
            await self._project_into(commit)
        except BaseException:
            self.outbox = commit.outbox.joined(self.outbox)
            raise
        return attrs.evolve(commit, outbox=attrs.evolve(commit.outbox, handled=[]))

    async def _publish(self, commit: ProgressCommit) -> None:
        """Make `commit` durable. If that fails or is cancelled, its outbox waits for the next commit."""

        def publish(tx: Tx) -> None:
            commit.publish(tx, self._membership, self._options)
            tx.after(partial(self._note, commit))

        clock = self._db.clock
        what = f"committing the progress of processor {self._options.name}"
        streams = commit.streams
        self._began, self._came_bytes = commit.finished, 0
        began_ms = clock.monotonic_ms()
        try:
            await retry_transient(
                lambda: self._db.write(publish, step=Step.PROCESSOR_PROGRESS, streams=streams),
                what,
                clock,
                LOG,
            )
        finally:
            if self._durable is not commit:
                self.outbox = commit.outbox.joined(self.outbox)
            elif self._measure is not NOTHING:
                emitted = Counter(each.stream for _, _, emitted in commit.outbox.emitted for each in emitted)
                self._measure.committed((clock.monotonic_ms() - began_ms) / 1000, emitted)
            self._began = None
            self._ended()

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

        what = f"skipping what was truncated, for processor {self._options.name}"
        lost = await retry_transient(
            lambda: self._db.write(move_on, step=Step.PROCESSOR_SKIP), what, self._db.clock, LOG
        )
        self.truncated += lost
        LOG.warning("%r: %d events that follow were truncated before they were handled", owned, lost)
        await self._follow()

    async def pause_hook(self, failures: int, error: Exception, text: str) -> None:
        """Wait before the next attempt of `on_commit`. Raises ProcessorFailed if its attempts are spent."""
        retry, name = self._options.retry, self._options.name
        if retry.is_spent(failures, error):
            reason = f"on_commit failed {counted(failures, 'time')}: {text}"
            raise ProcessorFailed(processor=name, reason=reason) from error
        LOG.warning(
            "processor %s: %s of on_commit failed: %s",
            *(name, retry.attempt_text(failures), text),
            exc_info=error if LOG.isEnabledFor(logging.DEBUG) else None,
            extra={"processor": name, "attempt": failures},
        )
        await anyio.sleep(retry.pause_ms(failures, self._db.clock) / 1000)

    def _note(self, commit: ProgressCommit) -> None:
        """Note that `commit` is durable. This runs as an effect of its transaction, which no cancellation prevents."""
        for owned, progress in commit.moved.items():
            count = _count(progress) - _count(owned.durable)
            self._measure.finished(owned.assigned.stream, count)
            owned.durable = progress
        for owned, _ in commit.outbox.letters:
            self._measure.dead_lettered(owned.assigned.stream, 1)
        self._segments.drop([owned.key for owned in commit.completed if owned in self._segments])
        self._counters.committed = commit.finished
        self._counters.emitted += sum(len(emitted) for _, _, emitted in commit.outbox.emitted)
        self._counters.last_commit_ms = self._db.clock.wall_ms()
        self._durable = commit


def _count(progress: Progress) -> int:
    """Return how many events are finished."""
    return progress.number + sum(high - low for low, high, _ in progress.finished)
