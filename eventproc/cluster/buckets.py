"""Which instance owns which bucket, so that the periodic work on each stream has one place at a time.

The instances that take part are the host, and each other instance that may host, JOIN_MS after it was opened.
docs/design/background-work.md gives the reasons.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.cluster.divisions import Division, OwnedNames
from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.faults import Step
from eventproc.store.model.buckets import BUCKET_COUNT, bucket_of, bucket_owner_name
from eventproc.store.ownership import Owner
from eventproc.store.records import RecordKind

JOIN_MS: Final = 3_000
"""Age at which an instance takes part, unless it becomes the host before. Higher: other instances help later. Lower:
short programs move buckets for nothing."""


@attrs.frozen
class Workers:
    """The instances that divide the buckets, in the order in which they joined."""

    instances: tuple[str, ...] = ()


BUCKETS: Final[Division[str]] = Division(
    record=RecordKind(name="workers", value=Workers),
    members_of=lambda workers: workers.instances,
    instance_of=str,
    names=tuple(map(bucket_owner_name, range(BUCKET_COUNT))),
    channel="buckets",
    step=Step.BUCKET_SHARE,
)


class OwnedBuckets(OwnedNames[str]):
    """The buckets that this instance owns, as far as it knows."""

    def __init__(self) -> None:
        super().__init__(BUCKETS)

    def owner_of(self, name: str) -> Owner | None:
        """Return this instance's ownership of the bucket of a stream, or of another named object; None if it has none.

        Give it to `Owner.check` in each transaction of the work.
        """
        return self.owned.get(bucket_of(name))


OWNED_BUCKETS: Final = SharedSlot(OwnedBuckets)


def bucket_owners(tx: Tx) -> list[str | None]:
    """Return the instance that owns each bucket, dead or alive; None for buckets that never had an owner."""
    return [None if each is None else each.instance for each in BUCKETS.read(tx).owners]


async def keep_buckets(db: Database) -> None:
    """Take part from JOIN_MS on, follow the owners of buckets, and replace workers that do not work, until cancelled.

    It never ends the user's program, and ends itself when the directory is closed.
    """
    joins_at_ms = db.clock.monotonic_ms() + JOIN_MS
    await db.shared[OWNED_BUCKETS].keep(db, db.instance_id, joins_at_ms=joins_at_ms)
