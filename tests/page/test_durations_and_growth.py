"""What the page shows over time: how long the calls of a processor take, and how its state grows."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
from playwright.sync_api import expect

import eventproc
from tests.page.support import PageVisit

WAIT_MS = 50

PAUSE_MS = 10_000
"""Between two counts of a state."""

SHOWN = re.compile(r"median([\d.]+) (m?s)")


def test_processor_shows_how_long_the_calls_of_its_handler_take(visit: PageVisit, store: Path) -> None:
    app = eventproc.App()

    @app.processor("shop/waiting", group="waits")
    async def wait(event: eventproc.Event) -> None:
        await anyio.sleep(WAIT_MS / 1000)

    with eventproc.open_blocking(store) as ep:
        stream = ep.create_stream("shop/waiting")
        with stream.writer() as writer:
            writer.write_many([(b"x", None)] * 40)
        with ep.run(app) as running:
            running.wait_idle()
            visit.go("processors/shop/waits")
            calls = visit.page.locator("section", has=visit.page.get_by_role("heading", name="calls"))
            expect(calls).to_contain_text("count40")
            shown = SHOWN.search(calls.inner_text().replace("\n", ""))
            assert shown is not None, calls.inner_text()
            assert float(shown[1]) * (1 if shown[2] == "ms" else 1_000) >= WAIT_MS
            expect(visit.page.locator("main")).to_contain_text("commit age")
            assert visit.violations() == []
            visit.go("processors")
            row = visit.page.get_by_role("row", name="shop/waits")
            expect(row).to_contain_text(f"{shown[1]} {shown[2]}")
            visit.go("")
            row = visit.page.get_by_role("row", name="shop/waits")
            expect(row).to_contain_text(f"{shown[1]} {shown[2]}")


def test_state_shows_how_it_grows_while_its_page_is_open(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        ep.create_group("shop/grown", [ep.stream("shop/orders")])
        states = ep.state("shop/grown")
        states.store({"one": b"1"})
        visit.page.clock.install()
        visit.go("groups/shop/grown/state/size")
        growth = visit.page.get_by_role("group", name="Growth while this page is open")
        expect(growth).to_contain_text("Keys1")
        assert visit.violations() == []
        states.store({f"more {number}": b"2" for number in range(4)})
        visit.page.clock.fast_forward(PAUSE_MS)
        expect(growth).to_contain_text(re.compile(r"Keys5\+4 in \d+"))
        expect(growth.get_by_role("img", name="Bytes of values: 5 now, 5 at most")).to_be_visible()
        states.drop(["one", "more 1"])
        visit.page.clock.fast_forward(PAUSE_MS)
        expect(growth).to_contain_text(re.compile(r"Keys3\+2 in \d+"))
