"""Reader groups of Pravega's Java client: the calls of its manager, readers and checkpoints, transcribed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import anyio
import pytest

import eventproc
from eventproc import RetentionPolicy
from eventproc.cluster.buckets import BUCKETS
from eventproc.errors import AlreadyExists, InvalidArgument, NotAReaderGroup, NotFound
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import NotPermitted
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.wire import commands as c
from eventproc.store.model.buckets import BUCKET_COUNT
from eventproc.testing import VirtualClock, check, run_seeded
from tests.server.access_support import loaded
from tests.server.controller_calls import call
from tests.server.wire_peer import WRITER, connected, framed

GROUP_ID = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
LOG = "s/_RGg/0.#epoch.0"
NONE, MANUAL, AUTOMATIC = range(3)
HEAD: Mapping[int, int] = {}

Create = pb.CreateReaderGroupResponse
Update = pb.UpdateReaderGroupResponse
Release = pb.UpdateSubscriberStatus


def asked(retention: int = AUTOMATIC, **starts: Mapping[int, int]) -> pb.ReaderGroupConfiguration:
    """Return the configuration of group s/g, as the client's builder leaves it, with these streams of scope s."""
    cuts = [_cut(name, cut) for name, cut in (starts or {"t": HEAD}).items()]
    return pb.ReaderGroupConfiguration(
        scope="s",
        readerGroupName="g",
        groupRefreshTimeMillis=3_000,
        automaticCheckpointIntervalMillis=30_000,
        maxOutstandingCheckpointRequest=3,
        retentionType=retention,
        readerGroupId=GROUP_ID,
        startingStreamCuts=cuts,
        endingStreamCuts=[_cut(name, {}) for name in starts or {"t": HEAD}],
        rolloverSizeBytes=4 * 2**20,
    )


def _cut(stream: str, cut: Mapping[int, int]) -> pb.StreamCut:
    return pb.StreamCut(streamInfo=pb.StreamInfo(scope="s", stream=stream), cut=dict(cut))


async def release(ep: Eventproc, cut: Mapping[int, int], **changed: Any) -> Any:
    usual = {"subscriber": "s/g", "generation": 0, "readerGroupId": GROUP_ID, "streamCut": _cut("t", cut)}
    fields: dict[str, Any] = {**usual, **changed}
    request = pb.SubscriberStreamCut(**fields)
    return (await call(ep, "updateSubscriberStreamCut")(request)).status


async def written(ep: Eventproc, count: int = 3) -> eventproc.Stream:
    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        for number in range(count):
            await writer.write(b"%d" % number, key="k")
    return stream


async def test_a_group_is_created_once_and_its_configuration_comes_back_as_it_was_sent(ep: Eventproc) -> None:
    await written(ep)
    sent = asked(t={0: 9})
    first = await call(ep, "createReaderGroup")(sent)
    assert (first.status, first.config) == (Create.SUCCESS, sent)
    again = await call(ep, "createReaderGroup")(asked(NONE))
    assert (again.status, again.config) == (Create.SUCCESS, sent)
    info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
    assert (await call(ep, "getReaderGroupConfig")(info)).config == sent
    listed = [(each.name, each.kind) for each in await ep.groups("s")]
    assert listed == [("s/g", "pravega")]


async def test_a_group_without_an_id_gets_one(ep: Eventproc) -> None:
    await written(ep)
    sent = asked()
    sent.readerGroupId = str(UUID(int=0))
    made = (await call(ep, "createReaderGroup")(sent)).config
    assert UUID(made.readerGroupId).int
    assert made.generation == 0


