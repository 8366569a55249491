"""Pages of the site that are not below docs/: a hook of MkDocs, named in mkdocs.yml.

The first part of the README is the landing page, and the rest is the tour. The change log, the guide for contributors
and the page about security become pages as they are. The reference of the public API has a page per public module, with
one entry for each name in its `__all__`, so that it cannot fall behind.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs import picture

ROOT = Path(__file__).resolve().parents[2]
COPIED = {
    "tour.md": "README.md",
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
TOUR = "## Two commands\n"
"""Where the tour begins in the README."""

API = {
    "api/eventproc.md": "eventproc",
    "api/describe.md": "eventproc.describe",
    "api/ingestion.md": "eventproc.ingestion",
    "api/blocking.md": "eventproc.blocking",
    "api/errors.md": "eventproc.errors",
    "api/testing.md": "eventproc.testing",
    "api/windows.md": "eventproc.windows",
    "api/spark.md": "eventproc.spark",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, source in COPIED.items():
        if (ROOT / source).exists():
            text = (ROOT / source).read_text(encoding="utf-8")
            landing, heading, tour = text.partition(TOUR)
            text = {"index.md": landing, "tour.md": f"# A tour\n\n{heading}{tour}"}.get(name, text)
            files.append(File.generated(config, name, content=_moved(text)))
    for name, module in API.items():
        files.append(File.generated(config, name, content=api_page(module)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show links to files of the repository that are not on the site as the paths of these files."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[3]))
        if target.startswith("docs/") or link[1]:
            return link[0]
        copied = {source: name for name, source in COPIED.items()}.get(target)
        if copied is not None:
            return f"[{link[2]}]({posixpath.relpath(posixpath.join('docs', copied), folder)}{link[4] or ''})"
        return f"{link[2]} (`{target}`)" if link[2].strip("`") not in target else f"`{target}`"

    return LINK.sub(shown, markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the picture of a stream into the page: it takes the page's colours, and shows numbers under the mouse."""
    drawn = (ROOT / "docs" / picture.PATH).read_text(encoding="utf-8").replace(picture.BACKGROUND, "")
    return re.sub(rf'<img [^>]*src="{picture.PATH}"[^>]*>', lambda _: drawn, html)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme does not."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def api_page(module: str) -> str:
    """Return the page of a public module: its docstring, and one entry for each public name."""
    names = [name for name in importlib.import_module(module).__all__ if not name.startswith("__")]
    about = (
        f"# {module}\n\n::: {module}\n    options:\n      members: false\n      show_root_heading: false\n"
    )
    return about + "".join(f"\n::: {module}.{name}\n" for name in names)


def _moved(text: str) -> str:
    """Return a page of the top level with its links as seen from docs/."""

    def moved(link: re.Match[str]) -> str:
        target = link[3].removeprefix("docs/") if link[3].startswith("docs/") else f"../{link[3]}"
        target = {"": "index.md", "design/": "design/README.md", "guide/": "guide/README.md"}.get(
            target, target
        )
        return f"{link[1]}[{link[2]}]({target}{link[4] or ''})"

    return LINK.sub(moved, text)
