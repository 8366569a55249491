"""Durations of a store on a server: of calls elsewhere, as REST shows them, and of sends, as `/metrics` counts them."""

from __future__ import annotations

import anyio
import httpx
from prometheus_client.parser import text_string_to_metric_families

import eventproc
from eventproc.server.endpoints import serve_endpoints
from tests.server.test_listening import EVERYTHING
from tests.support.child_process import PATIENCE_S

SENDS = "messaging_client_operation_duration_seconds"
EVENTS = 20
CALL_MS = 20


async def test_rest_shows_how_long_calls_of_another_opening_take(url: str) -> None:
    app = eventproc.App()

    @app.processor("s/t", group="s/g", order="segment")
    async def handle(event: eventproc.Event) -> None:
        await anyio.sleep(CALL_MS / 1000)

    async with eventproc.open(url) as worker, eventproc.open(url, host=False) as shown:
        await worker.create_scope("s")
        stream = await worker.create_stream("s/t")
        async with serve_endpoints(shown, EVERYTHING) as bound, worker.run(app) as running:
            assert bound.rest is not None
            async with stream.writer() as writer:
                await writer.write_many([(b"x", None)] * EVENTS)
            await running.wait_idle()
            base = f"http://127.0.0.1:{bound.rest[1]}/eventproc/v1"
            async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=PATIENCE_S) as http:
                found = (await http.get("/processors/s/g")).json()
                with anyio.fail_after(PATIENCE_S):
                    while found["calls"] is None or found["calls"]["count"] < EVENTS:  # it comes 2 s late
                        found = (await http.get("/processors/s/g")).json()
                (group,) = (await http.get("/overview")).json()["groups"]
    calls = found["calls"]
    assert calls["count"] == EVENTS
    assert CALL_MS <= calls["median_ms"] <= calls["p99_ms"]
    assert CALL_MS <= calls["mean_ms"] < PATIENCE_S * 1000
    assert found["commit_age_ms"] >= CALL_MS
    assert (group["calls"], group["commit_age_ms"]) == (calls, found["commit_age_ms"])


async def test_metrics_count_how_long_sends_to_a_server_take(url: str) -> None:
    async with eventproc.open(url) as ep, serve_endpoints(ep, EVERYTHING) as bound:
        assert bound.rest is not None
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        begun = anyio.current_time()
        async with stream.writer() as writer:
            for _ in range(EVENTS):
                await writer.write(b"x")
        taken_s = anyio.current_time() - begun
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            scraped = (await http.get(f"http://127.0.0.1:{bound.rest[1]}/metrics")).text
    (family,) = [each for each in text_string_to_metric_families(scraped) if each.name == SENDS]
    found = {
        each.name: each.value for each in family.samples if each.labels == {"stream": "s/t", "error": ""}
    }
    buckets = {
        float(each.labels["le"]): each.value
        for each in family.samples
        if each.labels.get("stream") == "s/t" and "le" in each.labels
    }
    assert found[f"{SENDS}_count"] == buckets[float("inf")] == EVENTS
    assert 0 < found[f"{SENDS}_sum"] <= taken_s + EVENTS / 1000, "each is rounded to a millisecond"
    assert list(buckets.values()) == sorted(buckets.values())
