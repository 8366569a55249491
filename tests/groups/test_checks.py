"""The record and the rows of a group follow from its log: a check of the directory finds what does not."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.groups.inspection import violations
from eventproc.testing import VirtualClock
from tests.support.virtual_time import anyio_backend as anyio_backend


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("UPDATE group_segment SET owner = 'b'", "its segments say"),
        ("UPDATE group_segment SET owner_epoch = owner_epoch + 1", "its segments say"),
        ("UPDATE group_segment SET target = NULL", "its segments say"),
        ("UPDATE group_segment SET waiting = '[7]' WHERE segment = 0", "its segments say"),
        ("UPDATE group_member SET epoch = epoch + 1", "its members say"),
        ("DELETE FROM group_member", "its members say"),
        (
            "UPDATE record SET body = CAST(replace(CAST(body AS TEXT), '9000', '9001') AS BLOB) WHERE kind = 'group'",
            "its record says",
        ),
        (
            "UPDATE record SET body = CAST(replace(CAST(body AS TEXT), 's/t', 's/u') AS BLOB) WHERE kind = 'group'",
            "its record says",
        ),
        ("UPDATE group_segment SET offset = 0, number = 0, finished = '[0,0]'", "stands at"),
    ],
)
async def test_what_differs_from_the_log_is_found(sql: str, found: str) -> None:
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write(b"1")
        group = await ep.create_group("g", ["s/t"], start="tail", patience_ms=9_000)
        async with group.reader("a") as reader:
            async for _ in reader.until(await stream.tail()):
                pass
            assert await ep.db.read(violations) == []
            await ep.db.write(lambda tx: tx.execute(sql))
            assert any(found in each for each in await ep.db.read(violations))
