"""The options of the format "eventproc" as a source, checked before anything is opened. Pure.

Names and meanings follow the connectors that Spark users know. An unknown name is refused: a misspelt limit that is
silently ignored shows only in production.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from eventproc.spark.option_names import known_options
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidArgument, InvalidCut
from eventproc.store.model.names import StreamName
from eventproc.store.segments.holds import HOLD_MS

COLUMNS: Final = (
    *("payload", "key", "timestamp", "scope", "stream", "segment", "offset", "number"),
    *("event_time", "headers"),
)
"""All columns, in the order of the schema."""

ON_REQUEST: Final = ("event_time", "headers")
"""Columns that are present only if `columns` or `includeHeaders` asks for them."""

USUAL_COLUMNS: Final = tuple(each for each in COLUMNS if each not in ON_REQUEST)
"""The columns without the option `columns`."""

MODES: Final = ("permissive", "dropmalformed", "failfast")
"""What becomes of a malformed payload: nulls where it does not fit, no row, or the end of the query."""

PositionSpec: TypeAlias = Literal["earliest", "latest"] | int | str
"""Where to begin or end in a stream: "earliest", "latest", a time in ms, or the text of a cut."""

_NAMES: Final = (
    *("path", "stream", "streamPattern", "columns", "includeHeaders", "schema", "mode"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
    *("maxEventsPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "holdMs"),
)
_CUT: Final = re.compile(r"[0-9]+:[0-9.]+=")


@attrs.frozen
class Positions:
    """Start or end positions: `own` by stream, and `default` for every other stream."""

    default: PositionSpec
    own: Mapping[str, PositionSpec] = attrs.field(factory=dict)

    def of(self, stream: str) -> PositionSpec:
        """Return the position for `stream`."""
        return self.own.get(stream, self.default)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """The checked options of a reader. docs/design/spark-source.md describes each."""

    path: Path
    streams: tuple[str, ...] = ()
    pattern: str | None = None
    columns: tuple[str, ...] | None = None
    schema: str | None = None
    mode: str = "permissive"
    starting: Positions | None = None
    ending: Positions | None = None
    events_max: int | None = None
    bytes_max: int | None = None
    partitions_min: int | None = None
    fail_on_data_loss: bool = True
    hold_ms: int = HOLD_MS


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a reader. Raises InvalidArgument, naming the option."""
    given = known_options(options, _NAMES, "the format eventproc")
    if "path" not in given:
        raise invalid_argument("option path", None, "it must name the directory of the streams")
    streams = tuple(each.strip() for each in given.get("stream", "").split(",") if each.strip())
    for each in streams:
        StreamName.parse(each)
    pattern = given.get("streampattern")
    if bool(streams) == (pattern is not None):
        raise invalid_argument("option stream", given.get("stream"), "give either stream or streamPattern")
    events_max = _int_of(given, "maxEventsPerTrigger")
    bytes_max = _int_of(given, "maxBytesPerTrigger")
    if events_max is not None and bytes_max is not None:
        reason = "give either maxEventsPerTrigger or maxBytesPerTrigger: Spark knows one limit"
        raise invalid_argument("option maxBytesPerTrigger", str(bytes_max), reason)
    return SourceOptions(
        path=Path(given["path"]).expanduser().absolute(),
        streams=tuple(dict.fromkeys(streams)),
        pattern=None if pattern is None else _pattern_of(pattern),
        columns=_columns_of(given),
        schema=given.get("schema"),
        mode=_one_of(given, "mode", MODES, "permissive"),
        starting=_positions_of(given, "startingOffsets", "startingTimestamp", streams),
        ending=_positions_of(given, "endingOffsets", "endingTimestamp", streams),
        events_max=events_max,
        bytes_max=bytes_max,
        partitions_min=_int_of(given, "minPartitions"),
        fail_on_data_loss=_one_of(given, "failOnDataLoss", ("true", "false"), "true") == "true",
        hold_ms=_int_of(given, "holdMs") or HOLD_MS,
    )


def _int_of(given: Mapping[str, str], name: str) -> int | None:
    if (text := given.get(name.lower())) is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise invalid_argument(f"option {name}", text, "it must be a whole number, at least 1")
    return number


def _one_of(given: Mapping[str, str], name: str, known: Sequence[str], default: str) -> str:
    text = given.get(name.lower(), default).lower()
    if text not in known:
        raise invalid_argument(f"option {name}", text, f"it must be {' or '.join(known)}")
    return text


def _pattern_of(text: str) -> str:
    try:
        re.compile(text)
    except re.error as why:
        raise invalid_argument(
            "option streamPattern", text, f"it must be a regular expression: {why}"
        ) from None
    return text


def _columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the requested columns in the given order, or None for the default ones."""
    with_headers = _one_of(given, "includeHeaders", ("true", "false"), "false") == "true"
    if (text := given.get("columns")) is None:
        return (*USUAL_COLUMNS, "headers") if with_headers else None
    columns = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if unknown := [each for each in columns if each not in COLUMNS]:
        raise invalid_argument("option columns", unknown[0], f"it must be some of {', '.join(COLUMNS)}")
    if with_headers and "headers" not in columns:
        columns = (*columns, "headers")
    return columns


def _positions_of(
    given: Mapping[str, str], offsets: str, timestamp: str, streams: Sequence[str]
) -> Positions | None:
    at, when = given.get(offsets.lower()), given.get(timestamp.lower())
    if at is not None and when is not None:
        raise invalid_argument(f"option {timestamp}", when, f"give either {offsets} or {timestamp}")
    if when is not None:
        return Positions(_time_of(timestamp, when))
    if at is None:
        return None
    if not at.lstrip().startswith("{"):
        return Positions(_place_of(offsets, at, streams[0] if len(streams) == 1 else None))
    own: dict[str, PositionSpec] = {}
    try:
        found = dict(json.loads(at))
    except ValueError:
        raise invalid_argument(
            f"option {offsets}", at, "it must be a JSON object of streams and positions"
        ) from None
    for stream, place in found.items():
        if streams and stream not in streams:
            raise invalid_argument(f"option {offsets}", stream, "the query does not read that stream")
        own[stream] = _place_of(offsets, str(place), stream)
    return Positions("earliest" if offsets == "startingOffsets" else "latest", own)


def _place_of(option: str, text: str, stream: str | None) -> PositionSpec:
    text = text.strip()
    if text == "earliest" or text == "latest":
        return text
    if _CUT.match(text):
        if stream is None:
            raise invalid_argument(
                f"option {option}", text, 'for several streams give JSON: {"scope/stream": "cut"}'
            )
        try:
            StreamCut.parse(text, stream)
        except InvalidCut as why:
            raise invalid_argument(f"option {option}", text, why.reason) from None
        return text
    return _time_of(option, text)


def _time_of(option: str, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        reason = "it must be earliest, latest, a stream cut, an ISO 8601 time, or ms since 1970"
        raise InvalidArgument(what=f"option {option}", value=text, reason=reason) from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
