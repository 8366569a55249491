"""The names of options, as users, Spark and its catalog write them, and the option that names the store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Final

from eventproc.store.address import StoreAddress, store_address
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotSupported

TABLE: Final = "provider"
"""An option that Spark SQL adds for `CREATE TABLE`."""

TABLES: Final = (
    "a table of this format (CREATE TABLE), whose options Spark does not give to a source in Python"
)
VIEWS: Final = (
    "CREATE TEMPORARY VIEW name USING eventproc OPTIONS (path '...', stream 'scope/stream'), which SELECT reads"
    " and INSERT INTO appends to"
)

SIMILAR: Final = 0.6
"""Least similarity of a suggested name, as `difflib` measures it (0 to 1)."""

OF_OTHERS: Final[Mapping[str, str]] = {
    "subscribe": "stream",
    "topic": "stream",
    "subscribepattern": "streamPattern",
    "maxoffsetspertrigger": "maxEventsPerTrigger",
    "minoffsetspertrigger": "minEventsPerTrigger",
    "maxrecordsperpartition": "maxEventsPerPartition",
    "startingoffsetsbytimestamp": "startingOffsets",
    "endingoffsetsbytimestamp": "endingOffsets",
    "controller": "path",
    "kafka.bootstrap.servers": "path",
}
"""Options of Kafka's and Pravega's connectors, and what they are called here."""


def known_options(options: Mapping[str, str], known: Iterable[str], what: str) -> dict[str, str]:
    """Return the given options by their names in lower case.

    A misspelt limit that is silently ignored shows only in production, so an unknown name is refused.

    known: the names as documented. what: whose options they are, for the error.
    Raises InvalidArgument, with the option that may be meant; NotSupported for the options of a table.
    """
    names = {each.lower(): each for each in known}
    given = {name.lower(): value for name, value in options.items()}
    if TABLE in given or not given:
        raise NotSupported(what=TABLES, remedy=f"use {VIEWS}")
    for name in sorted(given.keys() - names.keys()):
        meant = OF_OTHERS.get(name)
        if meant is None or meant.lower() not in names:
            close = get_close_matches(name, names, n=1, cutoff=SIMILAR)
            meant = names[close[0]] if close else None
        hint = f"did you mean {meant!r}?" if meant is not None else f"possible: {', '.join(names.values())}"
        raise invalid_argument("option", name, f"{what} has no such option; {hint}")
    return given


def spark_address(path: str | PathLike[str], *, schema: str | None = None) -> StoreAddress:
    """Return where a store lies, as Spark's processes find it: a directory by its absolute path, or a URL.

    Raises InvalidArgument, also for a URL with a password: Spark shows the options of a query.
    """
    address = store_address(path, schema=schema)
    if isinstance(address, Path):
        return address.expanduser().absolute()
    if address.has_password:
        reason = "Spark shows the options of a query; keep the password in PGPASSFILE or PGPASSWORD"
        raise invalid_argument("address", str(address), reason)
    return address


def path_option(address: StoreAddress) -> str:
    """Return the option `path` that names a store, for `store_of`."""
    return str(address) if isinstance(address, Path) else address.url


def store_of(given: Mapping[str, str]) -> StoreAddress:
    """Return the store that the option `path` names. Raises InvalidArgument."""
    if "path" not in given:
        reason = "it must name the directory of the streams, or the URL of their store"
        raise invalid_argument("option path", None, reason)
    return spark_address(given["path"])
