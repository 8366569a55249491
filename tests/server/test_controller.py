"""The controller's table of methods, and the module that is made of its definition."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio.lowlevel
import attrs
import pytest
from grpclib.const import Status
from hypothesis import given, strategies as st

import eventproc
from eventproc.base.clock import SystemClock
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import TRUSTED, Caller
from eventproc.server.controller import catalog_calls, controller_pb2 as pb, segment_queries
from eventproc.server.controller.conversions import (
    config_message,
    config_of,
    new_txn_id,
    server_lease_ms,
    txn_id_of,
    txn_message,
)
from eventproc.server.controller.service import SERVICE, status_of
from eventproc.server.writable_streams import WRITER_SEGMENTS_MAX
from eventproc.store.access.permissions import Grant, Permission
from eventproc.store.access.users import User
from eventproc.store.catalog import SCOPE, get_scope
from eventproc.store.database import Database, Tx
from eventproc.store.model import list_pages
from eventproc.store.model.errors import InvalidArgument, InvalidCut, NotFound, StreamSealed
from eventproc.store.model.limits import TXNS_LISTED_MAX
from eventproc.store.model.policies import RetentionPolicy, ScalingPolicy, StreamConfig
from eventproc.store.model.states import ScopeState
from eventproc.store.records import replace
from eventproc.store.requests import Request
from eventproc.streams.request_calls import run_request
from eventproc.workflows.requests import AnyRequest, DeleteScope, UpdateStream
from tests.server.controller_calls import call, controller_of
from tests.support.child_process import REPOSITORY

STREAM = pb.StreamInfo(scope="s", stream="t")

LIMITS = st.integers(1, 2**63 - 2)  # clients send the largest number for no limit
RATES = {
    "factor": st.integers(2, 1024),
    "segments_min": st.integers(1, 8),
    "segments_max": st.integers(8, 1024),
    "window_ms": st.integers(1_000, 86_400_000),
}


class FixedClock(SystemClock):
    """A clock that stands, with random bytes that are given."""

    def __init__(self, wall_ms: int, noise: bytes) -> None:
        self._wall_ms = wall_ms
        self._noise = noise

    def wall_ms(self) -> int:
        return self._wall_ms

    def random_bytes(self, count: int) -> bytes:
        assert count == len(self._noise)
        return self._noise


CONFIGS = st.builds(
    StreamConfig,
    scaling=st.one_of(
        st.builds(ScalingPolicy.fixed, st.integers(1, 1024)),
        st.builds(ScalingPolicy.by_event_rate, st.integers(1, 2**40), **RATES),
        st.builds(ScalingPolicy.by_byte_rate, st.integers(1, 2**50), **RATES),
    ),
    retention=st.builds(
        RetentionPolicy,
        age_ms=st.none() | LIMITS,
        size_bytes=st.none() | LIMITS,
        consumed=st.booleans(),
    ),
    offload=st.builds(eventproc.OffloadPolicy, age_ms=st.none() | LIMITS),
    ttl_ms=st.none() | LIMITS,
    tags=st.sets(st.sampled_from(["a", "b", "c"])).map(lambda tags: tuple(sorted(tags))),
)
MESSAGES = st.builds(
    pb.StreamConfig,
    streamInfo=st.just(STREAM),
    scalingPolicy=st.one_of(
        st.builds(pb.ScalingPolicy, scaleType=st.just(0), minNumSegments=st.integers(1, 1024)),
        st.builds(
            pb.ScalingPolicy,
            scaleType=st.integers(1, 2),
            targetRate=st.integers(1, 2**31 - 1),
            scaleFactor=st.integers(2, 1024),
            minNumSegments=st.integers(1, WRITER_SEGMENTS_MAX),
        ),
    ),
    retentionPolicy=st.one_of(
        st.builds(pb.RetentionPolicy),
        st.builds(pb.RetentionPolicy, retentionType=st.integers(1, 2), retentionParam=LIMITS),
        st.builds(
            pb.RetentionPolicy,
            retentionType=st.integers(1, 2),
            retentionParam=LIMITS,
            retentionMax=st.just(2**63 - 1),
        ),
    ),
    tags=st.builds(pb.Tags, tag=st.sets(st.sampled_from(["a", "b", "c"])).map(sorted)),
)


async def test_every_method_of_the_definition_has_a_rule() -> None:
    async with eventproc.open_memory() as ep:
        controller = controller_of(ep)
        assert set(controller.rules) == {method.name for method in SERVICE.methods}
        assert len(controller.__mapping__()) == len(controller.rules)


async def test_a_scale_gives_successors_with_all_their_predecessors(ep: Eventproc) -> None:
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


async def test_a_sealed_stream_has_no_current_segments(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    assert len((await call(ep, "getCurrentSegments")(STREAM)).segmentRanges) == 1
    await stream.seal()
    assert not (await call(ep, "getCurrentSegments")(STREAM)).segmentRanges


async def test_policies_and_tags_of_clients_are_those_of_streams(ep: Eventproc) -> None:
    by_rate = pb.ScalingPolicy(
        scaleType=pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC,
        targetRate=10,
        scaleFactor=3,
        minNumSegments=2,
    )
    by_time = pb.RetentionPolicy(retentionType=pb.RetentionPolicy.TIME, retentionParam=5_000)
    asked = pb.StreamConfig(
        streamInfo=STREAM, scalingPolicy=by_rate, retentionPolicy=by_time, tags=pb.Tags(tag=["b", "a"])
    )
    assert (await call(ep, "createStream")(asked)).status == pb.CreateStreamStatus.SUCCESS
    config = (await (await ep.stream("s/t")).describe()).config
    assert config.scaling == eventproc.ScalingPolicy.by_byte_rate(
        10_240, factor=3, segments_min=2, segments_max=WRITER_SEGMENTS_MAX
    )
    assert config.retention == eventproc.RetentionPolicy(age_ms=5_000)
    assert config.tags == ("a", "b")
    found = await call(ep, "getStreamConfiguration")(STREAM)
    assert (found.scalingPolicy, found.retentionPolicy) == (by_rate, by_time)
    assert list(found.tags.tag) == ["a", "b"]


@given(CONFIGS)
def test_a_configuration_that_a_client_reads_and_sends_back_stays_as_it_is(stored: StreamConfig) -> None:
    assert config_of(config_message("s/t", stored), stored) == stored


@given(MESSAGES)
def test_a_configuration_of_a_client_is_read_as_it_was_sent(sent: pb.StreamConfig) -> None:
    assert config_message("s/t", config_of(sent, StreamConfig())) == sent


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "stored"),
    [
        ("TIME", 5, 2**63 - 1, RetentionPolicy(consumed=True, age_ms_min=5)),
        ("TIME", 5, 9, RetentionPolicy(consumed=True, age_ms_min=5, age_ms=9)),
        ("TIME", 5, 5, RetentionPolicy(age_ms=5)),
        ("TIME", 5, 0, RetentionPolicy(age_ms=5)),
        ("SIZE", 5, 2**63 - 1, RetentionPolicy(consumed=True, size_bytes_min=5)),
        ("SIZE", 5, 9, RetentionPolicy(consumed=True, size_bytes_min=5, size_bytes=9)),
        ("SIZE", 5, 0, RetentionPolicy(size_bytes=5)),
    ],
)
async def test_what_lies_between_the_limits_of_a_client_goes_when_it_was_consumed(
    ep: Eventproc, kind: str, lower: int, upper: int, stored: RetentionPolicy
) -> None:
    """The client's `byTime` and `bySizeBytes` send the largest number as the upper limit."""
    sent = pb.RetentionPolicy(retentionType=kind, retentionParam=lower, retentionMax=upper)
    config = pb.StreamConfig(
        streamInfo=STREAM, scalingPolicy=pb.ScalingPolicy(minNumSegments=1), retentionPolicy=sent
    )
    assert (await call(ep, "createStream")(config)).status == pb.CreateStreamStatus.SUCCESS
    assert (await (await ep.stream("s/t")).describe()).config.retention == stored
    found = (await call(ep, "getStreamConfiguration")(STREAM)).retentionPolicy
    assert (found.retentionType, found.retentionParam) == (sent.retentionType, lower)
    assert found.retentionMax == (upper if upper != lower else 0)


