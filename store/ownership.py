"""Who owns what only one instance may do, fenced by an epoch that grows with each new owner.

Fencing is data: whoever acts as an owner compares its epoch in the transaction of the act, so that a
process that slept ten minutes changes nothing (architecture.md section 4).
"""

from __future__ import annotations

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import OwnerFenced


@attrs.frozen
class Owner:
    """Ownership as it was claimed: of `name`, by `instance`, in `owner_epoch`."""

    name: str
    instance: str
    owner_epoch: int

    def check(self, tx: Tx) -> None:
        """Raise OwnerFenced when somebody claimed it since. One look-up a group commit."""
        key = ("owner epoch", self.name)
        if (current := tx.cache.get(key)) is None:
            current = owner_epoch(tx, self.name)
            tx.remember(key, current)
        if current != self.owner_epoch:
            raise OwnerFenced(what=self.name, owner_epoch=self.owner_epoch, current_epoch=current)


def claim(tx: Tx, name: str, instance: str) -> Owner:
    """Become the owner of `name`; all earlier ones are fenced from this transaction on."""
    row = tx.execute(
        "INSERT INTO owner (name, instance, owner_epoch) VALUES (?, ?, 1) ON CONFLICT DO UPDATE"
        " SET instance = excluded.instance, owner_epoch = owner_epoch + 1 RETURNING owner_epoch",
        (name, instance),
    ).fetchone()
    tx.remember(("owner epoch", name), row[0])
    return Owner(name, instance, row[0])


def owner_epoch(tx: Tx, name: str) -> int:
    """Return the epoch of the present owner of `name`, 0 when it never had one."""
    row = tx.execute("SELECT owner_epoch FROM owner WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def find_owner(tx: Tx, name: str) -> Owner | None:
    """Return the present owner of `name`, if it ever had one."""
    row = tx.execute("SELECT instance, owner_epoch FROM owner WHERE name = ?", (name,)).fetchone()
    return None if row is None else Owner(name, row[0], row[1])
