"""The address of a store in PostgreSQL: a URL by libpq's rules, and the schema that holds the store."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import attrs

from eventproc.store.model.argument_checks import invalid_argument

SCHEMES: Final = ("postgresql", "postgres")

DEFAULT_SCHEMA: Final = "eventproc"

SCHEMA_LENGTH_MAX: Final = 50
"""Characters of a schema's name. PostgreSQL allows 63; the role of users' SQL and their own schema end with `_app`."""

COMMIT: Final = "commit"
"""The lock of commits, which those that keep to the rows of some streams share. A row of `opening` is removed by one
that has it alone, unless its own opening does that as its last act."""

FORMAT: Final = "format"
"""The lock that each opening shares, and that a migration needs alone."""

_SCHEMA: Final = re.compile(rf"[a-z_][a-z0-9_]{{0,{SCHEMA_LENGTH_MAX - 1}}}")

_HOSTS: Final = re.compile(r"(?:(?:\[[^]]*\]|[^][:,]*)(?::\d+)?(?:,|$))*")
"""Hosts with ports, and commas between them."""


def is_server_url(text: str) -> bool:
    """Return whether a text is meant as the URL of a PostgreSQL database."""
    return text.partition("://")[0].lower() in SCHEMES and "://" in text


@attrs.frozen
class ServerAddress:
    """Where a store lies."""

    conninfo: str = attrs.field(repr=False)
    """The URL for libpq, perhaps with a password."""
    schema: str
    """The schema that holds the tables of the store."""
    name: str
    """The address without a password and without other options, for messages."""
    has_password: bool
    """Whether the URL has a password."""

    def __str__(self) -> str:
        return self.name

    @property
    def url(self) -> str:
        """The URL that `parse` takes, with the schema, and with the password if there is one."""
        return f"{self.conninfo}{'&' if '?' in self.conninfo else '?'}schema={self.schema}"

    @classmethod
    def parse(cls, url: str, schema: str | None = None) -> ServerAddress:
        """Return the address of a URL such as `postgresql://user@host/database?schema=name`.

        schema: the same as in the URL. Without both it is DEFAULT_SCHEMA. Raises InvalidArgument, without the password.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _invalid("it is not a URL") from None
        credentials, _, hosts = parts.netloc.rpartition("@")
        if "@" in credentials or parts.fragment or _HOSTS.fullmatch(hosts) is None:
            raise _invalid(
                "in user and password write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %"
            )
        options = parse_qsl(parts.query, keep_blank_values=True)
        found = dict(options).get("schema", DEFAULT_SCHEMA if schema is None else schema)
        if schema not in (None, found):
            reason = f"the URL has another one, {found!r}; leave one of them out"
            raise invalid_argument("schema", schema, reason)
        if _SCHEMA.fullmatch(found) is None or found.startswith("pg_"):
            reason = (
                f"a schema's name has at most {SCHEMA_LENGTH_MAX} of a-z, 0-9 and _, begins with a letter or _, and not"
                " with pg_"
            )
            raise invalid_argument("schema", found, reason)
        rest = urlencode([(key, value) for key, value in options if key != "schema"], quote_via=quote)
        conninfo = f"postgresql://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
        host = hosts or next((value for key, value in options if key == "host"), "")
        user = f"{unquote(credentials.partition(':')[0])}@" if credentials else ""
        name = f"postgresql://{user}{host}{parts.path}?schema={found}"
        has_password = ":" in credentials or any("password" in key.lower() for key, _ in options)
        return cls(conninfo, found, name, has_password)

    def lock_key(self, name: str) -> int:
        """Return the key of an advisory lock of the store."""
        digest = hashlib.blake2b(f"eventproc/{self.schema}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def _invalid(reason: str) -> Exception:
    return invalid_argument("address", "postgresql://...", reason)
