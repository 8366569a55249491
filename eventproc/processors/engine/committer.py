"""What handlers leave to be made durable, and the loop that makes it so: a subclass says in which transaction.

Everything that is finished at one moment becomes durable together. If that fails, it waits for the next commit.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
import attrs

from eventproc.base.counts import counted
from eventproc.processors.context import TablesChange, call_in_tx
from eventproc.processors.dead_letters.operations import FailedEvent
from eventproc.processors.emit import Emission
from eventproc.processors.engine.key_queues import describe_event
from eventproc.processors.engine.states import KeptState, Left
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.segments import Event

LOG = logging.getLogger("eventproc.processors")

O = TypeVar("O")  # noqa: E741  # what holds an event here: an owned segment, or a delivery

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

CHANGE_BYTES: Final = 200
"""What a change of a state counts beside its value: its key, and Python's objects."""

_size_of: Final = attrgetter("size_bytes")


class UserSqlFailed(Exception):
    """The user's SQL in the transaction of a commit raised `error`.

    what: which function it was. subject: what it was called for.
    """

    def __init__(self, what: str, subject: str, error: Exception) -> None:
        super().__init__(f"{failure_text(error)} ({subject})")
        self.what = what
        self.error = error


def events_text(events: Sequence[Event[Any]]) -> str:
    """Return a text for the events of a call of the user's SQL, of which there is at least one."""
    return f"its events: {counted(len(events), 'event')}, first {describe_event(events[0])}"


@attrs.frozen(eq=False)
class BatchLeft(Generic[O]):
    """What the call for a batch left. events: numbers, each with what holds the event. first: its first event."""

    events: Sequence[tuple[O, int]]
    first: Event[Any]
    left: Left


@attrs.define(eq=False)
class Outbox(Generic[O]):
    """What handlers left to be made durable, each with what holds its event. What belongs to a lost one is discarded.

    emitted: events, with the number of the event whose handler emitted them.
    batches: what handlers of batches left. It becomes durable with the first of the events that does. Measured: with
        one list for both, handlers of single events that emit reach four fifths of their rate.
    letters: dead letters.
    handled: the handled events of an exactly-once round, as the handler got them, for the user's `on_commit`.
    states: changes of the states of keys, in the order in which they were made. Their segments hold their events.
    tables: functions given to `change_tables`, with the event whose handler did so.
    """

    emitted: list[tuple[O, int, Sequence[Emission]]] = attrs.field(factory=list)
    batches: list[BatchLeft[O]] = attrs.field(factory=list)
    letters: list[tuple[O, FailedEvent]] = attrs.field(factory=list)
    handled: list[tuple[O, Event[Any]]] = attrs.field(factory=list)
    states: list[KeptState] = attrs.field(factory=list)
    tables: list[tuple[O, Event[Any], TablesChange]] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        kinds = self.emitted, self.batches, self.letters, self.handled, self.states, self.tables
        return any(kinds)

    @property
    def emissions(self) -> list[Emission]:
        """All events that handlers emitted."""
        left = [emitted for _, _, emitted in self.emitted] + [each.left.emitted for each in self.batches]
        return [each for emitted in left for each in emitted]

    @property
    def changes(self) -> list[tuple[Event[Any], TablesChange]]:
        """All functions given to `change_tables`."""
        of_events = [(event, change) for _, event, change in self.tables]
        return of_events + [(each.first, change) for each in self.batches for change in each.left.tables]

    def joined(self, later: Outbox[O]) -> Outbox[O]:
        """Return this outbox followed by a later one."""
        return Outbox(
            emitted=self.emitted + later.emitted,
            batches=self.batches + later.batches,
            letters=self.letters + later.letters,
            handled=self.handled + later.handled,
            states=self.states + later.states,
            tables=self.tables + later.tables,
        )

    def of(self, holders: Collection[O]) -> Outbox[O]:
        """Return the part of these holders. The others were lost, and somebody else handles their events again."""
        return self.where(lambda owned, _: owned in holders)

    def holders(self) -> set[O]:
        """Return what holds the events. O(of what was left)."""
        states = {cast("O", each.cached.owned) for each in self.states}
        return states.union(
            *({each[0] for each in kind} for kind in (self.emitted, self.letters, self.tables))
        )

    def where(self, holds: Callable[[O, int], bool], *, of_batch: Callable[..., bool] = any) -> Outbox[O]:
        """Return the part of the events for which `holds(holder, number)`; of a batch, for `any` or `all` of its."""
        return Outbox(
            emitted=[each for each in self.emitted if holds(each[0], each[1])],
            batches=[each for each in self.batches if of_batch(holds(*event) for event in each.events)],
            letters=[each for each in self.letters if holds(each[0], each[1].event.number)],
            handled=[each for each in self.handled if holds(each[0], each[1].number)],
            states=[each for each in self.states if holds(cast("O", each.cached.owned), each.number)],
            tables=[each for each in self.tables if holds(each[0], each[1].number)],
        )


