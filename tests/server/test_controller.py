"""The controller's table of methods, and the module that is made of its definition."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import new_txn_id, server_lease_ms, txn_id_of, txn_message
from eventproc.server.controller.service import SERVICE, Controller, status_of
from eventproc.server.endpoints import check_host
from eventproc.store.clock import SystemClock
from eventproc.store.model.errors import InvalidArgument, LockHeld, NotFound, StreamSealed
from tests.support.child_process import REPOSITORY

STREAM = pb.StreamInfo(scope="s", stream="t")


def call(ep: Eventproc, name: str) -> Callable[[Any], Awaitable[Any]]:
    found = Controller(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 2)).rules[name].call
    assert found is not None, f"{name} is not served"
    return found


async def test_every_method_of_the_definition_has_a_rule() -> None:
    async with eventproc.open_memory() as ep:
        controller = Controller(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 2))
        assert set(controller.rules) == {method.name for method in SERVICE.methods}
        assert len(controller.__mapping__()) == len(controller.rules)


async def test_a_scale_gives_successors_with_all_their_predecessors() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        halves = await stream.split(0)
        entry = pb.ScaleRequest.KeyRangeEntry(start=0, end=1)
        scale = pb.ScaleRequest(streamInfo=STREAM, sealedSegments=halves, newKeyRanges=[entry])
        done = await call(ep, "scale")(scale)
        assert (done.status, done.epoch) == (pb.ScaleResponse.STARTED, 1)
        (merged,) = done.segments
        asked = pb.SegmentId(streamInfo=STREAM, segmentId=int(halves[1]))
        (following,) = (await call(ep, "getSegmentsImmediatelyFollowing")(asked)).segments
        assert (following.segment, list(following.value)) == (merged, list(halves))
        again = await call(ep, "scale")(scale)
        assert again.status == pb.ScaleResponse.PRECONDITION_FAILED
        checked = await call(ep, "checkScale")(pb.ScaleStatusRequest(streamInfo=STREAM, epoch=1))
        assert checked.status == pb.ScaleStatusResponse.SUCCESS


async def test_a_sealed_stream_has_no_current_segments_and_no_topic_is_written() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await ep.create_topic("s/topic")
        assert len((await call(ep, "getCurrentSegments")(STREAM)).segmentRanges) == 1
        await stream.seal()
        assert not (await call(ep, "getCurrentSegments")(STREAM)).segmentRanges
        with pytest.raises(InvalidArgument, match="topic"):
            await call(ep, "getCurrentSegments")(pb.StreamInfo(scope="s", stream="topic"))


async def test_policies_of_clients_are_those_of_streams_and_tags_are_refused() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        by_rate = pb.ScalingPolicy(
            scaleType=pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC,
            targetRate=10,
            scaleFactor=3,
            minNumSegments=2,
        )
        by_time = pb.RetentionPolicy(retentionType=pb.RetentionPolicy.TIME, retentionParam=5_000)
        asked = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=by_rate, retentionPolicy=by_time)
        assert (await call(ep, "createStream")(asked)).status == pb.CreateStreamStatus.SUCCESS
        config = (await (await ep.stream("s/t")).describe()).config
        assert config.scaling == eventproc.ScalingPolicy.by_byte_rate(10_240, factor=3, segments_min=2)
        assert config.retention == eventproc.RetentionPolicy(age_ms=5_000)
        found = await call(ep, "getStreamConfiguration")(STREAM)
        assert (found.scalingPolicy, found.retentionPolicy) == (by_rate, by_time)
        with pytest.raises(InvalidArgument, match="tags"):
            await call(ep, "createStream")(
                pb.StreamConfig(streamInfo=STREAM, scalingPolicy=by_rate, tags=pb.Tags(tag=["a"]))
            )


async def test_listings_end_with_an_empty_page() -> None:
    async with eventproc.open_memory() as ep:
        for name in ("a", "b"):
            await ep.create_scope(name)
        first = await call(ep, "listScopes")(pb.ScopesRequest())
        assert list(first.scopes) == ["a", "b"]
        last = await call(ep, "listScopes")(pb.ScopesRequest(continuationToken=first.continuationToken))
        assert not last.scopes
        assert last.HasField("continuationToken")


def test_transaction_ids_are_those_that_the_client_can_use() -> None:
    txn_id = new_txn_id(SystemClock(), epoch=7)
    message = txn_message(txn_id)
    assert message is not None
    assert message.highBits >> 32 == 7
    assert message.lowBits >= 0
    assert txn_id_of(message) == txn_id
    assert txn_message("018bcfe5-6877-7a9a-a463-da835f7bae6f") is None


def test_a_lease_is_long_enough_for_the_pings_of_the_client() -> None:
    assert server_lease_ms(90_000) == 190_000
    assert server_lease_ms(10**9) == 600_000


def test_errors_have_the_codes_that_make_clients_stop_or_repeat() -> None:
    assert status_of(NotFound(kind="stream", name="s/t")) is Status.NOT_FOUND
    assert status_of(StreamSealed(stream="s/t")) is Status.INVALID_ARGUMENT
    assert issubclass(LockHeld, Exception)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "::"])
def test_only_hosts_of_this_machine_are_listened_on(host: str) -> None:
    with pytest.raises(InvalidArgument, match="host"):
        check_host(host)


@pytest.mark.subprocess
def test_the_module_is_the_one_that_the_definition_makes(tmp_path: Path) -> None:
    code = (
        f"from pathlib import Path; from tools.controller import generate; generate(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, timeout=60)
    for name in ("controller_pb2.py", "controller_pb2.pyi"):
        committed = REPOSITORY / "eventproc" / "server" / "controller" / name
        assert (tmp_path / name).read_text() == committed.read_text()