@pytest.mark.parametrize(
    "scaling",
    [
        ScalingPolicy.by_event_rate(10, segments_max=4, window_ms=5_000),
        ScalingPolicy.by_event_rate(10, segments_min=100),
    ],
    ids=["of a window", "with more segments than clients may ask for"],
)
async def test_an_update_by_a_client_leaves_what_clients_cannot_express(
    ep: Eventproc, scaling: ScalingPolicy
) -> None:
    retention = eventproc.RetentionPolicy(consumed=True, age_ms_min=1_000)
    stream = await ep.create_stream("s/t", scaling=scaling, retention=retention, tags=["billing"])
    sent = await call(ep, "getStreamConfiguration")(STREAM)
    sent.tags.tag.append("clicks")
    assert (await call(ep, "updateStream")(sent)).status == pb.UpdateStreamStatus.SUCCESS
    config = (await stream.describe()).config
    assert (config.scaling, config.retention) == (scaling, retention)
    assert config.tags == ("billing", "clicks")
    sent.retentionPolicy.CopyFrom(pb.RetentionPolicy(retentionType=pb.RetentionPolicy.SIZE, retentionParam=9))
    await call(ep, "updateStream")(sent)
    config = (await stream.describe()).config
    assert (config.scaling, config.retention) == (scaling, eventproc.RetentionPolicy(size_bytes=9))


