"""How many calls of a worker may begin in a time, over all processes: one row for each name that is counted.

A row holds when the count of its name is free again (the cell rate algorithm of networks): each call moves it on by one
part of the time, and a call may begin while it is less than the whole time ahead. What may not begin is set aside until
its turn has probably come, and then asks again; only calls that begin are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from eventproc.processors.options import Rate
from eventproc.shares import Delivery
from eventproc.shares.delivery import DUE_LOOK_MS
from eventproc.store.database import Tx
from eventproc.store.jobs import free_us_of, store_free_us
from eventproc.store.segments import Event

Delays: TypeAlias = dict[Delivery[Any], int]

ALL_CALLS: Final = b""
"""Name under which calls are counted together."""

NAME_BYTES_MAX: Final = 200
"""Bytes of a name in its row; a digest stands for a longer one. Higher: an index of PostgreSQL takes 2,700 at most."""


def places(rate: Rate, free_us: int, now_us: int, calls: int) -> tuple[int, int, list[int]]:
    """Return how many of `calls` may begin now, when the count is free then, and after how many ms each other one may.

    free_us: when the count is free now, us since 1970.
    """
    part_us, ahead_us = rate.per_ms * 1_000 // rate.count, rate.per_ms * 1_000
    if (
        not now_us <= free_us <= now_us + ahead_us
    ):  # later only if the clock was set back, or the rate was lower
        free_us = now_us
    begin = min(calls, max((now_us + ahead_us - free_us) // max(part_us, 1), 0))
    free_us += begin * part_us
    waits_us = (free_us + (each + 1) * part_us - ahead_us - now_us for each in range(calls - begin))
    return begin, free_us, [max(-(-wait_us // 1_000), 1) for wait_us in waits_us]


def calls_and_wait(tx: Tx, group: str, rate: Rate, calls: int) -> tuple[int, int]:
    """Return how many of `calls` may begin now, if all are counted together; and after how many ms to look again."""
    begin, _, waits_ms = places(rate, free_us_of(tx, group, ALL_CALLS), tx.now_ms * 1_000, calls)
    return begin, min([*waits_ms[:1], DUE_LOOK_MS])


def admit(
    tx: Tx,
    group: str,
    rate: Rate,
    deliveries: Iterable[Delivery[Any]],
    as_handled: Callable[[Event], Event[Any]],
) -> Delays:
    """Count the calls that may begin now; return the other deliveries, and for how long to set them aside, in ms.

    as_handled: makes an event as the handler gets it; one for which it raises is not limited.
    Cost: a look-up and a statement for each name.
    """
    by_name: dict[bytes, list[Delivery[Any]]] = {}
    for each in deliveries:
        name = ALL_CALLS
        if rate.key is not None:
            try:
                name = _row_name(str(rate.key(as_handled(each.event))))
            except Exception:  # the handler, too, will raise, and its policy says what becomes of the event
                continue
        by_name.setdefault(name, []).append(each)
    later: Delays = {}
    for name, found in sorted(by_name.items()):
        free_us = free_us_of(tx, group, name)
        begin, free_us, waits_ms = places(rate, free_us, tx.now_ms * 1_000, len(found))
        if begin:
            store_free_us(tx, group, name, free_us)
        later.update(zip(found[begin:], waits_ms, strict=True))
    return later


def _row_name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogatepass")
    return encoded if len(encoded) <= NAME_BYTES_MAX else blake2b(encoded).digest()
