"""The site as `make docs` builds it, opened from its folder in a real Chromium: at two widths, light and dark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.docs.page import ROOT
from tests.page.support import WIDTHS, BrowserVisit, running_browser

pytestmark = pytest.mark.subprocess

PAGES: Final = (
    *("index.html", "tour.html", "guide/first-steps.html", "guide/index.html", "guide/page.html"),
    *("api/windows.html", "states.html", "compare/kafka.html"),
)
"""A page of each kind."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the site, which fails at a link or an anchor that does not resolve. Return the address of its folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return f"{folder.as_uri()}/"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_kind_of_page_can_be_read_by_everybody(browser: Browser, site: str, dark: bool) -> None:
    found = {}
    for name in PAGES:
        visit = BrowserVisit(browser, f"{site}{name}", site, dark=dark)
        visit.page.emulate_media(reduced_motion="reduce")  # what fades in has too little contrast
        for width in (WIDTHS[0], WIDTHS[-1]):
            visit.page.set_viewport_size({"width": width, "height": 900})
            wide = ["wider than the screen"] if visit.is_wider_than_screen() else []
            if wrong := [*wide, *visit.violations(*(["color-contrast"] if dark else []))]:
                found[name, width] = wrong
        if visit.complaints or visit.elsewhere:
            found[name, 0] = [*visit.complaints, *visit.elsewhere]
        visit.close()
    assert found == {}


def test_search_finds_a_word_without_a_server(browser: Browser, site: str) -> None:
    visit = BrowserVisit(browser, f"{site}index.html", site)
    visit.page.get_by_placeholder("Search").fill("watermark")
    result = visit.page.locator(".md-search-result__link").first
    expect(result).to_contain_text("watermark")
    result.click()
    expect(visit.page.locator("article mark, article .highlight").first).to_be_attached()
    assert (visit.complaints, visit.elsewhere) == ([], [])
    visit.close()


def test_picture_of_a_stream_shows_numbers_and_the_colours_of_the_page(browser: Browser, site: str) -> None:
    visit = BrowserVisit(browser, f"{site}index.html", site, dark=True)
    picture = visit.page.get_by_role("img", name="shop/orders")
    expect(picture).to_be_visible()
    assert "events, " in picture.locator("rect title").first.inner_html()
    visit.close()