@pytest.mark.parametrize(
    "policies",
    [
        {"retentionPolicy": pb.RetentionPolicy(retentionType=pb.RetentionPolicy.TIME, retentionParam=-3)},
        {"retentionPolicy": pb.RetentionPolicy(retentionType=pb.RetentionPolicy.SIZE, retentionParam=-1)},
        {"retentionPolicy": pb.RetentionPolicy(retentionType=9, retentionParam=3)},  # type: ignore[arg-type]
        {"scalingPolicy": pb.ScalingPolicy(minNumSegments=1, scaleType=9, targetRate=4)},  # type: ignore[arg-type]
        {"scalingPolicy": pb.ScalingPolicy(minNumSegments=0)},
    ],
    ids=["negative age", "negative size", "unknown retention", "unknown scaling", "no segment"],
)
async def test_policies_that_are_not_possible_are_refused(ep: Eventproc, policies: dict[str, Any]) -> None:
    one = pb.ScalingPolicy(minNumSegments=1)
    chosen: dict[str, Any] = {"scalingPolicy": one} | policies
    with pytest.raises(InvalidArgument):
        await call(ep, "createStream")(pb.StreamConfig(streamInfo=STREAM, **chosen))
    assert not (await call(ep, "checkStreamExists")(STREAM)).exists


@pytest.mark.parametrize("scale_type", [1, 2], ids=["events", "bytes"])
async def test_a_rate_of_a_client_splits_into_no_more_segments_than_writers_can_serve(
    ep: Eventproc,
    scale_type: Any,
) -> None:
    def asking(segments: int) -> pb.StreamConfig:
        policy = pb.ScalingPolicy(scaleType=scale_type, targetRate=10, scaleFactor=2, minNumSegments=segments)
        return pb.StreamConfig(streamInfo=STREAM, scalingPolicy=policy)

    with pytest.raises(InvalidArgument, match="at most 64 segments"):
        await call(ep, "createStream")(asking(WRITER_SEGMENTS_MAX + 1))
    assert (await call(ep, "createStream")(asking(1))).status == pb.CreateStreamStatus.SUCCESS
    stream = await ep.stream("s/t")
    assert (await stream.describe()).config.scaling.most == WRITER_SEGMENTS_MAX
    with pytest.raises(InvalidArgument, match="at most 64 segments"):
        await call(ep, "updateStream")(asking(WRITER_SEGMENTS_MAX + 1))
    assert (await call(ep, "updateStream")(asking(2))).status == pb.UpdateStreamStatus.SUCCESS
    scaling = (await stream.describe()).config.scaling
    assert (scaling.segments_min, scaling.most) == (2, WRITER_SEGMENTS_MAX)