async def test_readers_of_the_client_agree_in_the_log_of_their_group(ep: Eventproc) -> None:
    """The flow of its state synchronizer: initialize, lose a race, follow, compact; see pravega.md 6.2."""
    await written(ep)
    await call(ep, "createReaderGroup")(asked())
    mark = bytes(15) + b"\x01"
    async with connected(ep) as peer:
        assert await peer.set_up(LOG) == c.NO_EVENT_NUMBER
        first = c.ConditionalAppend(WRITER, 1, 0, framed(b"init"), 2)
        assert (await peer.ask(first, c.DataAppended)).offset == 12
        lost = c.ConditionalAppend(WRITER, 2, 0, framed(b"init"), 3)
        await peer.ask(lost, c.ConditionalCheckFailed)
        read = await peer.ask(c.ReadSegment(LOG, 0, 4096, "", 4), c.SegmentRead)
        assert (read.data, read.at_tail) == (framed(b"init"), True)
        at_12 = c.ConditionalAppend(WRITER, 2, 12, framed(b"again"), 5)
        assert (await peer.ask(at_12, c.DataAppended)).offset == 25
        set_mark = c.UpdateSegmentAttribute(6, LOG, mark, 12, c.NO_VALUE)
        assert (await peer.ask(set_mark, c.SegmentAttributeUpdated)).is_updated
        assert (await peer.ask(c.GetSegmentAttribute(7, LOG, mark), c.SegmentAttribute)).value == 12
        await peer.ask(c.TruncateSegment(8, LOG, 12), c.SegmentTruncated)
        info = await peer.ask(c.GetStreamSegmentInfo(9, LOG), c.StreamSegmentInfo)
        assert (info.start_offset, info.write_offset) == (12, 25)
    assert [each.name for each in await ep.streams("s")] == ["s/t"]
    await check(ep.db)


async def test_a_deleted_group_takes_its_log_with_it(ep: Eventproc) -> None:
    await written(ep)
    await call(ep, "createReaderGroup")(asked())
    delete = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId=GROUP_ID)
    other = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId=str(UUID(int=7)))
    assert (await call(ep, "deleteReaderGroup")(other)).status == pb.DeleteReaderGroupStatus.RG_NOT_FOUND
    assert (await call(ep, "deleteReaderGroup")(delete)).status == pb.DeleteReaderGroupStatus.SUCCESS
    assert (await call(ep, "deleteReaderGroup")(delete)).status == pb.DeleteReaderGroupStatus.RG_NOT_FOUND
    async with connected(ep) as peer:
        await peer.ask(c.ReadSegment(LOG, 0, 10, "", 1), c.NoSuchSegment)
    made = await call(ep, "createReaderGroup")(asked())
    assert made.config.generation == 0
    await check(ep.db)


async def test_an_update_needs_the_present_id_and_generation(ep: Eventproc) -> None:
    await written(ep)
    await ep.create_stream("s/u")
    update = call(ep, "updateReaderGroup")
    assert (await update(asked())).status == Update.RG_NOT_FOUND
    await call(ep, "createReaderGroup")(asked())
    moved = asked(u=HEAD)
    done = await update(moved)
    assert (done.status, done.generation) == (Update.SUCCESS, 1)
    assert (await update(moved)).status == Update.INVALID_CONFIG
    info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
    moved.generation = 1
    assert (await call(ep, "getReaderGroupConfig")(info)).config == moved
    assert [each.name for each in (await (await ep.group("s/g")).info()).streams] == ["s/u"]


async def test_an_update_that_no_generation_makes_possible_is_an_error(ep: Eventproc) -> None:
    """After INVALID_CONFIG the client reads the present configuration and tries again, without end."""
    await written(ep)
    await call(ep, "createReaderGroup")(asked())
    with pytest.raises(NotFound, match="s/missing"):
        await call(ep, "updateReaderGroup")(asked(missing=HEAD))
    info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
    assert (await call(ep, "getReaderGroupConfig")(info)).config == asked()


@pytest.mark.parametrize("retention", [NONE, AUTOMATIC])
async def test_a_group_is_reset_to_each_checkpoint_of_its_client(ep: Eventproc, retention: int) -> None:
    """A segment read to its end has offset -1; one that waits for a predecessor is missing; see pravega.md 6.6."""
    stream = await written(ep)
    await call(ep, "createReaderGroup")(asked(retention))
    left, right = await stream.split(0)
    merged = await stream.merge(left, right)
    group = await ep.group("s/g")
    checkpoints: list[dict[int, int]] = [{0: -1}, {left: -1, right: -1}, {right: 0}, {merged: 0}]
    for generation, checkpoint in enumerate(checkpoints):
        moved = asked(retention, t=checkpoint)
        moved.generation = generation
        assert (await call(ep, "updateReaderGroup")(moved)).status == Update.SUCCESS
        moved.generation += 1
        info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
        assert (await call(ep, "getReaderGroupConfig")(info)).config == moved
        behind = 0 if retention == NONE or checkpoint == {merged: 0} else 3
        assert (await group.describe()).events == behind, "the head, where the cut is none of ours"
        await check(ep.db)


