"""The pictures of the guide show the page as it is: `make screenshots` makes them, with the words of its page.

The words are compared, without numbers: pictures differ with the time of a run, its rates, and the fonts of a machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.page.support import PageVisit

PICTURES: Final = {
    "overview": ("", "shop/clicks"),
    "stream": ("streams/shop/orders", "in use"),
    "events": ("streams/shop/orders/events?start=head", "Rome"),
    "dead-letter": ("processors/shop/mailer/dead-letters/0.0:0", "traceback"),
}
"""Each picture of the guide: the place of the page, and a text that is on it when it is complete."""

WIDTH: Final = 1000
HEIGHT: Final = 760

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / "docs" / "guide" / "page"

VARIABLE: Final = re.compile(r"\d[\d,.:-]*( ?(ms|s|min|h|d|B|kB|KiB|MB|MiB))?\b")
"""A number, a time, a duration or a size."""


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_the_guide_shows_the_page(visit: PageVisit, tmp_path: Path, name: str) -> None:
    place, text = PICTURES[name]
    visit.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    visit.go(place)
    expect(visit.page.get_by_text(text).first).to_be_attached()
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    picture = folder / f"{name}.png"
    visit.page.screenshot(path=picture)
    assert picture.stat().st_size > 0
    lines = visit.page.locator("body").inner_text().replace(f"{ROOT}/", "").splitlines()
    words = dict.fromkeys(VARIABLE.sub("#", line) for line in lines if line.strip())
    shown = "".join(f"{line}\n" for line in words)
    (folder / f"{name}.txt").write_text(shown, encoding="utf-8")
    assert (KEPT / f"{name}.txt").read_text(encoding="utf-8") == shown, (
        "`make screenshots` makes new pictures"
    )
