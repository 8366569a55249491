"""Support for the tests of the page: a served store, a real Chromium that looks at it, and what is wrong with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

import attrs
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.cli.support import COMMAND, PATIENCE_S, environment

WIDTHS: Final = (360, 800, 1400)
"""In CSS pixels: of a phone, a tablet and a screen."""

AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text()
"""The rules of axe-core."""

QUIET: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""What Chromium needs to run as root, and to ask nobody else for anything."""


def find_chromium() -> str:
    """Return the path of a Chromium."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    assert found, (
        "these tests drive Chromium: `make browser` installs Debian's; CHROMIUM=PATH names another one"
    )
    return found


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium while the block runs."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*QUIET])
        try:
            yield browser
        finally:
            browser.close()


@attrs.frozen
class Served:
    """A process that serves the page. address: of the page, with the token if there is one."""

    process: subprocess.Popen[str]
    address: str

    @property
    def base(self) -> str:
        """The address without the token."""
        return self.address.partition("#")[0]

    def stop(self) -> None:
        """End the process in order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


@contextmanager
def serving(directory: Path, *arguments: str, **variables: str) -> Iterator[Served]:
    """Serve a directory by a command, while the block runs. variables: of its environment."""
    command = [*COMMAND, "-C", str(directory), *arguments]
    process = subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, env=environment(**variables)
    )
    assert process.stdout is not None
    try:
        address = None
        for line in process.stdout:
            if found := re.search(r"http\S+/ui/\S*", line):
                address = found[0]
                break
        assert address is not None, "the command ended"
        yield Served(process, address)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


class BrowserVisit:
    """A page in the browser, and what it did that a page must not do.

    home: what the addresses begin with that it may ask. complaints: what it wrote to the console, and uncaught errors.
    elsewhere: other addresses that it asked.
    """

    def __init__(
        self, browser: Browser, address: str, home: str, *, width: int = 1280, dark: bool = False
    ) -> None:
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self._home = home
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda each: self._complain(each.text))
        self.page.on("pageerror", lambda each: self.complaints.append(str(each)))
        self.page.on("dialog", lambda each: self.complaints.append(f"dialog {each.message}"))
        self.page.on("request", self._note)
        self.page.goto(address)

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def _note(self, request: Request) -> None:
        if not request.url.startswith(self._home):
            self.elsewhere.append(request.url)

    def violations(self, *rules: str) -> list[str]:
        """Return what axe-core finds: the rule, and the elements. rules: which ones it knows; all unless given."""
        self.page.evaluate(AXE)
        options: dict[str, object] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = rules
        options["preload"] = not self._home.startswith(
            "file:"
        )  # a file may not read the styles of another one
        found = self.page.evaluate("options => axe.run(options).then(found => found.violations)", options)
        return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]

    def is_wider_than_screen(self) -> bool:
        """Return whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def close(self) -> None:
        self.page.close()


class PageVisit(BrowserVisit):
    """A visit of the served page."""

    def __init__(self, browser: Browser, served: Served, *, width: int = 1280, dark: bool = False) -> None:
        self.served = served
        super().__init__(browser, served.address, served.base.removesuffix("ui/"), width=width, dark=dark)

    def _complain(self, text: str) -> None:
        if not text.startswith("Failed to load resource"):  # a call was refused, which the page says in words
            super()._complain(text)

    def go(self, place: str) -> None:
        """Go to a place of the page, and wait until it shows what it has."""
        self.page.goto(f"{self.served.base}#/{place}")
        expect(self.page.locator("main h1")).to_be_visible()
        expect(self.page.get_by_text("Loading")).to_have_count(0)

    def act(self, action: str) -> None:
        """Open the dialog of an action."""
        self.page.locator(".actions").get_by_role("button", name=action, exact=True).click()

    def press(self, button: str) -> None:
        """Press a button of the dialog."""
        self.page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()

    def preview(self) -> None:
        """Let the dialog show what its action would do."""
        self.press("Show what it would do")
        expect(self.page.get_by_role("heading", name="What it would do")).to_be_visible()

    def confirm(self, action: str) -> None:
        """Let the dialog act, and wait until it has."""
        self.press(action)
        expect(self.page.get_by_role("heading", name="Done")).to_be_visible()
