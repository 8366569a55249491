"""Dead letters without `await`."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.groups import ensure_group
from eventproc.processors.dead_letters.operations import FailedEvent, append_letters
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event


def give_up(tx: Tx) -> None:
    ensure_group(tx, "s/g", ["s/t"])
    events = [
        Event(b"%d" % number, "k", 0, None, "s/t", SegmentId(0), 9 * number, number, {})
        for number in range(4)
    ]
    letters = [
        FailedEvent.of(each, ValueError("bad"), attempts=1, processor="p", failed_ms=1) for each in events
    ]
    append_letters(tx, "s/g", None, letters)


def test_letters_are_listed_redriven_and_dropped_without_await(tmp_path: Path) -> None:
    async def fill() -> None:
        async with eventproc.open(tmp_path / "data", durability="os") as ep:
            await ep.create_scope("s")
            await ep.create_stream("s/t")
            await ep.db.write(give_up)

    anyio.run(fill)
    with eventproc.open_blocking(tmp_path / "data") as ep:
        letters = ep.dead_letters("s/g")
        assert letters.group == "s/g"
        assert [each.payload for each in letters.list(limit=3)] == [b"0", b"1", b"2"]
        assert letters.get("0.0:3").error == "bad"
        assert letters.redrive(["0.0:3", "0.0:0"]) == 2
        assert letters.count().letters == 2
        assert letters.drop("all") == 2
        assert letters.list() == []
        with pytest.raises(NotFound):
            letters.get("0.0:1")
        with ep.stream("s/g-redrive").reader() as reader:
            assert [each.payload for each in reader.until(ep.stream("s/g-redrive").tail())] == [b"0", b"3"]
