"""Ownership of work that only one instance may do, fenced by an epoch that grows with each new owner.

An owner compares its epoch in the same transaction in which it acts. So a process that was suspended for ten minutes
and lost the ownership changes nothing (architecture.md section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from eventproc.store.database import Tx, find_number
from eventproc.store.model.errors import OwnerFenced

T = TypeVar("T")


@attrs.frozen
class Owner:
    """The ownership of `name`, as `instance` claimed it with `owner_epoch`."""

    name: str
    instance: str
    owner_epoch: int

    def check(self, tx: Tx) -> None:
        """Raise OwnerFenced if another instance has claimed it since. One lookup per transaction."""
        key = ("owner epoch", self.name)
        if (current := tx.cache.get(key)) is None:
            current = owner_epoch(tx, self.name)
            tx.remember(key, current)
        if current != self.owner_epoch:
            raise OwnerFenced(what=self.name, owner_epoch=self.owner_epoch, current_epoch=current)

    def fencing(self, step: Callable[[Tx], T]) -> Callable[[Tx], T]:
        """Return a step of a transaction that begins with `check`."""

        def fenced(tx: Tx) -> T:
            self.check(tx)
            return step(tx)

        return fenced


def claim(tx: Tx, name: str, instance: str) -> Owner:
    """Become the owner of `name`. All earlier owners are fenced from this transaction on."""
    row = tx.execute(
        "INSERT INTO owner (name, instance, owner_epoch) VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE"
        " SET instance = excluded.instance, owner_epoch = owner.owner_epoch + 1 RETURNING owner_epoch",
        (name, instance),
    ).fetchone()
    tx.remember(("owner epoch", name), row[0])
    return Owner(name, instance, row[0])


def owner_epoch(tx: Tx, name: str) -> int:
    """Return the epoch of the present owner of `name`, or 0 if it never had one."""
    return find_number(tx, "SELECT owner_epoch FROM owner WHERE name = ?", name) or 0


def find_owner(tx: Tx, name: str) -> Owner | None:
    """Return the present owner of `name`, or None if it never had one."""
    row = tx.execute("SELECT instance, owner_epoch FROM owner WHERE name = ?", (name,)).fetchone()
    return None if row is None else Owner(name, row[0], row[1])
