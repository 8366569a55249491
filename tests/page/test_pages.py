"""Each page with data of a real run, in a real Chromium: at three widths, light and dark, by axe-core's rules."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.page.support import WIDTHS, PageVisit, Served

PLACES: Final = (
    "",
    *(
        "streams",
        "streams/shop/orders",
        "streams/shop/orders/segments",
        "streams/shop/orders/events?start=head",
    ),
    *("streams/shop/orders/epochs", "streams/shop/orders/transactions", "streams/shop/orders/plot"),
    *("topics", "topics/shop/clicks", "groups", "groups/shop/billing", "groups/shop/billing/partitions"),
    *("groups/shop/billing/state", "groups/shop/billing/state/size"),
    *("processors", "processors/shop/mailer", "processors/shop/mailer/dead-letters"),
    *("processors/shop/mailer/dead-letters/0.0:0", "shares", "shares/shop/queue", "jobs/shop/tasks"),
    *(
        "schedules",
        "schedules/shop/nightly",
        "supervisors",
        "supervisors/orders",
        "tables",
        "requests",
        "tasks",
    ),
    *("ingestion/workers", "cluster", "v1/scopes", "v1/scopes/shop", "users"),
)

DEPTH: Final = 4
"""Steps of a place; further ones are entries of lists without end."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_page_can_be_read_by_everybody_and_fits_each_width(
    browser: Browser, served: Served, dark: bool
) -> None:
    visit = PageVisit(browser, served, dark=dark)
    found = {}
    for place in PLACES:
        visit.go(place)
        wide = []
        for width in WIDTHS:
            visit.page.set_viewport_size({"width": width, "height": 900})
            if visit.is_wider_than_screen():
                wide.append(width)
        problems = visit.page.locator(".problem").all_inner_texts()
        violations = visit.violations(*(["color-contrast"] if dark else []))  # the rest is that of light
        if wrong := [*violations, *wide, *problems]:
            found[place] = wrong
    assert found == {}
    assert (visit.complaints, visit.elsewhere) == ([], [])
    visit.close()


def test_dialog_of_an_action_can_be_used_by_everybody(visit: PageVisit) -> None:
    visit.go("streams/shop/orders")
    visit.act("Truncate stream")
    assert visit.violations() == []
    visit.press("Show what it would do")
    expect(visit.page.get_by_role("alert")).to_contain_text("cut is required")
    visit.page.get_by_label("cut (required)").fill("head")
    visit.press("Show what it would do")
    expect(visit.page.get_by_text("What it would do")).to_be_visible()
    assert visit.violations() == []
    visit.press("Cancel")


def test_every_page_is_reached_by_links_from_the_overview(visit: PageVisit) -> None:
    seen: set[str] = set()
    waiting = [""]
    while waiting:
        place = waiting.pop()
        visit.go(place)
        assert visit.page.locator(".problem").all_inner_texts() == [], place
        for link in visit.page.locator("a[href^='#/']").all():
            found = (link.get_attribute("href") or "").removeprefix("#/")
            if found not in seen and "?" not in found and found.count("/") < DEPTH:
                seen.add(found)
                waiting.append(found)
    assert {each for each in PLACES if "?" not in each and each.count("/") < DEPTH} <= seen


def test_stream_is_truncated_by_the_keyboard_alone(visit: PageVisit) -> None:
    visit.go("")
    keyboard = visit.page.keyboard

    def reach(name: str) -> None:
        for _ in range(200):
            keyboard.press("Tab")
            focused = visit.page.evaluate(
                "document.activeElement.innerText || document.activeElement.name || ''"
            )
            if focused.strip() == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    reach("shop/clicks")
    keyboard.press("Enter")
    expect(visit.page.locator("h1")).to_have_text("shop/clicks")
    visit.go("topics/shop/clicks")
    expect(visit.page.locator(".actions")).to_be_visible()
    reach("Truncate topic")
    keyboard.press("Enter")
    reach("partition")
    keyboard.type("0")
    reach("before_number")
    keyboard.type("0")
    reach("Show what it would do")
    keyboard.press("Enter")
    expect(visit.page.get_by_role("heading", name="What it would do")).to_be_visible()
    keyboard.press("Escape")
    expect(visit.page.get_by_role("dialog")).to_have_count(0)


def test_picture_is_moved_by_the_keyboard(visit: PageVisit) -> None:
    visit.go("streams/shop/orders")
    picture = visit.page.locator("canvas")
    picture.focus()
    expect(visit.page.get_by_role("button", name="All")).to_have_attribute("aria-pressed", "true")
    visit.page.keyboard.press("+")
    visit.page.keyboard.press("ArrowLeft")
    expect(visit.page.get_by_role("button", name="All")).to_have_attribute("aria-pressed", "false")
    for _ in range(150):
        visit.page.keyboard.press("-")
    visit.page.keyboard.press("0")
    expect(visit.page.get_by_role("button", name="All")).to_have_attribute("aria-pressed", "true")
    visit.page.keyboard.press("Control+-")  # it is the browser's
    expect(visit.page.get_by_role("button", name="All")).to_have_attribute("aria-pressed", "true")
