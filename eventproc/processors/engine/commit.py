"""The transaction that makes durable what is finished: progress, emitted events, dead letters, the user's SQL."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

import anyio
import attrs

from eventproc.groups import Membership, SegmentKey, get_group
from eventproc.groups.truncation import skip
from eventproc.processors.context import AppTx
from eventproc.processors.dead_letters.letters import FailedEvent, append_letters
from eventproc.processors.emit import Emission, append_emissions
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import format_segment
from eventproc.store.model.progress import Progress
from eventproc.store.progress import SegmentClaim, segment_fenced
from eventproc.store.segments import Event


class CommitHookFailed(Exception):
    """The user's `on_commit` raised; the cause is what."""


class SuccessorsUnknown(Exception):
    """Nobody knows any more what took over from the segment of `cell`; the stream was truncated beyond them."""

    def __init__(self, cell: OwnedSegment) -> None:
        super().__init__(cell)
        self.cell = cell


@attrs.define(eq=False)
class Outbox:
    """What handlers left to be made durable, each with the cell it came from: for a cell that was lost, nothing is.

    emitted: with the number of the event whose handler did. handled: the events of an exactly-once round that were
    handled, for the user's hook.
    """

    emitted: list[tuple[OwnedSegment, int, Sequence[Emission]]] = attrs.field(factory=list)
    letters: list[tuple[OwnedSegment, FailedEvent]] = attrs.field(factory=list)
    handled: list[tuple[OwnedSegment, Event]] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.emitted or self.letters or self.handled)

    def joined(self, later: Outbox) -> Outbox:
        """Return this outbox with what came later behind it."""
        return Outbox(
            emitted=self.emitted + later.emitted,
            letters=self.letters + later.letters,
            handled=self.handled + later.handled,
        )

    def of(self, cells: Collection[OwnedSegment]) -> Outbox:
        """Return what came from `cells`: the others were lost to another reader, who handles their events again."""
        return self._where(lambda cell, _: cell in cells)

    def divided(self, now: Mapping[OwnedSegment, Progress]) -> tuple[Outbox, Outbox]:
        """Return what belongs to events that are finished in `now`, and what has to wait until they are.

        Only progress with as many ranges as it may have leaves finished events out (`OwnedSegment.snapshot`).
        """
        full = {cell: progress for cell, progress in now.items() if progress.full}
        if not full:
            return self, Outbox()

        def is_left_out(cell: OwnedSegment, number: int) -> bool:
            return cell in full and not full[cell].is_finished(number)

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

    moved: {cell: its progress}. completed: cells processed to their sealed ends. finished: how many events the
    processor had finished when this was taken.
    """

    moved: Mapping[OwnedSegment, Progress]
    completed: Sequence[OwnedSegment]
    outbox: Outbox
    finished: int

    def __bool__(self) -> bool:
        return bool(self.moved or self.completed or self.outbox)

    def publish(self, tx: Tx, membership: Membership, options: Options) -> None:
        """Do all of it in `tx`, or nothing.

        Raises SegmentFenced, CommitHookFailed, SuccessorsUnknown, and as `append_emissions`.
        """
        self._verify_owned(membership)
        moved: dict[SegmentKey, Progress] = {cell.key: progress for cell, progress in self.moved.items()}
        membership.move(tx, moved)
        append_emissions(tx, [each for _, _, emitted in self.outbox.emitted for each in emitted])
        append_letters(tx, options.group, options.dead_letters, [letter for _, letter in self.outbox.letters])
        if options.on_commit is not None and self.outbox.handled:
            self._call_hook(tx, options)
        for cell in self.completed:
            try:
                membership.complete(tx, cell.key)
            except NotFound as why:
                raise SuccessorsUnknown(cell) from why

    def _verify_owned(self, membership: Membership) -> None:
        """Raise SegmentFenced when a cell is of an older owner epoch than the membership knows.

        It would move by its name under an epoch that is not its own: back to where another reader was long ago.
        """
        for cell in (*self.moved, *self.completed):
            assigned = cell.assigned
            owned = membership.owned.get(cell.key)
            if owned is None or owned.owner_epoch != assigned.owner_epoch:
                raise segment_fenced(
                    SegmentClaim(membership.group, membership.reader, *cell.key, assigned.owner_epoch)
                )

    def _call_hook(self, tx: Tx, options: Options) -> None:
        assert options.on_commit is not None, "checked by the caller"
        try:
            with tx.user_sql():
                options.on_commit(AppTx(tx), [event for _, event in self.outbox.handled])
        except Exception as why:
            raise CommitHookFailed(failure_text(why)) from why


LOG = logging.getLogger("eventproc.processors")

COMMIT_MS: Final = 1_000
"""Longest time that what is finished stays undurable while nothing else makes it so: what a crash repeats."""

COMMIT_EVENTS: Final = 5_000
"""Finished events after which progress is made durable at once. More is what a crash repeats where handlers are
quick, for COMMIT_MS bounds it where they are not; fewer commits more often, each about a millisecond of CPU and two
changes of threads: with 1,000 a handler that does nothing reaches two thirds."""

BEHIND_EVENTS_MAX: Final = 4 * COMMIT_EVENTS
"""Events finished while one commit is under way, after which no further call begins before it has ended: while the
disk is full or another process holds the lock. More is repeated by a crash then; less is felt when a disk hesitates."""

BEHIND_BYTES_MAX: Final = 16 * 2**20
"""Bytes of payloads that wait for a commit under way to end, after which no further call begins: of what handlers
emitted, and of dead letters."""

_size_of: Final = attrgetter("size_bytes")


class Committer:
    """Takes what is finished, at one moment, and publishes it; one commit at a time."""

    def __init__(
        self,
        db: Database,
        options: Options,
        membership: Membership,
        cells: dict[SegmentKey, OwnedSegment],
        tally: Counters,
        measure: Telemetry,
        *,
        refresh: Callable[[], Awaitable[None]],
        lose: Callable[[OwnedSegment], None],
        moved: Callable[[], None],
    ) -> None:
        """refresh: asks what is owned. lose: called with each cell that turned out to belong to another reader.

        moved: called after each commit, whatever became of it.
        """
        self.outbox = Outbox()
        self.truncated = 0  # events of segments that were truncated unseen
        self._began: int | None = None  # how many events were finished when the present commit was taken
        self._came_bytes = 0  # payloads put into the outbox since
        self._db = db
        self._options = options
        self._membership = membership
        self._cells = cells
        self._tally = tally
        self._measure = measure
        self._refresh = refresh
        self._lose = lose
        self._moved = moved
        self._noted: ProgressCommit | None = None
        self._one = anyio.Lock()
        self._due = anyio.Event()
        self._asked = False

    def emit(self, cell: OwnedSegment, number: int, emitted: Sequence[Emission]) -> None:
        """Take what the handler of an event emitted, and commit soon."""
        self.outbox.emitted.append((cell, number, emitted))
        self._came_bytes += sum(map(_size_of, emitted))
        self.ask()

    def add_dead_letter(self, cell: OwnedSegment, letter: FailedEvent) -> None:
        """Take a dead letter."""
        self.outbox.letters.append((cell, letter))
        self._came_bytes += len(letter.event.payload)

    @property
    def is_behind(self) -> bool:
        """Whether so much came while a commit is under way that no further call shall begin before its end."""
        if self._began is None:
            return False
        return self._came_bytes >= BEHIND_BYTES_MAX or self._tally.finished - self._began >= BEHIND_EVENTS_MAX

    def ask(self) -> None:
        """Let `run` commit at once."""
        if not self._asked:
            self._asked = True
            self._due.set()

    async def run(self) -> None:
        """ProgressCommit when asked to, and every COMMIT_MS, until cancelled."""
        while True:
            with anyio.move_on_after(COMMIT_MS / 1000):
                await self._due.wait()
            self._due, self._asked = anyio.Event(), False
            await self.commit()

    async def commit(self) -> None:
        """Make durable everything that is finished at this moment.

        Raises ProcessorFailed when the user's hook keeps failing, and what the database raises.
        """
        async with self._one:
            hook_failures = 0
            skipped: set[OwnedSegment] = set()
            while commit := self._take(skipped):
                try:
                    await self._publish(commit)
                except SegmentFenced:
                    await self._drop_lost()
                except CommitHookFailed as why:
                    hook_failures += 1
                    await self._pause_hook(hook_failures, why)
                except SuccessorsUnknown as why:
                    skipped.add(why.cell)
                else:
                    break
            for cell in skipped:
                await self._skip(cell)

    def _take(self, incomplete: Collection[OwnedSegment] = ()) -> ProgressCommit:
        now: dict[OwnedSegment, Progress] = {}
        if self._options.publishes:  # each handler made its own event's progress durable
            (stream,) = self._options.streams
            self._measure.finished(stream, self._tally.finished - self._tally.committed)
            self._tally.committed = self._tally.finished
        elif self._tally.finished != self._tally.committed or any(
            cell.offset != cell.durable.offset for cell in self._cells.values()
        ):
            now = {cell: cell.snapshot() for cell in self._cells.values()}
        moved = {cell: progress for cell, progress in now.items() if progress != cell.durable}
        completed = [cell for cell in self._cells.values() if cell.complete and cell not in incomplete]
        outbox, self.outbox = self.outbox.of(set(self._cells.values())).divided(now)
        return ProgressCommit(moved, completed, outbox, self._tally.finished)

    async def _publish(self, commit: ProgressCommit) -> None:
        """Make `commit` durable; if that fails, or is cancelled, what it had taken out waits for the next one."""

        def publish(tx: Tx) -> None:
            commit.publish(tx, self._membership, self._options)
            tx.after(partial(self._note, commit))

        what = f"{self._options.name}: making progress durable"
        self._began, self._came_bytes = commit.finished, 0
        began_ms = self._db.clock.monotonic_ms()
        try:
            await retry_transient(lambda: self._db.write(publish), what, LOG)
        finally:
            if self._noted is not commit:
                self.outbox = commit.outbox.joined(self.outbox)
            elif self._measure is not NOTHING:
                emitted = Counter(each.stream for _, _, emitted in commit.outbox.emitted for each in emitted)
                self._measure.committed((self._db.clock.monotonic_ms() - began_ms) / 1000, emitted)
            self._began = None
            self._moved()

    async def _drop_lost(self) -> None:
        """Some cell is not ours any more: ask which."""
        await self._refresh()
        owned = self._membership.owned
        for cell in list(self._cells.values()):
            now = owned.get(cell.key)
            if now is None or now.owner_epoch != cell.assigned.owner_epoch:
                self._lose(cell)

    async def _skip(self, cell: OwnedSegment) -> None:
        """Let the group go on at the head of the cell's stream, or its tail; all before that was truncated.

        The group changes hands of what it skips, so the cells concerned are lost, and come back where they go on.
        """
        group, policy, stream_id = self._options.group, self._options.on_truncated, cell.key[0]
        if policy == "error":
            name = cell.assigned.stream
            reason = f"{name} was truncated beyond what took over from segment {format_segment(cell.key[1])}"
            raise ProcessorFailed(processor=self._options.name, reason=reason)

        def go_on(tx: Tx) -> int:
            (stream,) = (each for each in get_group(tx, group).streams if each.stream_id == stream_id)
            return skip(tx, group, stream, policy)

        lost = await retry_transient(lambda: self._db.write(go_on), f"{self._options.name}: going on", LOG)
        self.truncated += lost
        LOG.warning("%r: %d events behind it were truncated before they were handled", cell, lost)
        await self._drop_lost()

    async def _pause_hook(self, failures: int, why: CommitHookFailed) -> None:
        retry, name = self._options.retry, self._options.name
        if failures >= retry.attempts:
            reason = f"on_commit failed {failures} times: {why}"
            raise ProcessorFailed(processor=name, reason=reason) from why
        LOG.warning("%s: on_commit failed and will be tried again: %s", name, why)
        await anyio.sleep(retry.pause_ms(failures) / 1000)

    def _note(self, commit: ProgressCommit) -> None:
        """Remember that `commit` is durable. An effect of its transaction: a caller can lose its result, not this."""
        for cell, progress in commit.moved.items():
            count = _count(progress) - _count(cell.durable)
            self._measure.finished(cell.assigned.stream, count)
            cell.durable = progress
        for cell, _ in commit.outbox.letters:
            self._measure.dead_lettered(cell.assigned.stream, 1)
        for cell in commit.completed:
            if self._cells.get(cell.key) is cell:
                del self._cells[cell.key]
        self._tally.committed = commit.finished
        self._tally.emitted += sum(len(emitted) for _, _, emitted in commit.outbox.emitted)
        self._tally.last_commit_ms = self._db.clock.wall_ms()
        self._noted = commit


def _count(progress: Progress) -> int:
    """Return how many events are finished."""
    return progress.number + sum(high - low for low, high, _ in progress.finished)