async def test_a_client_may_ask_for_a_fixed_number_of_more_segments(ep: Eventproc) -> None:
    fixed = pb.ScalingPolicy(minNumSegments=WRITER_SEGMENTS_MAX + 1)
    await call(ep, "createStream")(pb.StreamConfig(streamInfo=STREAM, scalingPolicy=fixed))
    assert (await (await ep.stream("s/t")).describe()).config.scaling == ScalingPolicy.fixed(65)


async def test_streams_with_a_tag_are_listed_in_pages(ep: Eventproc) -> None:
    for name in ("a", "b", "c"):
        await ep.create_stream(f"s/{name}", tags=["billing"] if name != "b" else [])
    asked = pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope="s"), tag="billing")
    first = await call(ep, "listStreamsInScopeForTag")(asked)
    assert [each.stream for each in first.streams] == ["a", "c"]
    asked.continuationToken.CopyFrom(first.continuationToken)
    assert not (await call(ep, "listStreamsInScopeForTag")(asked)).streams
    missing = pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope="missing"), tag="billing")
    refused = await call(ep, "listStreamsInScopeForTag")(missing)
    assert refused.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND


async def test_an_instance_that_is_not_the_host_knows_what_it_created_and_the_epoch_of_its_own_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with eventproc.open(tmp_path), eventproc.open(tmp_path, host=False) as ep:
        await ep.create_scope("s")
        asked = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=pb.ScalingPolicy(minNumSegments=2))
        assert (await call(ep, "createStream")(asked)).status == pb.CreateStreamStatus.SUCCESS
        assert (await call(ep, "createStream")(asked)).status == pb.CreateStreamStatus.STREAM_EXISTS
        stream = await ep.stream("s/t")

        async def run_before_another_scale(db: Database, request: AnyRequest) -> Request:
            done = await run_request(db, request)
            await stream.split(1)
            return done

        monkeypatch.setattr(catalog_calls, "run_request", run_before_another_scale)
        halves = [pb.ScaleRequest.KeyRangeEntry(start=low, end=low + 0.25) for low in (0, 0.25)]
        scale = pb.ScaleRequest(streamInfo=STREAM, sealedSegments=[0], newKeyRanges=halves)
        done = await call(ep, "scale")(scale)
        assert (done.status, done.epoch) == (pb.ScaleResponse.STARTED, 0)
        assert [(each.minKey, each.maxKey) for each in done.segments] == [(0, 0.25), (0.25, 0.5)]


async def test_topics_and_streams_of_the_system_have_no_transactions_of_clients(ep: Eventproc) -> None:
    await ep.create_topic("s/topic")
    for scope, name in (("s", "topic"), ("_system", "request")):
        info = pb.StreamInfo(scope=scope, stream=name)
        with pytest.raises(InvalidArgument):
            await call(ep, "createTransaction")(pb.CreateTxnRequest(streamInfo=info, lease=10_000))
        with pytest.raises(InvalidArgument):
            await call(ep, "getCurrentSegments")(info)


async def test_scopes_are_listed_in_full_pages_of_those_that_the_caller_may_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_calls, "PAGE_LENGTH", 2)
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 3)
    user = User(name="ann", created_ms=0, grants=(Grant("b*", Permission.READ),))
    async with eventproc.open_memory() as ep:
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2", "b3"):
            await ep.create_scope(name)
        for caller, expected in (
            (TRUSTED, [["a1", "a2"], ["a3", "a4"], ["b1", "b2"], ["b3", "c1"]]),
            (Caller(user), [["b1", "b2"], ["b3"]]),
        ):
            pages: list[list[str]] = []
            request = pb.ScopesRequest()
            while (page := await call(ep, "listScopes", caller)(request)).scopes:
                pages.append(list(page.scopes))
                request = pb.ScopesRequest(continuationToken=page.continuationToken)
            assert pages == expected
            assert page.HasField("continuationToken")


async def test_a_key_value_table_in_a_scope_that_is_being_deleted_is_to_be_tried_again() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")

        def begin_to_delete(tx: Tx) -> None:
            scope = get_scope(tx, "s")
            replace(tx, SCOPE, scope, attrs.evolve(scope.value, state=ScopeState.DELETING))

        await ep.db.write(begin_to_delete)
        config = pb.KeyValueTableConfig(scope="s", kvtName="t", partitionCount=1, primaryKeyLength=1)
        created = await call(ep, "createKeyValueTable")(config)
        assert created.status == pb.CreateKeyValueTableStatus.FAILURE
        await run_request(ep.db, DeleteScope("s"))
        created = await call(ep, "createKeyValueTable")(config)
        assert created.status == pb.CreateKeyValueTableStatus.SCOPE_NOT_FOUND


