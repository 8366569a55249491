"""Options of the format: what they mean, and that a wrong one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventproc.spark.option_names import path_option
from eventproc.spark.source_options import Positions, SourceOptions, parse_options
from eventproc.store.model.errors import InvalidArgument, NotSupported

BASE = {"path": "/data", "stream": "s/t"}


def options(**given: str) -> SourceOptions:
    return parse_options({**BASE, **given})


def test_option_names_ignore_case() -> None:
    assert parse_options({"PATH": "/data", "sTREAM": "s/t", "maxeventspertrigger": "5"}).events_max == 5


def test_streams_are_separated_by_commas() -> None:
    found = parse_options({"path": "/data", "stream": "s/t, s/u,s/t"})
    assert (found.address, found.streams) == (Path("/data"), ("s/t", "s/u"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///shop?host=/run/postgresql&port=5433&schema=mine",
        "postgresql://ann@db1,db2:5433/shop?sslmode=verify-full",
        "postgresql://db",
    ],
)
def test_url_reaches_other_processes_with_all_that_it_says(url: str) -> None:
    address = options(path=url).address
    assert options(path=path_option(address)).address == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://ann:hidden@db/shop", "PGPASSFILE"),
        ("postgresql://ann@db/shop?sslpassword=hidden", "PGPASSFILE"),
        ("postgresql://ann@db/shop?schema=Not%20One", "schema"),
        ("redis://db", "postgresql://USER@HOST/DATABASE"),
    ],
)
def test_url_that_cannot_be_an_option_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as refused:
        options(path=url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("7:0.0=120,2.1=-1", "7:0.0=120,2.1=-1"),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1500", 1500),
    ],
)
def test_position_is_an_end_a_cut_or_a_time(text: str, place: object) -> None:
    assert options(startingOffsets=text).starting == Positions(place)  # type: ignore[arg-type]


def test_positions_of_several_streams_are_json_and_default_to_the_head() -> None:
    found = parse_options(
        {"path": "/d", "stream": "s/t,s/u", "startingOffsets": '{"s/t": "7:0.0=120", "s/u": "latest"}'}
    )
    assert found.starting == Positions("earliest", {"s/t": "7:0.0=120", "s/u": "latest"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "did you mean 'maxEventsPerTrigger'"),
        ({"minPartition": "5"}, "did you mean 'minPartitions'"),
        ({"maxEventsPerTrigger": "0"}, "maxEventsPerTrigger"),
        ({"maxEventsPerTrigger": str(2**63)}, "maxEventsPerTrigger"),
        ({"holdMs": str(2**63 - 1)}, "holdMs"),
        ({"maxEventsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "maxBytesPerTrigger"),
        ({"streamPattern": "s/.*"}, "stream"),
        ({"columns": "payload,value"}, "columns"),
        ({"startingOffsets": "yesterday"}, "startingOffsets"),
        ({"startingOffsets": str(2**63)}, "startingOffsets"),
        ({"startingTimestamp": "9" * 5000}, "startingTimestamp"),
        ({"startingOffsets": "7:0.0=1,0.0=2"}, "startingOffsets"),
        ({"startingOffsets": '{"s/u": "latest"}'}, "startingOffsets"),
        ({"startingOffsets": "{"}, "startingOffsets"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "startingTimestamp"),
        ({"startingOffsets": '{"s/t": {"x": 1}}'}, "segment x of s/t"),
        ({"startingOffsets": '{"s/t": {"0.0": -3}}'}, "segment 0.0 of s/t"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "startingOffsetsByTimestampStrategy"),
        ({"maxTriggerDelay": "5s"}, "minEventsPerTrigger"),
        ({"minEventsPerTrigger": "5", "maxTriggerDelay": "5 weeks"}, "maxTriggerDelay"),
        ({"minEventsPerTrigger": "5", "maxTriggerDelay": "9" * 5000}, "maxTriggerDelay"),
        ({"minEventsPerTrigger": "5", "maxEventsPerTrigger": "4"}, "minEventsPerTrigger"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss"),
        ({"mode": "ignore"}, "mode"),
    ],
)
@pytest.mark.acceptance("Q16")
def test_wrong_option_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        options(**given)


@pytest.mark.parametrize(
    "given", [{"stream": "s/t"}, {"path": "/data"}, {"path": "/d", "streamPattern": "("}]
)
def test_path_and_stream_are_required(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        parse_options(given)


@pytest.mark.parametrize(
    "given", [{}, {"provider": "eventproc", "option.stream": "s/t", "path": "file:/data"}]
)
def test_table_of_the_catalog_is_refused_with_the_view_to_create_instead(given: dict[str, str]) -> None:
    with pytest.raises(NotSupported, match="CREATE TEMPORARY VIEW"):
        parse_options(given)
