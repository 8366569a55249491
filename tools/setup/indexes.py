"""Which package indexes this machine is configured to use, and the page each has about a project.

uv and pip are configured in different places. Users behind a mirror have usually configured pip, so its
configuration is read here and passed to uv. The configuration of uv itself takes precedence.
"""

from __future__ import annotations

import base64
import configparser
import html.parser
import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_INDEX = "https://pypi.org/simple"
PAGE_TYPES = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Indexes:
    """The index to ask first, those to ask besides, and the certificates to trust (None: the system's)."""

    default: str
    extra: tuple[str, ...] = ()
    certificates: str | None = None

    @classmethod
    def configured(cls, environ: Mapping[str, str]) -> Indexes:
        """Return what the environment says to uv, else to pip, else pip's configuration files, else PyPI."""
        pip = {**_read_pip_files(environ), **_read_pip_environment(environ)}
        default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or pip.get("index-url")
        extra = environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or pip.get("extra-index-url", "")
        return cls(
            default=_url_of(default or DEFAULT_INDEX),
            extra=tuple(_url_of(named) for named in extra.split()),
            certificates=environ.get("SSL_CERT_FILE") or pip.get("cert"),
        )

    def environment_for_uv(self) -> dict[str, str]:
        """Return the variables that make uv ask the same indexes.

        Best match over all of them, as pip does it: what is installed is pinned by hash, so another index cannot
        slip in another file.
        """
        variables = {"UV_DEFAULT_INDEX": self.default}
        if self.extra:
            variables |= {"UV_INDEX": " ".join(self.extra), "UV_INDEX_STRATEGY": "unsafe-best-match"}
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates
        return variables

    def find_file(self, project: str, filename: str) -> str:
        """Return the address of `filename` on the first index that has it; OSError when none has."""
        failures: list[str] = []
        for index in (self.default, *self.extra):
            page = f"{index.rstrip('/')}/{project}/"
            try:
                for address in _links(page):
                    if (
                        urllib.parse.unquote(address.split("#")[0].split("?")[0].rsplit("/", 1)[-1])
                        == filename
                    ):
                        return urllib.parse.urljoin(page, address)
                failures.append(f"{index} does not have it")
            except (OSError, ValueError) as error:
                failures.append(f"{index}: {error}")
        raise OSError(f"{filename} cannot be had: {'; '.join(failures)}")


def fetch(address: str, *, accept: str = "*/*") -> bytes:
    """Return the whole body behind `address` (http, https or file); a user and password in it are sent as such."""
    parts = urllib.parse.urlsplit(address)
    headers = {"Accept": accept, "User-Agent": "eventproc-setup"}
    if "@" in parts.netloc:
        login, host = parts.netloc.rsplit("@", 1)
        credentials = urllib.parse.unquote(login).encode()
        headers["Authorization"] = "Basic " + base64.b64encode(credentials).decode()
        address = urllib.parse.urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        body: bytes = response.read()
        return body


def _links(page: str) -> list[str]:
    if page.startswith("file:"):
        page += "index.html"
    body = fetch(page, accept=PAGE_TYPES)
    if body.lstrip().startswith(b"{"):
        return [str(file["url"]) for file in json.loads(body)["files"]]
    parser = _Anchors()
    parser.feed(body.decode(errors="replace"))
    return parser.links


class _Anchors(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def _read_pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    prefix = "PIP_"
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith(prefix)
    }


def _read_pip_files(environ: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except configparser.Error:
            continue  # pip reports it to its own users
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    return settings


def _pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads, later ones overriding; none if PIP_CONFIG_FILE is /dev/null."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(environ.get("HOME", "/"))
    for folder in reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if named:
        yield Path(named)


def _url_of(named: str) -> str:
    """Return the address in uv's `name=address` form, or `named` itself; a path becomes a file address."""
    if "://" not in named:
        return Path(named).as_uri() if Path(named).is_absolute() else named
    name, separator, address = named.partition("=")
    return address if separator and "://" not in name else named