async def test_what_a_subscriber_releases_is_where_the_group_stands(ep: Eventproc) -> None:
    stream = await written(ep)
    await call(ep, "createReaderGroup")(asked())
    group = await ep.group("s/g")
    assert (await group.describe()).events == 3
    assert await release(ep, {0: 18}) == Release.SUCCESS
    described = await group.describe()
    assert (described.events, described.kind) == (1, "pravega")
    assert await release(ep, {0: 9}) == Release.STREAM_CUT_NOT_VALID
    assert await release(ep, {0: 18}) == Release.SUCCESS
    assert (await group.describe()).events == 1
    await stream.split(0)
    assert await release(ep, {0: 27}) == Release.SUCCESS
    assert (await group.describe()).events == 0
    await check(ep.db)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"streamCut": _cut("missing", {0: 0})}, Release.STREAM_NOT_FOUND),
        ({"subscriber": "s/other"}, Release.SUBSCRIBER_NOT_FOUND),
        ({"readerGroupId": str(UUID(int=7))}, Release.SUBSCRIBER_NOT_FOUND),
        ({"generation": 4}, Release.GENERATION_MISMATCH),
        ({"streamCut": _cut("t", {0: 5})}, Release.STREAM_CUT_NOT_VALID),
        ({"streamCut": _cut("t", {7: 0})}, Release.STREAM_CUT_NOT_VALID),
        ({"streamCut": _cut("t", {})}, Release.STREAM_CUT_NOT_VALID),
        ({"streamCut": _cut("u", {0: 0})}, Release.SUBSCRIBER_NOT_FOUND),
    ],
    ids=str,
)
async def test_a_release_that_is_not_possible_has_its_status(
    ep: Eventproc, changed: dict[str, Any], status: Any
) -> None:
    await written(ep)
    await ep.create_stream("s/u")
    await call(ep, "createReaderGroup")(asked())
    assert await release(ep, {0: 0}, **changed) == status


async def test_retention_by_consumption_waits_for_subscribers_alone(ep: Eventproc) -> None:
    await written(ep)
    await call(ep, "createReaderGroup")(asked(NONE))
    subscribers = call(ep, "listSubscribers")
    stream = pb.StreamInfo(scope="s", stream="t")
    assert list((await subscribers(stream)).subscribers) == []
    assert await release(ep, {0: 9}) == Release.SUBSCRIBER_NOT_FOUND
    described = await (await ep.group("s/g")).describe()
    assert (described.streams, described.events) == ((), 0), "nobody knows where it stands"
    await call(ep, "updateReaderGroup")(asked(MANUAL))
    assert list((await subscribers(stream)).subscribers) == ["s/g"]
    await ep.create_group("s/ours", ["s/t"])
    assert list((await subscribers(stream)).subscribers) == ["s/g", "s/ours"]
    missing = pb.StreamInfo(scope="s", stream="missing")
    assert (await subscribers(missing)).status == pb.SubscribersResponse.STREAM_NOT_FOUND


async def test_a_group_that_stops_subscribing_holds_up_nothing(ep: Eventproc) -> None:
    await written(ep)
    await call(ep, "createReaderGroup")(asked(MANUAL))
    assert await release(ep, {0: 9}) == Release.SUCCESS
    await call(ep, "updateReaderGroup")(asked(NONE))
    stream = pb.StreamInfo(scope="s", stream="t")
    assert list((await call(ep, "listSubscribers")(stream)).subscribers) == []
    resumed = asked(MANUAL)
    resumed.generation = 1
    assert (await call(ep, "updateReaderGroup")(resumed)).generation == 2
    assert await release(ep, {0: 0}, generation=2) == Release.SUCCESS, "what it released before is forgotten"