async def test_streams_of_a_scope_are_listed_to_clients_that_may_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_calls, "PAGE_LENGTH", 2)
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 3)
    async with eventproc.open_memory() as ep:
        for scope in ("a", "b"):
            await ep.create_scope(scope)
            for number in range(5):
                await ep.create_stream(f"{scope}/s{number}", tags=["billing"])
        await _verify_listed(ep)


async def _verify_listed(ep: Eventproc) -> None:
    own = [f"a/s{number}" for number in range(5)]
    for grants, scope, expected in (
        (["a/s*"], "a", [own[:2], own[2:4], own[4:]]),
        (["a/s1", "a/s3", "a/s4"], "a", [["a/s1", "a/s3"], ["a/s4"]]),
        (["a"], "a", []),
        (["a/*"], "b", []),
        (["a/*"], "missing", []),
    ):
        caller = Caller(
            User(name="ann", created_ms=0, grants=tuple(Grant(each, Permission.READ) for each in grants))
        )
        for name, kind in (
            ("listStreamsInScope", pb.StreamsInScopeRequest),
            ("listStreamsInScopeForTag", partial(pb.StreamsInScopeWithTagRequest, tag="billing")),
        ):
            found: list[list[str]] = []
            request: Any = kind(scope=pb.ScopeInfo(scope=scope))
            while (page := await call(ep, name, caller)(request)).streams:
                found.append([f"{each.scope}/{each.stream}" for each in page.streams])
                request.continuationToken.CopyFrom(page.continuationToken)
            assert found == expected, (grants, name)
            assert page.HasField("continuationToken")
            assert page.status == pb.StreamsInScopeResponse.SUCCESS


async def test_key_value_tables_and_subscribers_are_listed_to_clients_that_may_read_them(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 1)
    await ep.create_stream("s/t")
    for name in ("one", "two"):
        config = pb.KeyValueTableConfig(scope="s", kvtName=name, partitionCount=1, primaryKeyLength=1)
        await call(ep, "createKeyValueTable")(config)
        await ep.create_group(f"s/{name}", ["s/t"])
    for pattern, expected in (("s/*", ["one", "two"]), ("s/two", ["two"]), ("other/*", [])):
        caller = Caller(User(name="ann", created_ms=0, grants=(Grant(pattern, Permission.READ),)))
        asked = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope="s"))
        tables = await call(ep, "listKeyValueTablesInScope", caller)(asked)
        assert [each.kvtName for each in tables.kvtables] == expected
        found = await call(ep, "listSubscribers", caller)(pb.StreamInfo(scope="s", stream="t"))
        assert list(found.subscribers) == [f"s/{each}" for each in expected]


def test_transaction_ids_are_those_that_the_client_can_use() -> None:
    txn_id = new_txn_id(SystemClock(), epoch=7)
    message = txn_message(txn_id)
    assert message is not None
    assert message.highBits >> 32 == 7
    assert message.lowBits >= 0
    assert txn_id_of(message) == txn_id
    assert txn_message("018bcfe5-6877-7a9a-a463-da835f7bae6f") is None


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**48 - 2), st.binary(min_size=16, max_size=16))
def test_transaction_ids_of_an_epoch_sort_by_their_time(epoch: int, wall_ms: int, noise: bytes) -> None:
    earlier = new_txn_id(FixedClock(wall_ms, noise[:8]), epoch)
    later = new_txn_id(FixedClock(wall_ms + 1, noise[8:]), epoch)
    assert earlier < later
    assert txn_message(later) is not None


