"""A store on a server without `await`, and the schema as an argument."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.errors import InvalidArgument
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess


def test_blocking_twin_writes_reads_commits_and_shares_a_group(server: Server) -> None:
    schema = server.new_schema()
    with eventproc.open_blocking(server.url, schema=schema) as ep:
        ep.create_scope("s")
        stream = ep.create_stream("s/t")
        group = ep.create_group("g", ["s/t"])
        with stream.writer() as writer:
            writer.write(b"1", key="a")
        with stream.transaction() as transaction:
            transaction.write(b"2", key="a")
            transaction.write(b"3", key="a")
        with group.reader("r") as reader:
            assert [event.payload for event in reader.until(stream.tail())] == [b"1", b"2", b"3"]
    with (
        eventproc.open_blocking(server.store(schema), create=False) as ep,
        ep.group("s/g").reader("r") as again,
    ):
        assert list(again.until(ep.stream("s/t").tail())) == []


def test_schema_is_given_once(server: Server) -> None:
    schema = server.new_schema()
    with eventproc.open_blocking(server.store(schema), schema=schema):
        pass
    with pytest.raises(InvalidArgument, match="leave one of them out"):
        eventproc.open_blocking(server.store(schema), schema="other")
    with pytest.raises(InvalidArgument, match="a directory has none"):
        eventproc.open_blocking("somewhere", schema=schema)
