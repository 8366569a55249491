"""What tests of joint transactions share: what is visible, and how far a group is."""

from __future__ import annotations

from contextlib import aclosing

from eventproc.groups import GroupReader
from eventproc.runtime import Eventproc
from eventproc.streams import JointTransaction, Stream
from eventproc.topics import Group
from tests.support.reading import events_of

TARGETS = ("s/a", "s/b", "s/c")


def outputs(number: int) -> tuple[str, str]:
    """Return the streams that the input `number` belongs into."""
    return TARGETS[number % 3], TARGETS[(number + 1) % 3]


async def finished(group: Group) -> int:
    """Return how many events of its first segment the group has finished durably."""
    return (await group.describe()).segments[0].number


async def take(reader: GroupReader[bytes], count: int) -> list[bytes]:
    """Return the next events of the reader; the last one stays in hand."""
    async with aclosing(aiter(reader)) as events:
        return [(await anext(events)).payload for _ in range(count)]


async def fail_in(txn: JointTransaction, stream: Stream, *payloads: bytes) -> None:
    """Write to the stream in the transaction's block, and fail in it."""
    async with txn:
        for payload in payloads:
            await txn.write(stream, payload)
        raise ZeroDivisionError


async def states(ep: Eventproc, txn_id: str) -> dict[str, str]:
    """Return the state of the transaction in each stream that knows it."""
    rows = await ep.db.read(
        lambda tx: tx.execute("SELECT stream, state FROM txn WHERE id = ? ORDER BY 1", (txn_id,)).fetchall()
    )
    return dict(rows)


async def read_outputs(ep: Eventproc, name: str, *, events: int, keys: int) -> dict[str | None, list[int]]:
    """Return the payloads of a target by key, after it has each of its inputs once, in the order of its key."""
    found: dict[str | None, list[int]] = {}
    for event in await events_of(await ep.stream(name)):
        found.setdefault(event.key, []).append(int(event.payload))
    for key in range(keys):
        wanted = [number for number in range(events) if number % keys == key and name in outputs(number)]
        assert found.get(str(key), []) == wanted, f"{name}, key {key}"
    return found
