"""A projection into a database of the user: its function and the progress share a transaction of that database.

A row of `eventproc_progress` is the progress of one segment there, with the owner epoch of its last owner as a fence.
An owner first takes the row over and goes on where it stands. The progress of the store follows each round, so it may
be one round behind. docs/design/projections.md has the steps, and what a crash between two of them leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import attrs
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    and_,
    case,
    delete,
    insert,
    select,
    update,
)

from eventproc.groups import SegmentOwnership, get_group
from eventproc.processors.engine.commit import (
    PROGRESS_TABLE,
    ProgressCommit,
    UserDatabaseFenced,
)
from eventproc.processors.engine.committer import UserSqlFailed, events_text
from eventproc.store.database import Database, Tx
from eventproc.store.groups import SegmentKey, progress_by_segment
from eventproc.store.inspection.database_file import directory_identity
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text, progress_text
from eventproc.store.segments import Event

T = TypeVar("T")

PROGRESS: Final = Table(
    PROGRESS_TABLE,
    MetaData(),
    Column("store", String, primary_key=True),
    Column("group_name", String, primary_key=True),
    Column("stream_id", BigInteger, primary_key=True, autoincrement=False),
    Column("segment", BigInteger, primary_key=True, autoincrement=False),
    Column("owner_epoch", BigInteger, nullable=False),
    Column("finished", Text, nullable=False),
)
"""What the user's database has of a segment. store: identity of the store. finished: as `progress_text`."""

PROBE: Final = "probe"
"""Store of a row that is rolled back, to see that the database can."""


class TransactionEnded(Exception):
    """The user's function ended its transaction, which belongs to its caller."""


@attrs.frozen
class StoredGroup:
    """The group of the projection as its store has it.

    store: identity of the store.
    reset: generation of the last reset of the group; rows of earlier owners say nothing any more.
    generation, open: its present generation, and the segments that it has not completed.
    """

    store: str
    name: str
    reset: int
    generation: int
    open: frozenset[SegmentKey]

    @classmethod
    def read(cls, tx: Tx, name: str) -> StoredGroup:
        """Read it. Raises NotFound."""
        group, left = get_group(tx, name), progress_by_segment(tx, name)
        return cls(directory_identity(tx), name, group.reset, group.generation, frozenset(left))

    @property
    def rows(self) -> ColumnElement[bool]:
        """The condition for the rows of the group."""
        return and_(PROGRESS.c.store == self.store, PROGRESS.c.group_name == self.name)

    def row(self, key: SegmentKey) -> ColumnElement[bool]:
        """Return the condition for the row of a segment."""
        return and_(self.rows, PROGRESS.c.stream_id == key[0], PROGRESS.c.segment == key[1])


@attrs.frozen
class RowChange:
    """How a round changes the row of a segment that was taken over in `owner_epoch`."""

    key: SegmentKey
    owner_epoch: int
    before: str
    after: str


