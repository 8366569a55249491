"""The options of the format "eventproc" as a source, checked before anything is opened. Pure.

Names and meanings follow the connectors that Spark users know. An unknown name is refused: a misspelt limit that is
silently ignored shows only in production.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import attrs

from eventproc.spark.option_names import known_options, store_of
from eventproc.store.address import StoreAddress
from eventproc.store.model.argument_checks import INT_MAX, check_int, invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.delays import DUE_MS_MAX, utc_ms
from eventproc.store.model.errors import EventprocError, InvalidArgument, InvalidCut
from eventproc.store.model.ids import SegmentId, parse_segment
from eventproc.store.model.names import StreamName
from eventproc.store.segments.holds import HOLD_MS

COLUMNS: Final = (
    *("payload", "key", "timestamp", "scope", "stream", "segment", "offset", "number"),
    *("event_time", "headers", "partition"),
)
"""All columns, in the order of the schema."""

ON_REQUEST: Final = ("event_time", "headers", "partition")
"""Columns that are present only if `columns` or `includeHeaders` asks for them."""

USUAL_COLUMNS: Final = tuple(each for each in COLUMNS if each not in ON_REQUEST)
"""The columns without the option `columns`."""

HEADER_LIST: Final = "array"
"""What `includeHeaders` is for headers as Kafka's source has them: a list of names and bytes."""

ASSIGNED: Final = "assigned "
"""Begins the text of a position in chosen segments, which is no cut."""

MODES: Final = ("permissive", "dropmalformed", "failfast")
"""What becomes of a malformed payload: nulls where it does not fit, no row, or the end of the query."""

PositionSpec: TypeAlias = Literal["earliest", "latest"] | int | str | Mapping[SegmentId, int]
"""Where to begin or end in a stream: "earliest", "latest", a time in ms, the text of a cut, or an offset for each
segment of a cut, where SEGMENT_HEAD and SEGMENT_TAIL stand for its ends."""

SEGMENT_HEAD: Final = -2
"""In offsets by segment: its first readable event; as in Kafka's source."""

SEGMENT_TAIL: Final = -1
"""In offsets by segment: behind its last event; as in Kafka's source."""

TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
"""How long a batch waits for `minEventsPerTrigger`, unless `maxTriggerDelay` says otherwise; as in Kafka's source."""

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,10}) *([a-z]*)", re.ASCII)

_NAMES: Final = (
    *("path", "stream", "streamPattern", "assign", "columns", "includeHeaders", "schema", "mode"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "minEventsPerTrigger", "maxTriggerDelay"),
    *("maxEventsPerTrigger", "maxBytesPerTrigger", "minPartitions", "maxEventsPerPartition"),
    *("failOnDataLoss", "holdMs"),
)
_CUT: Final = re.compile(r"[0-9]+:[0-9.]+=")


