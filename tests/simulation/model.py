"""A projection and a state by key in the whole-system simulation, kept by several instances.

What must hold: each event of the stream is in the model once, those of a key in their order, and with it came the event
that tells of it. The state of a key counts each of its events once.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventproc import App, AppTx, Event, KeyState
from eventproc.runtime import Eventproc

TOLD = "s/told"
"""Gets an event for each one that the model has taken in."""

COUNTS = "s/counts"
"""The group of the processor with a state."""


def model_app(stream: str) -> App:
    """Return the projection, as an app of one process."""
    app = App()

    @app.setup
    def make_table(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_model (place TEXT, key TEXT, payload TEXT)")

    @app.projection(stream, group="s/model")
    def model(tx: AppTx, events: Sequence[Event]) -> None:
        for event in events:
            row = f"{event.segment}:{event.number}", event.key, event.payload.decode()
            tx.execute("INSERT INTO app_model VALUES (?, ?, ?)", row)
            tx.emit(TOLD, row[0].encode(), key=event.key)

    @app.processor(stream, group=COUNTS, state=KeyState(dict[str, int], cache_bytes=500))
    async def count(event: Event, counted: dict[str, int]) -> None:
        counted["events"] = counted.get("events", 0) + 1
        counted["sum"] = counted.get("sum", 0) + int(event.payload)

    return app


async def check_model(ep: Eventproc, events: Sequence[Event]) -> None:
    """Assert what must hold at the end. events: all of the stream."""

    def look(tx: AppTx) -> list[tuple[str, str, str]]:
        rows = tx.execute("SELECT place, key, payload FROM app_model ORDER BY place").fetchall()
        return [(place, key, payload) for place, key, payload in rows]

    rows = await ep.change_tables(look)
    expected = [(f"{each.segment}:{each.number}", each.key, each.payload.decode()) for each in events]
    assert rows == sorted(expected)
    told = await ep.stream(TOLD)
    async with told.reader() as reader:
        found = [event async for event in reader.until(await told.tail())]
    assert sorted(event.payload.decode() for event in found) == [place for place, _, _ in rows]
    counts: dict[str, dict[str, int]] = {}
    for each in events:
        if each.key is not None:
            before = counts.get(each.key, {"events": 0, "sum": 0})
            counts[each.key] = {
                "events": before["events"] + 1,
                "sum": before["sum"] + int(each.payload),
            }
    kept = await ep.state(COUNTS, dict[str, int]).list(limit=1_000)
    assert {each.key: each.value for each in kept} == counts
    numbers = {place: int(payload) for place, _, payload in rows}
    by_key: dict[str | None, list[int]] = {}
    for event in found:
        by_key.setdefault(event.key, []).append(numbers[event.payload.decode()])
    for key, of_key in by_key.items():
        assert of_key == sorted(of_key), f"{key}: {of_key}"