class UserDatabase:
    """The user's database, as the engine of a projection uses it."""

    def __init__(
        self,
        db: Database,
        engine: Engine,
        function: Callable[[Connection, Sequence[Event[Any]]], None],
        group: str,
    ) -> None:
        self._db = db
        self._engine = engine
        self._function = function
        self._group = group
        self._known: StoredGroup | None = None
        self._rows: dict[SegmentKey, str] = {}  # the progress in each row that was taken over
        self._limiter = anyio.CapacityLimiter(1)

    async def take_over(self, acquired: Collection[SegmentOwnership]) -> dict[SegmentKey, Progress]:
        """Fence the earlier owners of segments, and return from where this one goes on.

        Raises UserDatabaseFenced, NotSupported, NotFound, and what the database raises.
        """
        known = await self._db.read(partial(StoredGroup.read, name=self._group))
        rows = await self._on_thread(partial(self._take_over, known, acquired, is_first=self._known is None))
        self._known = known
        self._rows |= rows
        return {
            each.key: each.progress.union(progress_of_text(rows[each.key], self._group, *each.key))
            for each in acquired
        }

    async def commit(self, commit: ProgressCommit) -> None:
        """Call the function with the handled events of a round, in the transaction that moves the rows.

        Of an attempt whose end is unknown the rows say whether it took place.
        Raises UserSqlFailed, UserDatabaseFenced.
        """
        handled, known = commit.outbox.handled, self._known
        assert known is not None, "segments are taken over before anything of them is handled"
        changes = []
        for owned in dict.fromkeys(owned for owned, _ in handled):
            after = commit.moved[owned]
            # A dead letter becomes durable in the store alone, so until then its event is not finished.
            for letter in (each.event for of, each in commit.outbox.letters if of is owned):
                after = after.without(letter.number, letter.offset)
            text = progress_text(after)
            changes.append(RowChange(owned.key, owned.assigned.owner_epoch, self._rows[owned.key], text))
        changes.sort(key=lambda each: each.key)  # two transactions lock rows in the same order
        try:
            await self._on_thread(partial(self._commit, known, changes, [event for _, event in handled]))
        except UserDatabaseFenced:
            raise
        except Exception as why:
            raise UserSqlFailed("on_commit", events_text([event for _, event in handled]), why) from why
        self._rows |= {each.key: each.after for each in changes}

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Run it on a thread. If the caller is cancelled, it goes on: its transaction ends in one way or the other."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    # On the thread.

    def _take_over(
        self, known: StoredGroup, acquired: Collection[SegmentOwnership], *, is_first: bool
    ) -> dict[SegmentKey, str]:
        if is_first:
            self._prepare()
        rows: dict[SegmentKey, str] = {}
        with self._engine.begin() as tx:
            for each in sorted(acquired, key=lambda each: each.key):
                rows[each.key] = _take_over_row(tx, known, each)
            of_group = select(PROGRESS.c.stream_id, PROGRESS.c.segment).where(
                known.rows, PROGRESS.c.owner_epoch <= known.generation
            )
            for stream_id, segment in tx.execute(of_group).all():
                if (stream_id, segment) not in known.open:
                    tx.execute(delete(PROGRESS).where(known.row((stream_id, segment))))
        return rows

    def _prepare(self) -> None:
        """Create the table if it is missing. Raises NotSupported if the database does not roll back."""
        try:
            PROGRESS.create(self._engine, checkfirst=True)
        except Exception:  # of a process that created it at the same time; otherwise what follows fails
            PROGRESS.create(self._engine, checkfirst=True)
        with self._engine.connect() as connection:
            transaction = connection.begin()
            connection.execute(
                insert(PROGRESS).values(
                    store=PROBE, group_name=self._group, stream_id=0, segment=0, owner_epoch=0, finished=""
                )
            )
            transaction.rollback()
            if connection.execute(delete(PROGRESS).where(PROGRESS.c.store == PROBE)).rowcount:
                what = "a database that keeps what was rolled back"
                raise NotSupported(what=what, remedy="give an engine without AUTOCOMMIT")

    def _commit(self, known: StoredGroup, changes: Sequence[RowChange], events: Sequence[Event[Any]]) -> None:
        with self._engine.connect() as connection, connection.begin() as transaction:
            is_done = [not _move_row(connection, known, each) for each in changes]
            if any(is_done):
                assert all(is_done), f"a part of a round is in the database: {changes}"
                return  # an earlier attempt took place, and its answer was lost
            self._function(connection, events)
            if not transaction.is_active:
                raise TransactionEnded("the function must not commit or roll back: its caller does")


def _take_over_row(tx: Connection, known: StoredGroup, acquired: SegmentOwnership) -> str:
    """Make a segment's row that of its new owner, and return the progress in it. Raises UserDatabaseFenced."""
    columns, row, epoch = PROGRESS.c, known.row(acquired.key), acquired.owner_epoch
    ours = progress_text(acquired.progress)
    progress = case((columns.owner_epoch < known.reset, ours), else_=columns.finished)
    changed = update(PROGRESS).where(row, columns.owner_epoch <= epoch)
    if tx.execute(changed.values(finished=progress, owner_epoch=epoch)).rowcount:
        return str(tx.execute(select(columns.finished).where(row)).scalar_one())
    if tx.execute(select(columns.owner_epoch).where(row)).first() is not None:
        raise UserDatabaseFenced(acquired.key)
    stream_id, segment = acquired.key
    tx.execute(
        insert(PROGRESS).values(
            store=known.store,
            group_name=known.name,
            stream_id=stream_id,
            segment=segment,
            owner_epoch=epoch,
            finished=ours,
        )
    )
    return ours


def _move_row(tx: Connection, known: StoredGroup, change: RowChange) -> bool:
    """Change a segment's row; return False if it is as wanted. Raises UserDatabaseFenced."""
    mine = and_(known.row(change.key), PROGRESS.c.owner_epoch == change.owner_epoch)
    changed = update(PROGRESS).where(mine, PROGRESS.c.finished == change.before)
    if tx.execute(changed.values(finished=change.after)).rowcount:
        return True
    if tx.execute(select(PROGRESS.c.finished).where(mine)).scalar() != change.after:
        raise UserDatabaseFenced(change.key)
    return False
