"""A store with data of a real run, served, and a browser: once for each module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import eventproc
from tests.page.support import PageVisit, Served, running_browser, serving

HOSTILE = '<img src=x onerror="alert(1)">\u202etxt.exe'
"""A key and a payload: markup that would run, and an override that turns what follows it around."""

MANY_BYTES = 1 << 20

EXACT = b'{"id": 12345678901234567890}'
NANOSECONDS = 1_800_000_000_000_000_000
"""What a program writes that takes them for milliseconds."""

app = eventproc.App()


@app.processor("shop/orders", group="mailer", order="key", retry=eventproc.RetryPolicy(attempts=1))
async def mail(event: eventproc.Event) -> None:
    if event.key == "bad":
        raise ValueError(f"no address for {event.payload!r}")


@app.worker("shop/tasks", share_group="shop/tasks", retry=eventproc.RetryPolicy(attempts=1))
async def work(event: eventproc.Event) -> None:
    if event.payload == b"bad":
        raise ValueError("this job never works")


def fill(path: Path) -> None:
    """Make a store with something of each kind in it."""
    with eventproc.open_blocking(path) as ep:
        ep.create_scope("shop")
        orders = ep.create_stream("shop/orders", scaling=eventproc.ScalingPolicy.fixed(2))
        clicks = ep.create_topic("shop/clicks", partitions=3)
        with orders.writer() as writer:
            for number in range(200):
                payload = json.dumps({"order": number, "user": {"city": "Rome", "tags": ["a", "b"]}}).encode()
                writer.write(payload, key="bad" if number % 50 == 7 else f"c{number % 11}")
            writer.write(HOSTILE.encode(), key=HOSTILE)
            writer.write(b"x" * MANY_BYTES, key="large")
            writer.write(EXACT, key="odd", headers={"payload": "no base64"}, event_time=NANOSECONDS)
        orders.split(orders.segments()[0].id, 2)
        with clicks.writer() as writer:
            writer.write(bytes(range(256)), key="bytes")
        with ep.create_stream("shop/tasks").writer() as writer:
            writer.write_many([(b"good", None), (b"bad", None)])
        with orders.transaction() as txn:
            txn.write(b"staged", key="t")
        orders.begin(lease_ms=None)
        ep.create_group("shop/billing", [orders])
        ep.state("shop/billing").store({"c1": b'{"total":3}', HOSTILE: HOSTILE.encode()})
        ep.create_share_group("shop/queue", [clicks])
        ep.schedules.create("shop/nightly", cron="0 3 * * *", stream="shop/orders", payload=b"{}")
        schema = {"datasource": "orders", "dimensions": ["order"]}
        ep.submit_supervisor({"id": "orders", "io": {"streams": ["shop/orders"]}, "schema": schema})
        with ep.run(app) as running:
            running.wait_idle()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "data"
    fill(path)
    return path


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Served]:
    with serving(store, "ui", "--no-browser") as found:
        yield found


@pytest.fixture
def visit(browser: Browser, served: Served) -> Iterator[PageVisit]:
    found = PageVisit(browser, served)
    yield found
    found.close()
    assert (found.complaints, found.elsewhere) == ([], [])
