"""A projection in the whole-system simulation: a read model of the stream, kept by several instances.

What must hold: each event of the stream is in the model once, those of a key in their order, and with it came the event
that tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventproc import App, AppTx, Event
from eventproc.runtime import Eventproc

TOLD = "s/told"
"""Gets an event for each one that the model has taken in."""


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
    numbers = {place: int(payload) for place, _, payload in rows}
    by_key: dict[str | None, list[int]] = {}
    for event in found:
        by_key.setdefault(event.key, []).append(numbers[event.payload.decode()])
    for key, of_key in by_key.items():
        assert of_key == sorted(of_key), f"{key}: {of_key}"