async def test_completed_transactions_of_clients_are_listed_from_the_latest_on(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    ended: list[pb.TxnId] = []
    begin = pb.CreateTxnRequest(streamInfo=STREAM, lease=10_000)
    for number in range(TXNS_LISTED_MAX + 20):
        txn_id = (await call(ep, "createTransaction")(begin)).txnId
        verb = "abortTransaction" if number % 9 == 0 else "commitTransaction"
        await call(ep, verb)(pb.TxnRequest(streamInfo=STREAM, txnId=txn_id))
        ended.append(txn_id)
        if number == 19:
            before = ep.db.clock.wall_ms()
            while ep.db.clock.wall_ms() == before:  # in one ms, ids have no order
                await anyio.lowlevel.checkpoint()
    for _ in range(TXNS_LISTED_MAX):  # what clients cannot name takes no place of theirs
        await (await stream.begin()).commit()
    listed = await call(ep, "listCompletedTransactions")(pb.ListCompletedTxnRequest(streamInfo=STREAM))
    names = [txn_id_of(each.txnId) for each in listed.response]
    assert set(names) == {txn_id_of(each) for each in ended[20:]}
    assert [name[:20] for name in names] == sorted((name[:20] for name in names), reverse=True)
    states = {each.status for each in listed.response}
    assert states == {pb.TxnResponse.COMMITTED, pb.TxnResponse.ABORTED}


def test_a_lease_is_long_enough_for_the_pings_of_the_client() -> None:
    assert server_lease_ms(90_000) == 190_000
    assert server_lease_ms(10**9) == 600_000


def test_errors_have_the_codes_that_make_clients_stop_or_repeat() -> None:
    assert status_of(NotFound(kind="stream", name="s/t")) is Status.NOT_FOUND
    assert status_of(StreamSealed(stream="s/t")) is Status.INVALID_ARGUMENT


@pytest.mark.subprocess
def test_the_module_is_the_one_that_the_definition_makes(tmp_path: Path) -> None:
    code = (
        f"from pathlib import Path; from tools.controller import generate; generate(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, timeout=60)
    for name in ("controller_pb2.py", "controller_pb2.pyi"):
        committed = REPOSITORY / "eventproc" / "server" / "controller" / name
        assert (tmp_path / name).read_text() == committed.read_text()


async def test_segments_between_two_cuts_are_those_of_both_and_all_in_between(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    low, high = await stream.split(0)
    merged = await stream.merge(low, high)

    async def between(first: dict[int, int], last: dict[int, int]) -> list[int]:
        request = pb.StreamCutRange(streamInfo=STREAM, to=last, **{"from": first})
        found = await call(ep, "getSegmentsBetween")(request)
        return [each.segmentId for each in found.segments]

    assert await between({}, {}) == [0, low, high, merged]
    assert await between({int(low): 0, int(high): 0}, {}) == [low, high, merged]
    assert await between({}, {int(low): 0, int(high): 0}) == [0, low, high]
    with pytest.raises(InvalidArgument, match="before"):
        await between({int(merged): 0}, {0: 0})
    with pytest.raises(InvalidCut):
        await between({int(low): 0}, {})


async def test_more_segments_between_two_cuts_than_fit_a_reply_are_refused_and_not_cut_off(
    ep: Eventproc,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_queries, "SEGMENTS_MAX", 3)
    stream = await ep.create_stream("s/t")
    ask = pb.StreamCutRange(streamInfo=STREAM)
    await stream.split(0)
    assert len((await call(ep, "getSegmentsBetween")(ask)).segments) == 3
    await stream.split((await stream.segments())[0].id)
    with pytest.raises(InvalidArgument, match="ask for parts"):
        await call(ep, "getSegmentsBetween")(ask)


async def test_an_update_of_a_client_leaves_what_another_one_changed_meanwhile(
    ep: Eventproc,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = await ep.create_stream("s/t")
    shown = await call(ep, "getStreamConfiguration")(STREAM)
    submit = run_request

    async def run_late(db: Database, request: UpdateStream) -> Request:
        await stream.update(retention=eventproc.RetentionPolicy(size_bytes=10_000_000))
        return await submit(db, request)

    monkeypatch.setattr(catalog_calls, "run_request", run_late)
    shown.tags.tag.append("a")
    await call(ep, "updateStream")(shown)
    found = (await stream.describe()).config
    assert found.tags == ("a",)
    assert found.retention.size_bytes == 10_000_000
