"""The pictures of the guide are made from the page as it is: `make screenshots` keeps them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.page.support import PageVisit

PICTURES: Final = {
    "overview": ("", "Busiest streams"),
    "stream": ("streams/shop/orders", "in use"),
    "events": ("streams/shop/orders/events?start=head", "Newer"),
    "dead-letter": ("processors/shop/mailer/dead-letters/0.0:0", "traceback"),
}
"""Each picture of the guide: the place of the page, and a text that is on it when it is complete."""

WIDTH: Final = 1000
HEIGHT: Final = 760


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_the_guide_shows_the_page(visit: PageVisit, tmp_path: Path, name: str) -> None:
    place, text = PICTURES[name]
    visit.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    visit.go(place)
    expect(visit.page.get_by_text(text).first).to_be_attached()
    picture = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"{name}.png"
    visit.page.screenshot(path=picture)
    assert picture.stat().st_size > 0
