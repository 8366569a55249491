"""Which instance owns which bucket, so that the periodic work on each stream has one place at a time.

A bucket is a row of `owner`; every transaction of periodic work compares it (`Owner.check`). The record WORKERS lists
the instances that take part: the host, and each other instance that may host, JOIN_MS after it was opened. Joining, and
removing a dead or silent worker, is one transaction that also shares the buckets, by the function that shares the
segments of a group. A worker that was removed while it was suspended joins again. docs/design/background-work.md gives
the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio
import attrs

from eventproc.cluster.background_steps import repeat_step
from eventproc.cluster.owner_watch import OWNER_WATCH, working
from eventproc.groups.assignors import share_equally
from eventproc.processors.retry import RETRY_MS_MAX
from eventproc.store.database import Database, SharedSlot, Subscription, Tx, Watch
from eventproc.store.faults import Step
from eventproc.store.model.buckets import BUCKET_COUNT, bucket_of, bucket_owner_name
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner, claim, find_owner
from eventproc.store.records import RecordKind, create, find, replace

LOG = logging.getLogger("eventproc.buckets")

JOIN_MS: Final = 3_000
"""Age at which an instance takes part, unless it becomes the host before. Higher: other instances help later. Lower:
short programs move buckets for nothing."""

POLL_MS: Final = 200
"""Pause between two looks at the locks of the other workers: how long the work of a dead one waits. Each look costs
7 us for each worker."""

BUCKETS_TOPIC: Final = "buckets"
OWNED_TOPIC: Final = "owned buckets"


@attrs.frozen
class Workers:
    """The instances that share the buckets, in the order in which they joined."""

    instances: tuple[str, ...] = ()


WORKERS: Final = RecordKind(name="workers", value=Workers)
"""One record, of the key ALL. Whenever owners change, its version grows."""

ALL: Final = "all"


class OwnedBuckets:
    """The buckets that this instance owns, as far as it knows. Only `Owner.check` in a transaction is certain.

    owned: {bucket: its ownership}.
    """

    def __init__(self) -> None:
        self.owned: Mapping[int, Owner] = MappingProxyType({})
        self._listeners: dict[Subscription, None] = {}

    def owner_of(self, name: str) -> Owner | None:
        """Return this instance's ownership of the bucket of a stream, or of another named object; None if it has none.

        Give it to `Owner.check` in each transaction of the work.
        """
        return self.owned.get(bucket_of(name))

    @contextmanager
    def notifying(self, changes: Subscription) -> Iterator[None]:
        """Wake the subscription, as by OWNED_TOPIC, at each change of `owned` within the block."""
        self._listeners[changes] = None
        try:
            yield
        finally:
            del self._listeners[changes]

    def replace(self, owned: Mapping[int, Owner]) -> None:
        """Note what this instance owns now. Does nothing if it is the same."""
        if owned != self.owned:
            self.owned = MappingProxyType(dict(owned))
            for each in self._listeners:
                each.notify(OWNED_TOPIC)


OWNED_BUCKETS: Final = SharedSlot(OwnedBuckets)


def watch_buckets() -> Watch:
    """Return the watch for changes of the owners of buckets."""

    def probe(tx: Tx) -> int:
        found = find(tx, WORKERS, ALL)
        return 0 if found is None else found.version

    return Watch(BUCKETS_TOPIC, probe)


def bucket_owners(tx: Tx) -> list[str | None]:
    """Return the instance that owns each bucket, dead or alive; None for buckets that never had an owner."""
    found = (find_owner(tx, bucket_owner_name(each)) for each in range(BUCKET_COUNT))
    return [None if each is None else each.instance for each in found]


def share_buckets(tx: Tx, is_working: Callable[[str], bool], joining: str | None = None) -> None:
    """Remove workers that do not work, add `joining`, and share the buckets: fairly, with the fewest moves.

    Does nothing if the workers are the same. A bucket that moves gets a new owner epoch, which fences its last owner.
    """
    found = find(tx, WORKERS, ALL)
    before = () if found is None else found.value.instances
    after = tuple(each for each in before if each == joining or is_working(each))
    if joining is not None and joining not in after:
        after = (*after, joining)
    if after == before:
        return
    if found is None:
        create(tx, WORKERS, ALL, Workers(after))
    else:
        replace(tx, WORKERS, found, Workers(after))
    share_names(tx, [bucket_owner_name(each) for each in range(BUCKET_COUNT)], after)
    tx.wake(BUCKETS_TOPIC)


def share_names(tx: Tx, names: Sequence[str], instances: Sequence[str]) -> None:
    """Give each of these names of the table `owner` an owner among the instances: fairly, with the fewest moves.

    A name that moves gets a new owner epoch, which fences its last owner. Without an instance nothing changes.
    """
    found = [find_owner(tx, each) for each in names]
    owners = [None if each is None else each.instance for each in found]
    targets = {(0, SegmentId(number)): owner for number, owner in enumerate(owners)}
    for (_, number), instance in share_equally(targets, instances, targets).items():
        if instance != owners[number]:
            claim(tx, names[number], instance)


async def keep_buckets(db: Database) -> None:
    """Take part from JOIN_MS on, follow the owners of buckets, and replace workers that do not work, until cancelled.

    It never ends the user's program, and ends itself when the directory is closed.
    """
    joins_at_ms = db.clock.monotonic_ms() + JOIN_MS
    with db.subscribe([watch_buckets()]) as changes:
        follow = partial(_follow, db, joins_at_ms, changes)
        pause = partial(anyio.sleep, RETRY_MS_MAX / 1000)
        await repeat_step(follow, pause, LOG, "the buckets of periodic work cannot be shared now")


async def _follow(db: Database, joins_at_ms: int, changes: Subscription) -> None:
    """Learn the owners, and join or replace a worker when that is due. Returns after a change of owners."""
    watch, is_working = db.shared[OWNER_WATCH], working(db)
    workers, owned = await db.read(partial(_look, instance=db.instance_id))
    db.shared[OWNED_BUCKETS].replace(owned)
    joined = db.instance_id in workers
    pause_ms = (
        (POLL_MS if len(workers) > 1 else None) if joined else max(joins_at_ms - db.clock.monotonic_ms(), 0)
    )
    while pause_ms != 0:
        if joined and len(workers) > 1:
            watch.keep(db)
        if await changes.wait(pause_ms):
            return
        if not joined or not all(map(is_working, workers)):
            break
    watch.beat(db)
    share = partial(share_buckets, is_working=is_working, joining=db.instance_id)
    await db.write(share, step=Step.BUCKET_SHARE)


def _look(tx: Tx, instance: str) -> tuple[tuple[str, ...], dict[int, Owner]]:
    found = find(tx, WORKERS, ALL)
    workers = () if found is None else found.value.instances
    if instance not in workers:
        return workers, {}
    owners = ((bucket, find_owner(tx, bucket_owner_name(bucket))) for bucket in range(BUCKET_COUNT))
    return workers, {
        bucket: owner for bucket, owner in owners if owner is not None and owner.instance == instance
    }
