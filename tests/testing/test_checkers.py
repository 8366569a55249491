"""The checkers find what is broken: each kind of damage, made with SQL, is named."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.testing import check, order_violations, violations

DAMAGE = {
    "UPDATE extent SET start = start + 1 WHERE stream_id = 4 AND start > 0": "does not follow",
    "UPDATE extent SET count = count + 1 WHERE stream_id = 4": "",
    "DELETE FROM blob WHERE stream_id = 4": "no blob",
    "DELETE FROM extent WHERE stream_id = 4 AND place IS NOT NULL": "nothing refers to it",
    "DELETE FROM segment WHERE stream_id = 4": "have no row",
    "UPDATE segment SET head = 1000000 WHERE stream_id = 4": "beyond its tail",
    "UPDATE segment SET sealed_length = 1 WHERE stream_id = 4": "is sealed in state active",
    "UPDATE extent SET first_time = 1, last_time = 1 WHERE stream_id = 4 AND start > 0": "back in time",
    "UPDATE epoch SET body = CAST(replace(body, '\"high\":1.0', '\"high\":0.9') AS BLOB)": "tile",
    "DELETE FROM record WHERE kind = 'stream' AND key = 's/t'": "was deleted and is not being reaped",
    "INSERT INTO request VALUES ('x', 's/t', 'seal', '', 'pending', NULL, 1, NULL)": "no event will run it",
    "DELETE FROM epoch WHERE stream_id = 4": "its row is missing",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found(damage: str) -> None:
    async with eventproc.open_memory(host=True) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for _ in range(3):
                await writer.write(b"x" * 5000, key="a")
                await writer.write(b"y", key="a")
        await check(ep.db)
        if "request" in damage:
            columns = "id, target, kind, body, status, error, created_ms, finished_ms"
            damage = damage.replace("request VALUES", f"request ({columns}) VALUES")
        await ep.db.write(lambda tx: tx.execute(damage))
        found = await ep.db.read(violations)
        assert found
        assert any(DAMAGE.get(damage, "") in line for line in found), found


def test_order_per_key_is_checked() -> None:
    assert order_violations([("a", 0), ("b", 0), ("a", 1)], {"a": 2, "b": 1}) == []
    assert order_violations([("a", 1), ("a", 0)], {"a": 2}) == ["key 'a': out of order; read 2 of 2"]
    assert order_violations([("a", 0), ("a", 0)], {"a": 2}) == ["key 'a': lost [1], 1 doubled; read 2 of 2"]
    assert order_violations([], {"a": 1}) == ["key 'a': lost [0], 0 doubled; read 0 of 1"]
