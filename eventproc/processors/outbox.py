"""What is finished and not durable yet, and the one transaction that makes it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from eventproc.groups import Membership, SegmentKey
from eventproc.processors.cell import Cell
from eventproc.processors.context import AppTx
from eventproc.processors.emit import Emission, append_emissions
from eventproc.processors.letters import Letter, append_letters
from eventproc.processors.options import Options
from eventproc.store.database import Tx
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event


class HookFailed(Exception):
    """The user's `on_commit` raised; the cause is what."""


@attrs.define(eq=False)
class Outbox:
    """What handlers left to be made durable, each with the cell it came from: for a cell that was lost, nothing is.

    handled: the events of an exactly-once round that were handled, for the user's hook.
    """

    emitted: list[tuple[Cell, Sequence[Emission]]] = attrs.field(factory=list)
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

    def without(self, lost: Cell) -> Outbox:
        """Return the outbox without what came from `lost`."""
        return Outbox(
            emitted=[each for each in self.emitted if each[0] is not lost],
            letters=[each for each in self.letters if each[0] is not lost],
            handled=[each for each in self.handled if each[0] is not lost],
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
        """Do all of it in `tx`, or nothing. Raises SegmentFenced, HookFailed, and as `append_emissions`."""
        moved: dict[SegmentKey, Progress] = {cell.key: progress for cell, progress in self.moved.items()}
        membership.move(tx, moved)
        append_emissions(tx, [each for _, emitted in self.outbox.emitted for each in emitted])
        append_letters(tx, options.group, options.dead_letters, [letter for _, letter in self.outbox.letters])
        if options.on_commit is not None and self.outbox.handled:
            self._call_hook(tx, options)
        for cell in self.completed:
            membership.complete(tx, cell.key)

    def _call_hook(self, tx: Tx, options: Options) -> None:
        assert options.on_commit is not None, "checked by the caller"
        try:
            with tx.user_sql():
                options.on_commit(AppTx(tx), [event for _, event in self.outbox.handled])
        except Exception as why:
            raise HookFailed(f"{type(why).__name__}: {why}") from why