async def test_a_group_goes_on_without_a_stream_that_is_deleted(ep: Eventproc) -> None:
    stream = await written(ep)
    await ep.create_stream("s/u")
    await call(ep, "createReaderGroup")(asked(t=HEAD, u=HEAD))
    await stream.seal()
    await stream.delete()
    assert await release(ep, {}, streamCut=_cut("u", {0: 0})) == Release.SUCCESS
    group = await ep.group("s/g")
    assert [each.name for each in (await group.describe()).streams] == ["s/u"]
    stream = await written(ep)
    assert await release(ep, {0: 9}) == Release.SUCCESS, "a stream created again is one of the group's"
    described = await group.describe()
    assert [(each.name, each.stream_id) for each in described.streams][1:] == [("s/t", stream.stream_id)]
    assert described.events == 2
    await check(ep.db)


async def test_names_and_scopes_that_are_not_possible_have_their_status(ep: Eventproc) -> None:
    await written(ep)
    create = call(ep, "createReaderGroup")
    unnamed = asked()
    unnamed.readerGroupName = "_g"
    assert (await create(unnamed)).status == Create.INVALID_RG_NAME
    elsewhere = asked()
    elsewhere.scope = "missing"
    assert (await create(elsewhere)).status == Create.SCOPE_NOT_FOUND
    with pytest.raises(NotFound, match="s/missing"):
        await create(asked(missing=HEAD))
    wrong_id = asked()
    wrong_id.readerGroupId = "seven"
    with pytest.raises(InvalidArgument, match="UUID"):
        await create(wrong_id)
    with pytest.raises(InvalidArgument, match="retention type"):
        await create(asked(7))
    await ep.create_group("s/g", ["s/t"])
    with pytest.raises(AlreadyExists):
        await create(asked())
    info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
    assert (await call(ep, "getReaderGroupConfig")(info)).status == pb.ReaderGroupConfigResponse.RG_NOT_FOUND


async def test_only_its_own_clients_move_a_group(ep: Eventproc) -> None:
    stream = await written(ep)
    await call(ep, "createReaderGroup")(asked())
    group = await ep.group("s/g")
    with pytest.raises(NotAReaderGroup, match="clients of Pravega"):
        await group.reset("tail")
    with pytest.raises(NotAReaderGroup, match="clients of Pravega"):
        async with group.reader("r"):
            pass
    with pytest.raises(NotAReaderGroup, match="clients of Pravega"):
        await group.allow_truncation(await stream.tail())
    with pytest.raises(InvalidArgument, match="know whether it has readers"):
        await group.delete(if_empty=True)
    await group.delete()
    async with connected(ep) as peer:
        await peer.ask(c.ReadSegment(LOG, 0, 10, "", 1), c.NoSuchSegment)
    await check(ep.db)


async def test_a_scope_with_a_group_is_deleted_with_all_of_it(ep: Eventproc) -> None:
    await written(ep)
    await call(ep, "createReaderGroup")(asked())
    scope = pb.ScopeInfo(scope="s")
    status = pb.DeleteScopeStatus
    assert (await call(ep, "deleteScope")(scope)).status == status.SCOPE_NOT_EMPTY
    assert (await call(ep, "deleteScopeRecursive")(scope)).status == status.SUCCESS
    async with connected(ep) as peer:
        await peer.ask(c.ReadSegment(LOG, 0, 10, "", 1), c.NoSuchSegment)
    await check(ep.db)


async def test_a_group_reads_only_what_its_caller_may_read(ep: Eventproc) -> None:
    await written(ep)
    await ep.users.add("ann")
    await ep.users.grant("ann", eventproc.Permission.READ_UPDATE, "s")
    token = (await ep.users.add_token("ann", "only")).text
    tenant = await (await loaded(ep)).authenticate(f"Bearer {token}")
    with pytest.raises(NotPermitted, match="s/t"):
        await call(ep, "createReaderGroup", tenant)(asked())
    await call(ep, "createReaderGroup")(asked())
    released = pb.SubscriberStreamCut(subscriber="s/g", streamCut=_cut("t", {0: 9}))
    with pytest.raises(NotPermitted, match="s/g"):
        await call(ep, "updateSubscriberStreamCut", tenant)(released)


