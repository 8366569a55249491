"""What people do on the page: look at events, decide about dead letters, watch a stream, sign in, stay connected."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

import eventproc
from eventproc import Permission
from tests.cli.support import PATIENCE_S
from tests.page.conftest import EXACT, HOSTILE, MANY_BYTES, fill
from tests.page.support import PageVisit, Served, serving


def test_dry_run_shows_what_is_lost_and_then_what_was_shown_is_done(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        stream = ep.create_stream("shop/old")
        with stream.writer() as writer:
            writer.write_many([(b"one", None), (b"two", None)])
        visit.go("streams/shop/old")
        visit.act("Truncate stream")
        visit.page.get_by_label("cut (required)").fill("tail")
        visit.preview()
        expect(visit.page.get_by_role("dialog").locator("dl")).to_contain_text("events2")
        assert stream.describe().events == 2, "a dry run changes nothing"
        with stream.writer() as writer:
            writer.write(b"three")
        visit.confirm("Truncate stream")
        assert stream.describe().events == 1, "what came after the dry run stays"


def test_dead_letters_are_decoded_and_dropped_one_by_one_and_all(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        letters = ep.dead_letters("shop/mailer")
        before = [each.id for each in letters.list()]
        visit.go(f"processors/shop/mailer/dead-letters/{before[0]}")
        expect(visit.page.locator("main")).to_contain_text("ValueError")
        expect(visit.page.locator("pre")).to_contain_text("raise ValueError")
        expect(visit.page.locator("details").first).to_contain_text("Rome")
        visit.act("Drop dead letters")
        expect(visit.page.get_by_label("ids")).to_have_value(before[0])
        visit.press("Continue")
        expect(visit.page.get_by_role("dialog")).to_contain_text("This cannot be taken back")
        assert len(letters.list()) == len(before)
        visit.confirm("Drop dead letters")
        assert [each.id for each in letters.list()] == before[1:]
        visit.go("processors/shop/mailer/dead-letters")
        visit.act("Drop dead letters")
        visit.press("Continue")
        visit.confirm("Drop dead letters")
        assert letters.list() == []


def test_states_are_shown_with_their_values_and_dropped_one_by_one(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        states = ep.state("shop/billing")
        before = len(states.list())
        visit.go("groups/shop/billing/state")
        expect(visit.page.locator("main table")).to_contain_text('{"total":3}')
        visit.page.get_by_role("link", name="c1", exact=True).click()
        expect(visit.page.locator("h1")).to_have_text("c1")
        expect(visit.page.locator(".leaf")).to_have_text("total: 3")
        visit.act("Drop key state")
        expect(visit.page.get_by_label("key (required)")).to_have_value("c1")
        visit.press("Continue")
        visit.confirm("Drop key state")
        assert (len(states.list()), states.get("c1")) == (before - 1, None)


def test_events_are_browsed_by_position_key_and_segment_and_followed(visit: PageVisit, store: Path) -> None:
    visit.go("streams/shop/orders/events?start=head&key=c3")
    rows = visit.page.locator("table.events tbody tr")
    expect(rows).to_have_count(17)
    rows.first.get_by_role("button").click()
    expect(visit.page.locator("details").first).to_contain_text("Rome")
    visit.page.get_by_role("button", name="hex").click()
    expect(visit.page.locator("pre")).to_contain_text("7b 22 6f 72")
    visit.page.get_by_label("from").fill("tail")
    visit.page.get_by_label("key").fill("")
    visit.page.get_by_role("button", name="Show").click()
    expect(visit.page.get_by_role("status").filter(has_text="events")).to_have_text("0 events, up to the end")
    visit.page.get_by_role("button", name="Follow").click()
    with eventproc.open_blocking(store) as ep, ep.stream("shop/orders").writer() as writer:
        writer.write(b"news", key="now")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("news")
    visit.go("streams/shop/orders/events?start=nowhere")
    expect(visit.page.get_by_role("alert")).to_contain_text("nowhere")


def test_following_catches_up_in_batches_and_shows_the_newest_events(visit: PageVisit, store: Path) -> None:
    starts: set[str] = set()
    visit.page.on("request", lambda each: starts.update(re.findall(r"/events\?.*start=([^&]*)", each.url)))
    with eventproc.open_blocking(store) as ep:
        stream = ep.create_stream("shop/many")
        with stream.writer() as writer:
            writer.write_many((b"%d" % number, None) for number in range(5_000))
        visit.go("streams/shop/many/events?start=head")
        rows = visit.page.locator("table.events tbody tr")
        expect(rows).to_have_count(100)
        visit.page.get_by_role("button", name="Follow").click()
        expect(rows.last).to_contain_text("4999")
        expect(rows).to_have_count(2_000)
        assert len(starts) <= 8, "a page of 100, and then 1,000 at a time"
        with stream.writer() as writer:
            writer.write_many([(b"x" * MANY_BYTES, None)] * 30)
        expect(rows).to_have_count(23)  # 32 MiB of payloads in base64
    visit.page.goto("about:blank")


def test_hostile_and_large_payloads_are_shown_as_what_they_are(visit: PageVisit) -> None:
    visit.go("streams/shop/orders/events?start=last")
    row = visit.page.locator("table.events tbody tr", has_text="onerror")
    expect(row).to_contain_text(HOSTILE)
    row.get_by_role("button").click()
    expect(visit.page.locator("pre")).to_contain_text(HOSTILE)
    assert visit.page.locator("img").count() == 0
    large = visit.page.locator("table.events tbody tr", has_text="large")
    large.get_by_role("button").click()
    visit.page.get_by_role("button", name="Show all 1.0 MB").click()
    shown = visit.page.locator("pre").filter(has_text="xxxx")
    assert len(shown.inner_text()) == MANY_BYTES
    visit.go("streams/shop/orders/events?start=head&key=odd")
    odd = visit.page.locator("table.events tbody tr", has_text="odd")
    odd.get_by_role("button").click()
    expect(visit.page.locator("dl")).to_contain_text(["no base64"])
    expect(visit.page.locator(".leaf")).to_have_text("id: 12345678901234567890")
    visit.page.get_by_role("button", name="text").click()
    expect(visit.page.locator("pre").filter(has_text=EXACT.decode())).to_be_visible()


def test_payloads_are_shown_in_the_form_that_they_have_or_that_is_chosen(
    visit: PageVisit, store: Path
) -> None:
    with eventproc.open_blocking(store) as ep, ep.create_stream("shop/forms").writer() as writer:
        for payload in (b'[{"a": 1}]', "Grüße".encode(), b"\x00\x00\x00\x07", "ü".encode() * 500):
            writer.write(payload, key="k")
    visit.go("streams/shop/forms/events?start=head")
    excerpts = visit.page.locator("td.excerpt")
    expect(excerpts).to_have_text(['[{"a": 1}]', "Grüße", "00 00 00 07", "ü" * 150])
    for number in range(4):
        visit.page.get_by_role("button", name=f"Event {number} of").click()
    chosen = visit.page.locator(".forms [aria-pressed=true]")
    expect(chosen).to_have_text(["tree", "text", "hex", "text"])
    visit.page.get_by_label("payloads").select_option("hex")
    expect(chosen).to_have_text(["hex"] * 4)
    expect(excerpts.nth(1)).to_have_text("47 72 c3 bc c3 9f 65")
    visit.page.get_by_label("payloads").select_option("tree")
    expect(chosen).to_have_text(["tree", "text", "hex", "text"])


@pytest.mark.parametrize("place", ["streams/%E0%A4%A/x", "streams/100%/x", "streams/../overview", "changes"])
def test_an_address_that_names_no_page_is_said_to_be_none(visit: PageVisit, place: str) -> None:
    visit.go(place)
    expect(visit.page.locator("h1")).to_have_text("Nothing is here")


def test_names_in_an_address_are_shown_as_texts(visit: PageVisit) -> None:
    visit.go("streams/%3Cscript%3Ealert(1)/x")
    expect(visit.page.get_by_role("alert").first).to_be_visible()


def test_a_new_token_is_taken_by_the_tab_that_is_open(visit: PageVisit, served: Served) -> None:
    visit.page.evaluate("sessionStorage.clear()")
    visit.page.goto(f"{served.base}?")
    expect(visit.page.get_by_role("button", name="Sign in")).to_be_visible()
    visit.page.evaluate("hash => { location.hash = hash; }", served.address.partition("#")[2])
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert "token" not in visit.page.url


def test_browser_is_opened_without_the_token_in_its_arguments(
    browser: Browser, store: Path, tmp_path: Path
) -> None:
    arguments, program = tmp_path / "arguments", tmp_path / "program"
    os.mkfifo(arguments)
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    program.chmod(0o700)
    with serving(store, "ui", DISPLAY=":0", BROWSER=f"{program} %s") as served:
        opened = arguments.read_text().strip()
        assert "token" not in opened
        link = Path(httpx.URL(opened).path)
        assert link.parent.stat().st_mode & 0o077 == 0, "nobody else can read it"
        page = browser.new_page()
        page.goto(opened)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.close()
        served.stop()
    assert not link.parent.exists()


def test_a_late_answer_is_not_shown_as_that_to_the_next_question(visit: PageVisit) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "large" in route.request.url:
            route.fallback()
        else:
            held.append(route)

    visit.go("streams/shop/orders/events?start=head&key=c3")
    rows = visit.page.locator("table.events tbody tr")
    expect(rows).to_have_count(17)
    visit.page.route("**/events?**", hold)
    with visit.page.expect_request("**/events?**"):
        visit.page.get_by_role("button", name="Newer").click()
    visit.page.get_by_label("key").fill("large")
    visit.page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(1)
    with visit.page.expect_response("**/events?**"):
        held[0].continue_()
    expect(rows).to_have_text([re.compile("large")])

    visit.page.clock.install()
    visit.go("streams")
    held.clear()
    visit.page.route("**/v1/streams", hold)
    with visit.page.expect_request("**/v1/streams"):
        visit.page.clock.fast_forward(5_000)  # it asks again
    visit.page.get_by_label("scope").fill("shop")
    visit.page.get_by_role("button", name="Show").click()
    expect(visit.page).to_have_url(re.compile("scope=shop"))
    expect(visit.page.get_by_role("link", name="shop/orders")).to_be_visible(timeout=2_000)
    held[0].abort()


def test_a_late_answer_is_not_shown_when_the_same_list_was_asked_for_once_more(visit: PageVisit) -> None:
    held: list[Route] = []
    visit.go("streams")
    visit.page.route("**/v1/streams", lambda route: held.append(route), times=1)
    with visit.page.expect_request("**/v1/streams"):
        pass  # it asks again every 5 s
    orders = visit.page.get_by_role("link", name="shop/orders")
    for place in ("streams?scope=shop", "streams"):
        visit.go(place)
        expect(orders).to_be_visible()
    held[0].fulfill(json={"items": [], "next": None})
    visit.page.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert orders.is_visible()


def test_options_are_replaced_only_when_it_is_known_what_they_are(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        ep.create_stream("shop/kept", retention=eventproc.RetentionPolicy(size_bytes=12 << 20))
    visit.page.route("**/v1/scopes/shop/streams/kept", lambda route: route.fulfill(status=500, body=""))
    visit.go("streams/shop/kept")
    visit.act("Update stream")
    dialog = visit.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_be_visible()
    expect(dialog.get_by_role("button", name="Show what it would do")).to_be_disabled()
    visit.press("Cancel")
    visit.page.unroute("**/v1/scopes/shop/streams/kept")
    visit.act("Update stream")
    expect(dialog.get_by_label("retention policy")).to_have_value(re.compile("SIZE"))


def test_an_update_of_a_stream_keeps_what_is_left_alone(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        retention = eventproc.RetentionPolicy(age_ms=90_500, size_bytes=12 << 20)
        before = ep.create_stream("shop/tagged", tags=["a", "b"], retention=retention).describe().config
    visit.go("streams/shop/tagged")
    visit.act("Update stream")
    visit.page.get_by_label("offload policy").fill('{"sizeBytes": 7}')
    visit.preview()
    visit.confirm("Update stream")
    visit.press("Close")
    with eventproc.open_blocking(store) as ep:
        after = ep.stream("shop/tagged").describe().config
    assert after == attrs.evolve(before, offload=eventproc.OffloadPolicy(size_bytes=7))


def test_what_a_dry_run_has_shown_is_done_also_if_the_form_was_edited_meanwhile(
    visit: PageVisit, store: Path
) -> None:
    with eventproc.open_blocking(store) as ep:
        ep.create_stream("shop/edited")
    held: list[Route] = []
    visit.go("streams/shop/edited")
    visit.act("Update stream")
    policy = visit.page.get_by_label("offload policy")
    policy.fill('{"sizeBytes": 7}')
    visit.page.route("**/streams/edited?dry_run=true", lambda route: held.append(route))
    with visit.page.expect_request("**/streams/edited?dry_run=true"):
        visit.press("Show what it would do")
    policy.fill('{"sizeBytes": 8}')
    held[0].continue_()
    expect(visit.page.get_by_role("heading", name="What it would do")).to_be_visible()
    with visit.page.expect_request(lambda each: each.method == "PUT") as sent:
        visit.confirm("Update stream")
    assert json.loads(sent.value.post_data or "")["offloadPolicy"] == {"sizeBytes": 7}


def test_events_are_read_again_when_nothing_of_the_question_has_changed(
    visit: PageVisit, store: Path
) -> None:
    with eventproc.open_blocking(store) as ep, ep.create_stream("shop/asked").writer() as writer:
        visit.go("streams/shop/asked/events")
        for number in range(3):
            writer.write(f"event {number}".encode())
            visit.page.get_by_role("button", name="Show").click()
            expect(visit.page.locator("table.events tbody tr")).to_have_count(number + 1)


def test_page_that_a_busy_server_refuses_tries_again(visit: PageVisit) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=503, json={"detail": "256 calls are running"})

    visit.go("")
    visit.page.route("**/v1/caller", refuse, times=1)
    visit.page.reload()
    expect(visit.page.get_by_text("256 calls are running")).to_be_visible()
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_list_is_filtered_by_a_choice_and_leads_to_its_entries(visit: PageVisit) -> None:
    visit.go("jobs/shop/tasks")
    visit.page.get_by_label("state").select_option("running")
    expect(visit.page).to_have_url(re.compile("state=running"))
    visit.go("v1/scopes/shop/streams")
    visit.page.get_by_role("link", name="orders", exact=True).click()
    expect(visit.page.locator("h1")).to_have_text("shop/orders")
    expect(visit.page.get_by_role("alert")).to_have_count(0)
    visit.go("users")
    expect(visit.page.locator("h1")).to_have_text("Users")
    expect(visit.page.locator(".actions")).to_have_count(0)


def test_a_double_click_or_a_held_key_confirms_nothing(visit: PageVisit) -> None:
    visit.go("streams/shop/orders")
    visit.act("Seal stream")
    visit.page.get_by_label("stream state (required)").select_option("SEALED")
    visit.preview()
    visit.page.keyboard.press("Enter")
    confirm = visit.page.get_by_role("dialog").get_by_role("button", name="Seal stream")
    confirm.dispatch_event("click", {"detail": 2})
    expect(visit.page.get_by_role("heading", name="Done")).to_have_count(0)
    assert visit.violations() == []
    visit.press("Cancel")


@pytest.mark.parametrize("what", ["group", "share", "partitions"])
def test_reset_goes_where_its_dry_run_said(visit: PageVisit, store: Path, what: str) -> None:
    is_share, name = what == "share", f"shop/{what}-reads"
    with eventproc.open_blocking(store) as ep:
        topic = ep.create_topic(f"shop/{what}-read", partitions=2)
        group = ep.create_share_group(name, [topic]) if is_share else ep.create_group(name, [topic])
        with topic.producer() as producer:
            producer.write(b"one", partition=1)
        visit.go(f"{'shares' if is_share else 'groups'}/{name}")
        visit.act(f"Reset {what}")
        visit.page.get_by_label("start").fill("tail")
        visit.preview()
        with topic.producer() as producer:
            producer.write(b"two", partition=1)
        visit.confirm(f"Reset {what}")
        assert group.describe().events == 1, "what came after the dry run is read"


def test_update_of_a_group_begins_with_its_options(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        ep.create_group("shop/reads", [ep.create_stream("shop/read")])
        visit.go("groups/shop/reads")
        visit.act("Update group")
        expect(visit.page.get_by_label("on truncated (required)")).to_have_value("earliest")
        visit.press("Cancel")


def test_partitions_of_a_split_stream_are_reset_to_what_lies_before_the_split(
    visit: PageVisit, store: Path
) -> None:
    with eventproc.open_blocking(store) as ep:
        stream = ep.create_stream("shop/split", payload=bytes)
        with stream.writer() as writer:
            writer.write(b"one")
        group = ep.create_group("shop/splits", [stream])
        stream.split(0)
        with group.reader("r") as reader:
            assert [each.payload for each in reader.until(stream.tail())] == [b"one"]
        visit.go("groups/shop/splits")
        visit.act("Reset partitions")
        visit.page.get_by_label("start").fill("head")
        visit.preview()
        visit.confirm("Reset partitions")
        with group.reader("r") as reader:
            assert [each.payload for each in reader.until(stream.tail())] == [b"one"]


def test_picture_follows_while_the_stream_scales(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep:
        stream = ep.create_stream("shop/scaled")
        visit.go("streams/shop/scaled")
        caption = visit.page.locator("figcaption")
        expect(caption).to_contain_text("1 of them in use")
        stream.split(stream.segments()[0].id, 4)
        expect(caption).to_contain_text("5 segments")
        expect(caption).to_contain_text("4 of them in use")


def test_picture_says_what_lies_under_a_resting_pointer_now(visit: PageVisit, store: Path) -> None:
    with eventproc.open_blocking(store) as ep, ep.create_stream("shop/watched").writer() as writer:
        writer.write(b"one")
        visit.go("streams/shop/watched")
        visit.page.locator("canvas").hover()
        expect(visit.page.locator(".tip")).to_contain_text("1 events")
        writer.write(b"two")
        expect(visit.page.locator(".tip")).to_contain_text("2 events")


def test_ten_thousand_segments_stay_smooth(visit: PageVisit) -> None:
    segments: list[dict[str, Any]] = [
        {
            "segment": f"{number}.0",
            "low": number % 100 / 100,
            "high": (number % 100 + 1) / 100,
            "from_ms": 1_700_000_000_000 + number // 100 * 1000,
            "to_ms": 1_700_000_000_000 + (number // 100 + 1) * 1000,
            "truncated_ms": None,
            "events": number,
            "events_per_second": float(number % 977),
        }
        for number in range(10_000)
    ]
    picture = {"stream": "shop/orders", "from_ms": 1_700_000_000_000, "to_ms": 1_700_000_100_000}
    body = json.dumps(picture | {"segments": segments, "positions": [], "left_out": 0})
    visit.page.route("**/plot", lambda route: route.fulfill(body=body, content_type="application/json"))
    visit.go("streams/shop/orders")
    expect(visit.page.locator("figcaption")).to_contain_text("10,000 segments")
    taken_ms = visit.page.evaluate(
        """async () => {
            const button = document.querySelector('[aria-label="Zoom in"]');
            const begun = performance.now();
            for (let turn = 0; turn < 20; turn++) {
                button.click();
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
            }
            return (performance.now() - begun) / 20;
        }"""
    )
    assert taken_ms < 200, "two frames for a step, on a machine that others use"


def test_page_goes_on_after_its_server_has_restarted(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with serving(tmp_path / "data", *_on_any_port("0")) as first:
        port = httpx.URL(first.address).port
        visit = PageVisit(browser, first)
        expect(visit.page.get_by_text("live", exact=True)).to_be_visible()
        visit.go("streams")
        first.process.kill()
        expect(visit.page.get_by_text("not connected")).to_be_visible()
        first.process.wait()
    with serving(tmp_path / "data", *_on_any_port(str(port))):
        expect(visit.page.get_by_text("live", exact=True)).to_be_visible()
        with eventproc.open_blocking(tmp_path / "data") as ep:
            ep.create_stream("shop/later")
        expect(visit.page.get_by_role("link", name="shop/later")).to_be_visible()
    visit.close()


def test_page_follows_a_server_that_does_not_know_its_last_change(visit: PageVisit) -> None:
    def answer(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body="event: scope\nid: unknown\ndata: {}\n\n")

    visit.go("")
    visit.page.route("**/v1/changes", answer, times=1)
    visit.page.reload()
    with visit.page.expect_response(lambda each: each.url.endswith("/changes") and each.status == 400):
        pass
    expect(visit.page.get_by_text("live", exact=True)).to_be_visible()


def _on_any_port(rest: str) -> tuple[str, ...]:
    return "serve", "--ui", "--rest", rest, "--controller-port", "0", "--segment-store-port", "0"


LISTED = {
    "": "shop/orders",
    "streams": "shop/orders",
    "topics": "shop/clicks",
    "groups": "shop/billing",
    "processors": "shop/mailer",
    "shares": "shop/queue",
    "schedules": "shop/nightly",
    "tables": "",
    "requests": "shop/orders",
    "v1/scopes": "",
    "supervisors": "orders",
}
"""Sections for every user, and what a user of the scope `shop` sees there."""


def test_user_sees_and_does_what_its_grants_allow(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data").chmod(0o700)
    with eventproc.open_blocking(tmp_path / "data") as ep:
        ep.users.add("ann", password="correct horse")
        ep.users.grant("ann", Permission.READ, "shop/*")
        ep.create_scope("secret")
        ep.create_stream("secret/orders")
        ep.create_group("shop/secret", ["secret/orders"])
    with serving(tmp_path / "data", *_on_any_port("0")) as served:
        visit = PageVisit(browser, served)
        visit.page.get_by_label("User").fill("ann")
        visit.page.get_by_label("Password or token").fill("wrong")
        visit.page.get_by_role("button", name="Sign in").click()
        expect(visit.page.get_by_role("alert")).to_contain_text("wrong")
        visit.page.get_by_label("Password or token").fill("correct horse")
        visit.page.get_by_role("button", name="Sign in").click()
        visit.go("streams/shop/orders")
        expect(visit.page.locator("dl").first).to_contain_text("shop/orders")
        expect(visit.page.locator(".actions")).to_have_count(0)
        for place, shown in LISTED.items():
            visit.go(place)
            expect(visit.page.get_by_role("alert")).to_have_count(0)
            expect(visit.page.locator("main")).to_contain_text(shown)
            expect(visit.page.locator("main")).not_to_contain_text("secret")
        visit.page.get_by_role("link", name="orders", exact=True).first.click()
        expect(visit.page.locator("main h1")).to_have_text("orders")
        expect(visit.page.locator("nav[aria-label=Sections]")).not_to_contain_text("Instances")
        with eventproc.open_blocking(tmp_path / "data") as ep:
            ep.create_stream("shop/newest")
        visit.go("streams")
        expect(visit.page.get_by_text("shop/newest")).to_be_visible()
        visit.page.goto(f"{served.base}#/users")
        expect(visit.page.get_by_role("alert")).to_contain_text("ann needs READ on *")
        visit.page.reload()
        expect(visit.page.get_by_text("ann", exact=True)).to_be_visible()
        visit.page.get_by_role("button", name="Sign out").click()
        expect(visit.page.get_by_label("User")).to_be_visible()
        assert visit.page.context.cookies() == []
        assert visit.elsewhere == []
        visit.close()


def test_only_a_user_is_offered_to_change_users(visit: PageVisit, browser: Browser, tmp_path: Path) -> None:
    with visit.page.expect_response(re.compile("/caller\\?on=")) as asked:
        visit.go("users")
    asked.value.finished()
    visit.page.evaluate("new Promise((done) => setTimeout(done))")
    expect(visit.page.locator(".actions")).to_have_count(0)
    with eventproc.open_blocking(tmp_path / "data") as ep:
        (tmp_path / "data").chmod(0o700)
        ep.users.add("root", password="correct horse")
        ep.users.grant("root", Permission.READ_UPDATE, "*")
    with serving(tmp_path / "data", *_on_any_port("0")) as served:
        other = PageVisit(browser, served)
        _sign_in(other, "root")
        other.go("users")
        expect(other.page.locator(".actions").get_by_role("button", name="Add user")).to_be_visible()
        other.close()


def test_grants_are_asked_for_again_after_a_refusal_and_a_new_connection(
    browser: Browser, tmp_path: Path
) -> None:
    with eventproc.open_blocking(tmp_path / "data") as ep:
        (tmp_path / "data").chmod(0o700)
        ep.create_scope("shop")
        ep.create_stream("shop/orders")
        ep.users.add("ann", password="correct horse")
        ep.users.grant("ann", Permission.READ_UPDATE, "shop/*")
        with serving(tmp_path / "data", *_on_any_port("0")) as first:
            visit = PageVisit(browser, first)
            _sign_in(visit, "ann")
            visit.go("streams/shop/orders")
            visit.act("Truncate stream")
            visit.page.get_by_label("cut (required)").fill("tail")
            ep.users.revoke("ann", "shop/*")
            ep.users.grant("ann", Permission.READ, "shop/*")
            visit.press("Show what it would do")
            expect(visit.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("READ_UPDATE")
            visit.press("Cancel")
            expect(visit.page.locator(".actions")).to_have_count(0)
            first.process.kill()
            expect(visit.page.get_by_text("not connected")).to_be_visible()
            first.process.wait()
        ep.users.grant("ann", Permission.READ_UPDATE, "shop/*")
        with serving(tmp_path / "data", *_on_any_port(str(httpx.URL(first.base).port))):
            expect(
                visit.page.locator(".actions").get_by_role("button", name="Truncate stream")
            ).to_be_visible()
        visit.close()


def _sign_in(visit: PageVisit, user: str) -> None:
    visit.page.get_by_label("User").fill(user)
    visit.page.get_by_label("Password or token").fill("correct horse")
    visit.page.get_by_role("button", name="Sign in").click()
    expect(visit.page.get_by_text(user, exact=True)).to_be_visible()


def test_page_works_behind_a_prefix(browser: Browser, served: Served) -> None:
    prefixed = Served(served.process, served.address.replace("/ui/", "/tools/store/ui/"))

    def forward(route: Route) -> None:
        if route.request.url.endswith("/changes"):  # it never ends, and is not forwarded as a whole
            route.abort()
            return
        route.fulfill(response=route.fetch(url=route.request.url.replace("/tools/store/", "/")))

    page = browser.new_page()
    page.route("**/tools/store/**", forward)
    page.goto(prefixed.address)
    expect(page.get_by_role("link", name="shop/orders").first).to_be_visible()
    page.goto(f"{prefixed.base}#/streams/shop/orders")
    expect(page.locator("figcaption")).to_contain_text("segments")
    page.close()


def test_nobody_sees_anything_without_the_token(served: Served) -> None:
    base = served.base.removesuffix("ui/")
    with httpx.Client(base_url=base, trust_env=False) as http:
        page = http.get("ui/")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for path in ("eventproc/v1/overview", "eventproc/v1/caller", "metrics", "eventproc/v1/changes"):
            assert http.get(path).status_code == 401
        refused = http.get("eventproc/v1/overview", headers={"Authorization": "Bearer 1234"})
        assert (refused.status_code, "eventproc ui" in refused.json()["detail"]) == (401, True)


def test_a_token_that_no_header_can_have_is_refused(browser: Browser, served: Served) -> None:
    visit = PageVisit(browser, served)
    visit.page.evaluate("sessionStorage.clear()")
    visit.page.goto(f"{served.base}?")
    visit.page.get_by_label("Password or token").fill("пароль")
    visit.page.get_by_role("button", name="Sign in").click()
    expect(visit.page.get_by_role("alert")).to_contain_text("the token is not that of this page")
    visit.close()


def test_a_cut_of_many_segments_fits_into_an_address_that_comes_in_parts(served: Served) -> None:
    address = httpx.URL(served.base)
    cut = b"999.2%3D1234567890%2C" * 1_024
    with socket.create_connection((address.host, address.port or 0), PATIENCE_S) as connection:
        connection.sendall(b"GET /eventproc/v1/overview?start=" + cut)
        assert httpx.get(served.base, trust_env=False).is_success, "the server has read the first part"
        connection.sendall(b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 401"


def test_what_goes_on_after_its_answer_is_not_called_done(visit: PageVisit) -> None:
    visit.go("tasks")
    visit.act("Verify directory")
    visit.press("Continue")
    visit.press("Verify directory")
    expect(visit.page.get_by_role("heading", name="Begun: it goes on")).to_be_visible()
