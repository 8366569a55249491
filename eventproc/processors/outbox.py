"""What is finished and not durable yet, and the one transaction that makes it so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from eventproc.groups import Membership, SegmentKey
from eventproc.processors.cell import Cell
from eventproc.processors.context import AppTx
from eventproc.processors.emit import Emission, append_emissions
from eventproc.processors.letter import failure_text
from eventproc.processors.letters import Letter, append_letters
from eventproc.processors.options import Options
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.progress import Progress
from eventproc.store.progress import SegmentClaim, fenced
from eventproc.store.segments import Event


class HookFailed(Exception):
    """The user's `on_commit` raised; the cause is what."""


class SuccessorsUnknown(Exception):
    """Nobody knows any more what took over from the segment of `cell`; the stream was truncated beyond them."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.cell = cell


@attrs.define(eq=False)
class Outbox:
    """What handlers left to be made durable, each with the cell it came from: for a cell that was lost, nothing is.

    emitted: with the number of the event whose handler did. handled: the events of an exactly-once round that were
    handled, for the user's hook.
    """

    emitted: list[tuple[Cell, int, Sequence[Emission]]] = attrs.field(factory=list)
    letters: list[tuple[Cell, Letter]] = attrs.field(factory=list)
    handled: list[tuple[Cell, Event]] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.emitted or self.letters or self.handled)

    def joined(self, later: Outbox) -> Outbox:
        """Return this outbox with what came later behind it."""
        return Outbox(
            emitted=self.emitted + later.emitted,
            letters=self.letters + later.letters,
            handled=self.handled + later.handled,
        )

    def of(self, cells: Collection[Cell]) -> Outbox:
        """Return what came from `cells`: the others were lost to another reader, who handles their events again."""
        return self._where(lambda cell, _: cell in cells)

    def divided(self, now: Mapping[Cell, Progress]) -> tuple[Outbox, Outbox]:
        """Return what belongs to events that are finished in `now`, and what has to wait until they are.

        Only progress with as many ranges as it may have leaves finished events out (`Cell.snapshot`).
        """
        full = {cell: progress for cell, progress in now.items() if progress.full}
        if not full:
            return self, Outbox()

        def is_left_out(cell: Cell, number: int) -> bool:
            return cell in full and not full[cell].is_finished(number)

        return self._where(lambda *event: not is_left_out(*event)), self._where(is_left_out)

    def _where(self, holds: Callable[[Cell, int], bool]) -> Outbox:
        return Outbox(
            emitted=[each for each in self.emitted if holds(each[0], each[1])],
            letters=[each for each in self.letters if holds(each[0], each[1].event.number)],
            handled=[each for each in self.handled if holds(each[0], each[1].number)],
        )


@attrs.frozen
class Commit:
    """One commit of a processor.

    moved: {cell: its progress}. completed: cells processed to their sealed ends. finished: how many events the
    processor had finished when this was taken.
    """

    moved: Mapping[Cell, Progress]
    completed: Sequence[Cell]
    outbox: Outbox
    finished: int

    def __bool__(self) -> bool:
        return bool(self.moved or self.completed or self.outbox)

    def publish(self, tx: Tx, membership: Membership, options: Options) -> None:
        """Do all of it in `tx`, or nothing.

        Raises SegmentFenced, HookFailed, SuccessorsUnknown, and as `append_emissions`.
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
                raise fenced(
                    SegmentClaim(membership.group, membership.reader, *cell.key, assigned.owner_epoch)
                )

    def _call_hook(self, tx: Tx, options: Options) -> None:
        assert options.on_commit is not None, "checked by the caller"
        try:
            with tx.user_sql():
                options.on_commit(AppTx(tx), [event for _, event in self.outbox.handled])
        except Exception as why:
            raise HookFailed(failure_text(why)) from why
