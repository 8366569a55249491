"""The names of options, as users, Spark and its catalog write them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote, urlparse

from eventproc.store.model.argument_checks import invalid_argument

LOCATION: Final = "location"
"""What the catalog of Spark SQL makes of the option `path` of a table."""

SIMILAR: Final = 0.6
"""Least similarity of a suggested name, as `difflib` measures it (0 to 1)."""

OF_OTHERS: Final[Mapping[str, str]] = {
    "subscribe": "stream",
    "assign": "segments",
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
    Raises InvalidArgument, with the option that may be meant.
    """
    names = {each.lower(): each for each in known}
    given = {name.lower(): value for name, value in options.items()}
    if LOCATION in given:
        given.setdefault("path", _path_of(given.pop(LOCATION)))
    for name in sorted(given.keys() - names.keys()):
        meant = OF_OTHERS.get(name)
        if meant is None or meant.lower() not in names:
            close = get_close_matches(name, names, n=1, cutoff=SIMILAR)
            meant = names[close[0]] if close else None
        hint = f"did you mean {meant!r}?" if meant is not None else f"possible: {', '.join(names.values())}"
        raise invalid_argument("option", name, f"{what} has no such option; {hint}")
    return given


def _path_of(location: str) -> str:
    address = urlparse(location)
    return unquote(address.path) if address.scheme == "file" else location