class Commit(Protocol[O]):
    """What one transaction makes durable."""

    @property
    def outbox(self) -> Outbox[O]:
        """What handlers left."""
        ...

    @property
    def finished(self) -> int:
        """How many events the processor had finished when it was taken."""
        ...

    @property
    def streams(self) -> frozenset[str] | None:
        """The streams to whose rows it keeps; None if it may change anything."""
        ...


M = TypeVar("M", bound=Commit[Any])


class Committer(ABC, Generic[O, M]):
    """Takes what is finished at one moment and commits it; one commit at a time.

    outbox: what waits for the next commit.
    status: of this process, which the next commit publishes; None: it publishes none.
    """

    def __init__(
        self,
        db: Database,
        options: Options,
        counters: Counters,
        measure: Telemetry,
        *,
        ended: Callable[[], None],
        write_status: Callable[[Tx, str], None],
    ) -> None:
        """ended: called after each commit, also after a failed one. write_status: publishes the status."""
        self.outbox: Outbox[O] = Outbox()
        self.status: str | None = None
        self._write_status = write_status
        self._began: int | None = None  # how many events were finished when the present commit was taken
        self._came_bytes = 0  # payload bytes added to the outbox since then
        self._db = db
        self._options = options
        self._counters = counters
        self._measure = measure
        self._ended = ended
        self._durable: M | None = None  # the last one that became durable
        self._user_emitted: Counter[str] = Counter()  # by the user's SQL, by stream
        self._lock = anyio.Lock()
        self._due = anyio.Event()
        self._asked = False

    async def commit(self) -> None:
        """Make durable everything that is finished at this moment.

        Raises ProcessorFailed when the user's SQL spent its attempts, and database errors other than Retryable.
        """
        async with self._lock:
            await self._commit_all()

    async def _commit_all(self) -> None:
        failures = 0
        while commit := self._take():
            try:
                await self._publish(commit)
            except UserSqlFailed as why:
                failures += 1
                await self.pause_sql(why.what, failures, why.error, str(why))
            except Exception as why:
                if not await self._recover(why):
                    raise
            else:
                break

    @abstractmethod
    def _take(self) -> M:
        """Return what is finished; false if that is nothing."""

    def _put_back(self, commit: M) -> None:
        """Let what did not become durable wait for the next commit."""
        self.outbox = commit.outbox.joined(self.outbox)

    async def _recover(self, why: Exception) -> bool:
        """Return whether to commit again, without what was lost."""
        return False

    @abstractmethod
    def publish(self, tx: Tx, commit: M) -> None:
        """Do all of `commit` in `tx`, or nothing. Raises UserSqlFailed."""

    @abstractmethod
    def _note_durable(self, commit: M) -> None:
        """Note that `commit` is durable. This runs as an effect of its transaction, which no cancellation prevents."""

    def leave(self, owner: O, event: Event[Any], left: Left) -> None:
        """Add what the handler of an event left. Commit soon, unless it is only a state, and the bytes are few."""
        emitted, state, tables = left
        if state is not None:
            self.outbox.states.append(state)
            self._came_bytes += CHANGE_BYTES + len(state.data or b"")
        if emitted:
            self.outbox.emitted.append((owner, event.number, emitted))
            self._came_bytes += sum(map(_size_of, emitted))
        for change in tables:
            self.outbox.tables.append((owner, event, change))
        if emitted or tables or self._came_bytes >= BEHIND_BYTES_MAX // 4:
            self.ask()

    def leave_of_batch(self, events: Sequence[tuple[O, int]], first: Event[Any], left: Left) -> None:
        """Add what the handler of a batch left; see `BatchLeft`. Commit soon."""
        self.outbox.batches.append(BatchLeft(events, first, left))
        self._came_bytes += sum(map(_size_of, left.emitted))
        self.ask()

    def add_dead_letter(self, owner: O, letter: FailedEvent) -> None:
        """Add a dead letter."""
        self.outbox.letters.append((owner, letter))
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

    async def _publish(self, commit: M) -> None:
        """Make `commit` durable. If that fails or is cancelled, its outbox waits for the next commit."""

        status, appended_ms = self.status, self._counters.calls.appended_ms

        def publish(tx: Tx) -> None:
            self._user_emitted = Counter()
            self.publish(tx, commit)
            if status is not None and self.status is status:  # else a later one was published meanwhile
                self._write_status(tx, status)
            tx.after(partial(self._note, commit, status, appended_ms))

        clock = self._db.clock
        what = f"committing the progress of {self._options.label}"
        streams = commit.streams if status is None else None  # a status is no row of a stream
        self._began, self._came_bytes = commit.finished, 0
        began_ms = clock.monotonic_ms()
        try:
            with self._measure.committing():
                await retry_transient(
                    lambda: self._db.write(publish, step=Step.PROCESSOR_PROGRESS, streams=streams),
                    what,
                    clock,
                    LOG,
                )
        finally:
            if self._durable is not commit:
                self._put_back(commit)
            elif self._measure is not NOTHING:
                emitted = Counter(each.stream for each in commit.outbox.emissions)
                emitted += self._user_emitted
                self._measure.committed((clock.monotonic_ms() - began_ms) / 1000, emitted)
            self._began = None
            self._ended()

    def _note(self, commit: M, status: str | None, appended_ms: int | None) -> None:
        self._note_durable(commit)
        self._counters.emitted += len(commit.outbox.emissions)
        self._counters.emitted += self._user_emitted.total()
        self._counters.note_commit(commit.finished, self._db.clock.wall_ms(), appended_ms)
        if self.status is status:
            self.status = None
        self._durable = commit

    def _run_user_sql(self, tx: Tx, outbox: Outbox[O]) -> None:
        """Call what handlers gave to `change_tables`, then the user's `on_commit`, and append what they emit."""
        for event, change in outbox.changes:
            self._call_user(tx, "change_tables", change, events_text([event]))
        events = [event for _, event in outbox.handled]
        if events and (hook := self._options.on_commit) is not None:
            self._call_user(tx, "on_commit", lambda app_tx: hook(app_tx, events), events_text(events))

    def _call_user(self, tx: Tx, what: str, function: TablesChange, subject: str) -> None:
        try:
            _, emitted = call_in_tx(tx, function)
        except Exception as why:
            raise UserSqlFailed(what, subject, why) from why
        self._user_emitted.update(each.stream for each in emitted)

    async def pause_sql(self, what: str, failures: int, error: Exception, text: str) -> None:
        """Wait before the next attempt of the user's SQL. Raises ProcessorFailed if its attempts are spent."""
        retry, name = self._options.retry, self._options.name
        if retry.is_spent(failures, error):
            reason = f"{what} failed {counted(failures, 'time')}: {text}"
            raise ProcessorFailed(processor=name, reason=reason) from error
        LOG.warning(
            "%s: %s of %s failed: %s",
            *(self._options.label, retry.attempt_text(failures), what, text),
            exc_info=error if LOG.isEnabledFor(logging.DEBUG) else None,
            extra={"processor": name, "attempt": failures},
        )
        await anyio.sleep(retry.pause_ms(failures, self._db.clock) / 1000)