@attrs.frozen
class Positions:
    """Start or end positions: `own` by stream, and `default` for every other stream.

    strict: whether a time without an event at or after it is an error, and not the tail.
    """

    default: PositionSpec
    own: Mapping[str, PositionSpec] = attrs.field(factory=dict)
    strict: bool = False

    def of(self, stream: str) -> PositionSpec:
        """Return the position for `stream`."""
        return self.own.get(stream, self.default)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """The checked options of a reader. docs/design/spark-source.md describes each.

    assigned: the only segments to read, by stream; partitions of a topic as texts of their numbers.
    """

    address: StoreAddress
    streams: tuple[str, ...] = ()
    assigned: Mapping[str, tuple[SegmentId | str, ...]] = attrs.field(factory=dict)
    pattern: str | None = None
    columns: tuple[str, ...] | None = None
    schema: str | None = None
    mode: str = "permissive"
    starting: Positions | None = None
    ending: Positions | None = None
    events_min: int | None = None
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    events_max: int | None = None
    bytes_max: int | None = None
    partitions_min: int | None = None
    partition_events_max: int | None = None
    header_list: bool = False
    fail_on_data_loss: bool = True
    hold_ms: int = HOLD_MS


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a reader. Raises InvalidArgument, naming the option."""
    given = known_options(options, _NAMES, "the format eventproc")
    address = store_of(given)
    assigned = _assigned_of(given)
    streams = tuple(each.strip() for each in given.get("stream", "").split(",") if each.strip())
    if assigned and (streams or "streampattern" in given):
        raise invalid_argument("option assign", given["assign"], "give it without stream and streamPattern")
    streams = streams or tuple(assigned)
    for each in streams:
        StreamName.parse(each)
    pattern = given.get("streampattern")
    if bool(streams) == (pattern is not None):
        raise invalid_argument(
            "option stream", given.get("stream"), "give either stream, streamPattern or assign"
        )
    events_max = _int_of(given, "maxEventsPerTrigger")
    bytes_max = _int_of(given, "maxBytesPerTrigger")
    if events_max is not None and bytes_max is not None:
        reason = "give either maxEventsPerTrigger or maxBytesPerTrigger: Spark knows one limit"
        raise invalid_argument("option maxBytesPerTrigger", str(bytes_max), reason)
    return SourceOptions(
        address=address,
        streams=tuple(dict.fromkeys(streams)),
        assigned=assigned,
        pattern=None if pattern is None else _pattern_of(pattern),
        columns=_columns_of(given),
        schema=given.get("schema"),
        mode=_one_of(given, "mode", MODES, "permissive"),
        starting=_strict(given, _positions_of(given, "startingOffsets", "startingTimestamp", streams)),
        ending=_positions_of(given, "endingOffsets", "endingTimestamp", streams),
        events_min=_events_min_of(given, events_max),
        trigger_delay_ms=_duration_of(given, "maxTriggerDelay", TRIGGER_DELAY_MS),
        events_max=events_max,
        bytes_max=bytes_max,
        partitions_min=_int_of(given, "minPartitions"),
        partition_events_max=_int_of(given, "maxEventsPerPartition"),
        header_list=_headers_of(given) == HEADER_LIST,
        fail_on_data_loss=_one_of(given, "failOnDataLoss", ("true", "false"), "true") == "true",
        hold_ms=_int_of(given, "holdMs", DUE_MS_MAX) or HOLD_MS,
    )


def _assigned_of(given: Mapping[str, str]) -> dict[str, tuple[SegmentId | str, ...]]:
    if (text := given.get("assign")) is None:
        return {}
    reason = (
        'it must be JSON such as {"shop/orders": ["0.0", "2.1"]}, or {"shop/topic": [0, 2]} for partitions'
    )
    try:
        named = json.loads(text)
        found = {
            str(stream): tuple(
                str(each) if type(each) is int and each >= 0 else parse_segment(str(each))
                for each in segments
            )
            for stream, segments in named.items()
            if isinstance(segments, list) and segments
        }
    except (ValueError, TypeError, AttributeError, EventprocError):
        raise invalid_argument("option assign", text, reason) from None
    if not found or len(found) < len(named):
        raise invalid_argument("option assign", text, reason)
    return found


def _int_of(given: Mapping[str, str], name: str, most: int = INT_MAX) -> int | None:
    if (text := given.get(name.lower())) is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= most:
        raise invalid_argument(f"option {name}", text, f"it must be a whole number, 1 to {most}")
    return number


def _events_min_of(given: Mapping[str, str], events_max: int | None) -> int | None:
    found = _int_of(given, "minEventsPerTrigger")
    if found is None and "maxtriggerdelay" in given:
        reason = "it bounds the wait for minEventsPerTrigger, which is missing"
        raise invalid_argument("option maxTriggerDelay", given["maxtriggerdelay"], reason)
    if found is not None and events_max is not None and found > events_max:
        reason = f"it must be at most maxEventsPerTrigger, {events_max}"
        raise invalid_argument("option minEventsPerTrigger", str(found), reason)
    return found


def _duration_of(given: Mapping[str, str], name: str, default_ms: int) -> int:
    if (text := given.get(name.lower())) is None:
        return default_ms
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or (unit := found[2] or "ms") not in _UNITS_MS:
        raise invalid_argument(f"option {name}", text, "it must be a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[unit]


def _strict(given: Mapping[str, str], positions: Positions | None) -> Positions | None:
    name = "startingOffsetsByTimestampStrategy"
    strict = _one_of(given, name, ("error", "latest"), "latest") == "error"
    return attrs.evolve(positions, strict=True) if strict and positions is not None else positions


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


def _headers_of(given: Mapping[str, str]) -> str:
    return _one_of(given, "includeHeaders", ("true", "false", HEADER_LIST), "false")


def _columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the requested columns in the given order, or None for the default ones."""
    with_headers = _headers_of(given) != "false"
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
        own[stream] = (
            _offsets_of(offsets, stream, place)
            if isinstance(place, dict)
            else _place_of(offsets, str(place), stream)
        )
    return Positions("earliest" if offsets == "startingOffsets" else "latest", own)


def _offsets_of(option: str, stream: str, given: Mapping[str, object]) -> Mapping[SegmentId, int]:
    found = {}
    for name, offset in given.items():
        what = f"option {option}, segment {name} of {stream}"
        try:
            segment = parse_segment(name)
        except EventprocError:
            raise invalid_argument(what, name, "it must be a segment, such as 0.0") from None
        found[segment] = check_int(what, offset, least=SEGMENT_HEAD)
    return found


def _place_of(option: str, text: str, stream: str | None) -> PositionSpec:
    text = text.strip()
    if text == "earliest" or text == "latest":
        return text
    if text.startswith(ASSIGNED):
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
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        return utc_ms(datetime.fromisoformat(text))
    except ValueError:
        reason = "it must be earliest, latest, a stream cut, an ISO 8601 time, or ms since 1970"
        raise InvalidArgument(what=f"option {option}", value=text, reason=reason) from None