async def test_a_configuration_names_its_streams_to_those_who_may_read_them_all(ep: Eventproc) -> None:
    for name in ("s/t", "s/own"):
        await ep.create_stream(name)
    await call(ep, "createReaderGroup")(asked(own=HEAD, t=HEAD))
    await ep.users.add("ann")
    for pattern in ("s", "s/g", "s/own"):
        await ep.users.grant("ann", eventproc.Permission.READ_UPDATE, pattern)
    token = (await ep.users.add_token("ann", "only")).text
    tenant = await (await loaded(ep)).authenticate(f"Bearer {token}")
    info = pb.ReaderGroupInfo(scope="s", readerGroup="g")
    for name, request in (("getReaderGroupConfig", info), ("createReaderGroup", asked(own=HEAD))):
        with pytest.raises(NotPermitted, match="all streams of s/g") as found:
            await call(ep, name, tenant)(request)
        assert "s/t" not in str(found.value)


async def test_the_buckets_of_each_instance_are_shown(ep: Eventproc) -> None:
    find = call(ep, "getControllerToBucketMapping")
    with ep.db.subscribe([BUCKETS.watch()]) as changes:
        while not (mapping := (await find(pb.ControllerToBucketMappingRequest())).mapping):
            await changes.wait()
    owned = {instance: list(each.id) for instance, each in mapping.items()}
    assert owned == {ep.db.instance_id: list(range(BUCKET_COUNT))}


def test_retention_by_consumption_frees_what_all_subscribers_released() -> None:
    """The policy itself: held up by each subscriber, over a scale, and never by one that was overtaken."""

    async def run() -> None:
        async with eventproc.open_memory(clock=VirtualClock()) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
            async with stream.writer() as writer:
                for number in range(3):
                    await writer.write(b"%d" % number, key="k")

            async def events() -> int:
                await anyio.sleep(120)  # the policy runs once a minute
                return (await stream.describe()).events

            await call(ep, "createReaderGroup")(asked())
            await ep.create_group("s/ahead", ["s/t"], start="tail")
            assert await events() == 3, "it has released nothing"
            assert await release(ep, {0: 18}) == Release.SUCCESS
            assert await events() == 1
            left, right = await stream.split(0)
            await (await ep.group("s/ahead")).reset("tail")
            assert await release(ep, {left: 0, right: 0}) == Release.SUCCESS
            assert await events() == 0
            async with stream.writer() as writer:
                await writer.write_many([(b"%d" % number, str(number)) for number in range(9)])
            tail = await stream.tail()
            await stream.truncate(tail)
            assert await release(ep, {left: 0, right: 0}) == Release.SUCCESS, (
                "it is behind, and reads on at the head"
            )
            assert (await (await ep.group("s/g")).describe()).events == 0
            async with stream.writer() as writer:
                await writer.write_many([(b"%d" % number, str(number)) for number in range(9)])
            await (await ep.group("s/ahead")).reset("tail")
            assert await events() == 9
            assert (
                await release(ep, {int(each): at for each, at in (await stream.tail()).offsets.items()})
                == Release.SUCCESS
            )
            assert await events() == 0
            await check(ep.db)

    run_seeded(run, seed=0)


def test_a_stream_with_a_retention_of_the_client_keeps_what_a_subscriber_has_not_released() -> None:
    async def run() -> None:
        async with eventproc.open_memory(clock=VirtualClock()) as ep:
            await ep.create_scope("s")
            by_time = pb.RetentionPolicy(
                retentionType=pb.RetentionPolicy.TIME, retentionParam=1_000, retentionMax=2**63 - 1
            )
            config = pb.StreamConfig(
                streamInfo=pb.StreamInfo(scope="s", stream="t"),
                scalingPolicy=pb.ScalingPolicy(minNumSegments=1),
                retentionPolicy=by_time,
            )
            await call(ep, "createStream")(config)
            stream = await ep.stream("s/t")

            async def events_later() -> int:
                async with stream.writer() as writer:
                    await writer.write_many([(b"x", "k")] * 3)
                await anyio.sleep(120)
                return (await stream.describe()).events

            assert await events_later() == 0, "nobody subscribes: the lower limit decides"
            await call(ep, "createReaderGroup")(asked())
            assert await events_later() == 3
            assert await release(ep, {0: 45}) == Release.SUCCESS
            assert await events_later() == 4

    run_seeded(run, seed=0)
