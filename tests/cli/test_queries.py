"""`eventproc query list`: what drivers published of Spark's queries."""

from __future__ import annotations

from functools import partial

import anyio
import attrs

import eventproc
from eventproc.spark.queries import SparkQuery, publish_query
from tests.cli.conftest import Cli


async def publish(shop: Cli, query: SparkQuery) -> None:
    async with eventproc.open(shop.directory, host=False) as ep:
        cut = await (await ep.stream("shop/orders")).head()
        now_ms, positions = ep.db.clock.wall_ms(), {"shop/orders": str(cut)}
        query = attrs.evolve(query, published_ms=now_ms, positions=positions)
        await ep.db.write(partial(publish_query, query=query))


def test_queries_are_listed_with_their_state_and_how_far_behind_they_are(shop: Cli) -> None:
    assert shop("query", "list", "-o", "json").json() == []
    query = SparkQuery(
        id="q", run_id="r", name="daily", instance="gone", started_ms=0, published_ms=0, batch=7
    )
    anyio.run(publish, shop, query)
    (found,) = shop("query", "list", "-o", "jsonl").rows()
    assert (found["state"], found["batch"], found["lag_events"]) == ("lost", 7, 3)
    assert [each["stream"] for each in found["streams"]] == ["shop/orders"]
    heading, line = shop("query", "list").ok().splitlines()
    assert "PUBLISHED AT  " in heading  # a time, and not ms
    assert heading.split()[:3] == ["NAME", "ID", "STATE"] and line.split()[:3] == ["daily", "q", "lost"]
