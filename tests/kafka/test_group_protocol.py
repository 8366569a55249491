"""Groups in messages: every version, rounds, sessions that end, and members that are wrong or late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from eventproc.errors import GroupNotEmpty, InvalidArgument, NotAProcessorGroup, NotAReaderGroup
from eventproc.runtime import Eventproc
from tests.kafka.group_peer import GROUP_CALLS, GroupPeer, assignment, connecting
from tests.kafka.peer import KafkaPeer, batch_of
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

Connect = Callable[..., GroupPeer]


@pytest.fixture
def group(unique: str) -> str:
    """The group of a test."""
    return unique


@pytest.fixture
def connect(server: ServerProcess, group: str) -> Iterator[Connect]:
    """Opens connections of members of the test's group."""
    with connecting(GroupPeer, group, server.kafka) as connect:
        yield connect


def together(*calls: Callable[[], object]) -> list[object]:
    """Make calls that wait for each other."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result() for each in [threads.submit(each) for each in calls]]


def pair(connect: Connect, topic: str) -> tuple[GroupPeer, GroupPeer]:
    """Return two members of one round, each with a partition: the leader and the other one."""
    one, two = connect(), connect()
    joined = together(one.join, two.join)
    assert [each.error_code for each in joined] == [0, 0]  # type: ignore[attr-defined]
    leader, other = (one, two) if joined[0].members else (two, one)  # type: ignore[attr-defined]
    given = {leader.member_id: assignment(topic, 0), other.member_id: assignment(topic, 1)}
    found = together(lambda: leader.sync(given), other.sync)
    assert found == [(0, assignment(topic, 0)), (0, assignment(topic, 1))]
    return leader, other


@pytest.fixture
async def orders(ep: Eventproc, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    await (await ep.topic(f"shop/{topic}")).add_partitions(1)
    return topic


async def test_each_call_about_groups_is_answered_in_each_version_that_is_announced(
    connect: Connect, topic: str, server: ServerProcess
) -> None:
    with KafkaPeer(server.kafka) as stranger:
        versions = stranger.announced()
    assert versions.keys() >= GROUP_CALLS
    host, port = server.kafka.rsplit(":", 1)
    for version in versions[10]:
        assert connect().find(version) == (0, host, int(port))
    peer = connect()
    for version in versions[11]:
        peer = connect(f"joined-{version}")
        joined = peer.join(version)
        assert (joined.error_code, joined.leader, len(joined.members)) == (0, peer.member_id, 1)
        given = {peer.member_id: assignment(topic, 0)}
        assert peer.sync(given, min(version, 5)) == (0, assignment(topic, 0))
    for version in versions[14]:
        assert peer.sync(version=version) == (0, assignment(topic, 0))
    for version in versions[12]:
        assert peer.beat(version) == 0
    for version in versions[8]:
        assert peer.commit(topic, {0: 0}, version, f"by {version}") == [0]
        for read in versions[9]:
            assert peer.committed(topic, [0], read) == {(topic, 0): (0, f"by {version}")}
    for version in versions[9][1:]:
        assert peer.committed(None, (), version) == {(topic, 0): (0, f"by {versions[8][-1]}")}
    for version in versions[15]:
        found = peer.describe(version)
        assert (found.group_state, found.protocol_type, found.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert [each.member_id for each in found.members] == [peer.member_id]
    for version in versions[16]:
        assert peer.group in peer.names(version)
    for version in versions[13]:
        leaving = connect(f"left-{version}")
        leaving.consume_alone(topic, 0)
        assert leaving.leave(version) == 0
        assert leaving.forget(topic, 0) == (0, [0])
        assert leaving.delete(min(version, 2)) == 0
    assert versions[42] == range(3)
    assert versions[47] == range(1)


async def test_a_member_of_no_round_of_an_old_one_or_of_nothing_is_told_so(
    connect: Connect, orders: str
) -> None:
    stranger = connect()
    stranger.member_id, stranger.generation = "unknown", 1
    assert (stranger.beat(), stranger.sync()[0], stranger.leave()) == (25, 25, 25)
    assert stranger.commit(orders, {0: 1}) == [25]
    assert stranger.join().error_code == 25
    member = connect()
    member.consume_alone(orders, 0, 1)
    member.generation -= 1
    assert (member.beat(), member.sync()[0]) == (22, 22)
    assert member.commit(orders, {0: 1}) == [22]
    assert connect("").join().error_code == 24
    assert connect("a/b").join().error_code == 24
    assert connect("not valid!").join().error_code == 24
    assert connect().join(session_ms=10).error_code == 26
    assert connect().join(name="other").error_code == 23
    assert connect().find(kind=2)[0] == 42


async def test_a_new_member_begins_a_round_that_the_others_learn_from_their_heartbeats(
    connect: Connect, orders: str
) -> None:
    leader, other = pair(connect, orders)
    third = connect()
    with ThreadPoolExecutor(3) as threads:
        joining = threads.submit(third.join)
        while leader.beat() == 0:
            pass
        assert leader.beat() == 27
        assert leader.sync()[0] == 27
        assert leader.commit(orders, {0: 0}) == [0]
        joined = [
            each.result() for each in (threads.submit(leader.join), threads.submit(other.join), joining)
        ]
    assert {each.generation_id for each in joined} == {2}
    assert sorted(len(each.members) for each in joined) == [0, 0, 3]


async def test_a_member_that_leaves_lets_the_others_divide_its_partitions(
    connect: Connect, orders: str, ep: Eventproc, group: str
) -> None:
    leader, other = pair(connect, orders)
    found = await ep.group(f"shop/{group}")
    assert (await found.describe()).assignment == {
        leader.member_id: ((f"shop/{orders}", 0),),
        other.member_id: ((f"shop/{orders}", 1),),
    }
    assert leader.leave() == 0
    assert other.beat() == 27
    joined = other.join()
    assert (joined.generation_id, joined.leader) == (2, other.member_id)
    assert other.sync({other.member_id: assignment(orders, 0, 1)})[0] == 0
    assert (await found.describe()).assignment == {
        other.member_id: ((f"shop/{orders}", 0), (f"shop/{orders}", 1))
    }


async def test_a_silent_member_is_expired_by_the_heartbeats_of_another_one(
    connect: Connect, orders: str
) -> None:
    silent, other = connect(), connect()
    together(lambda: silent.join(session_ms=1_000), other.join)
    given = {silent.member_id: assignment(orders, 0), other.member_id: assignment(orders, 1)}
    together(lambda: silent.sync(given), lambda: other.sync(given))  # what only the leader gives counts
    while other.beat() == 0:
        pass
    assert other.join().generation_id == 2
    assert silent.beat() == 25
    assert silent.commit(orders, {0: 1}) == [25]


async def test_a_member_that_dies_does_not_hold_up_a_round_for_longer_than_its_session(
    connect: Connect, orders: str
) -> None:
    leader, other = pair(connect, orders)
    silent, late = connect(), connect()

    def begin_round(newcomer: GroupPeer, session_ms: int) -> set[int]:
        """Let a member join a round with those that are alive; return its numbers."""
        joins = [partial(each.join, round_ms=600_000) for each in (leader, other)]
        with ThreadPoolExecutor(3) as threads:
            joining = [threads.submit(newcomer.join, session_ms=session_ms, round_ms=600_000)]
            while leader.beat() == 0:
                pass
            joining += [threads.submit(each) for each in joins]
            return {each.result().generation_id for each in joining}

    assert begin_round(silent, 1_000) == {2}
    assert begin_round(late, 10_000) == {3}
    assert silent.beat() == 25


async def test_a_client_with_a_name_of_its_own_comes_back_without_a_round_and_fences_its_earlier_life(
    connect: Connect, orders: str
) -> None:
    first = connect()
    first.consume_alone(orders, 0, 1, instance="one")
    again = connect()
    joined = again.join(instance="one")
    assert (joined.error_code, joined.generation_id) == (0, first.generation)
    assert joined.leader != again.member_id  # so that it asks for what it had, and assigns nothing
    assert again.sync() == (0, assignment(orders, 0, 1))
    assert again.beat(instance="one") == 0
    assert first.beat(instance="one") == 82
    assert again.commit(orders, {0: 0}) == [0]
    assert first.commit(orders, {0: 0}) == [25]


async def test_a_client_with_a_name_of_its_own_is_fenced_while_it_waits_for_a_round(
    connect: Connect, orders: str
) -> None:
    first, other, again = connect(), connect(), connect()
    together(partial(first.join, instance="one"), other.join)
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(first.join, said=b"more", instance="one")
        while other.beat() == 0:
            pass
        started = threads.submit(again.join, said=b"more", instance="one")
        # With 25 it would join again, and fence the other one.
        assert waiting.result().error_code == 82
        assert other.join().error_code == 0
        assert started.result().error_code == 0


async def test_a_lone_member_that_died_is_not_described_as_one_that_consumes(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    member, admin = connect(), connect()
    member.consume_alone(orders, 0, 1, session_ms=1_000)
    found = await ep.group(f"shop/{group}")
    assert len((await found.describe()).assignment[member.member_id]) == 2
    while admin.describe().group_state != "Empty":
        pass
    assert group not in admin.names(states=["Stable"])
    described = await found.describe()
    assert (described.members, described.assignment, described.phase) == ((), {}, "empty")
    assert [each.owner for each in described.segments if each.events] == []


async def test_a_group_that_was_deleted_and_created_again_has_its_new_members_only(
    server: ServerProcess, connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    with ServerProcess(ep.path or "", kafka_scope="shop") as other:
        for _ in range(2):
            member, elsewhere = connect(), connect(group, other.kafka)
            member.consume_alone(orders, 0, 1)
            elsewhere.member_id, elsewhere.generation = member.member_id, member.generation
            assert elsewhere.beat() == 0
            await (await ep.group(f"shop/{group}")).delete()


async def test_numbers_are_committed_in_any_direction_and_outside_of_a_partition_at_its_nearest_end(
    connect: Connect, orders: str
) -> None:
    member = connect()
    for _ in range(5):
        assert member.produce(orders, batch_of(b"a", b"b"))[0] == 0
    member.consume_alone(orders, 0, 1)
    assert member.committed(orders, [0, 1]) == {(orders, 0): (-1, ""), (orders, 1): (-1, "")}
    assert member.commit(orders, {0: 7, 1: 0}, note="seven") == [0, 0]
    assert member.committed(orders, [0, 1]) == {(orders, 0): (7, "seven"), (orders, 1): (0, "seven")}
    assert member.commit(orders, {0: 3}) == [0]
    assert member.committed(orders, [0, 1]) == {(orders, 0): (3, ""), (orders, 1): (0, "seven")}
    assert member.commit(orders, {0: 99}) == [0]
    assert member.committed(orders, [0]) == {(orders, 0): (10, "")}
    assert member.commit(orders, {0: 1}, note="n" * 4_097) == [12]
    assert member.commit(orders, {5: 1}) == [3]
    assert member.commit("unknown", {0: 1}) == [3]
    assert member.committed("unknown", [0]) == {("unknown", 0): (-1, "")}
    unknown = connect("unknown")
    assert unknown.commit("unknown", {0: 1}) == [3]
    assert unknown.group not in unknown.names()  # what is refused creates no group


async def test_an_empty_partition_of_a_sealed_topic_takes_commits(
    connect: Connect, ep: Eventproc, orders: str
) -> None:
    member = connect()
    assert member.produce(orders, batch_of(b"a"))[0] == 0
    topic = await ep.topic(f"shop/{orders}")
    await topic.seal()
    assert member.commit(orders, {0: 1, 1: 0}, note="end") == [0, 0]
    assert member.committed(None) == {(orders, 0): (1, "end"), (orders, 1): (0, "end")}


async def test_a_client_without_membership_commits_for_a_group_without_members_only(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    alone = connect()
    assert alone.commit(orders, {0: 0}) == [0]
    assert alone.committed(None) == {(orders, 0): (0, "")}
    member = connect()
    member.consume_alone(orders, 0, 1)
    assert alone.commit(orders, {0: 0}) == [25]
    assert (alone.forget(orders, 0), alone.delete()) == ((0, [86]), 68)
    assert member.leave() == 0
    assert alone.commit(orders, {0: 0}, note="old") == [0]
    assert alone.forget(orders, 0) == (0, [0])
    assert alone.committed(None) == {}
    await (await ep.group(f"shop/{group}")).reset_partitions("head")
    assert alone.committed(orders, [0]) == {(orders, 0): (0, "")}
    assert alone.delete() == 0
    assert alone.delete() == 69
    assert alone.describe().group_state == "Dead"
    assert alone.group not in alone.names()


async def test_a_client_with_a_name_of_its_own_commits_for_a_group_without_members(
    connect: Connect, orders: str
) -> None:
    alone = connect()
    assert alone.commit(orders, {0: 0}, instance="one") == [0]
    assert alone.committed(orders, [0]) == {(orders, 0): (0, "")}
    connect().consume_alone(orders, 0, 1)
    assert alone.commit(orders, {0: 0}, instance="one") == [25]


async def test_a_server_that_was_killed_goes_on_with_the_members_and_their_assignments(
    ep: Eventproc, orders: str, group: str
) -> None:
    with ExitStack() as opened:
        server = opened.enter_context(ServerProcess(ep.path or "", kafka_scope="shop"))
        port = int(server.kafka.rsplit(":", 1)[1])

        def connect(name: str = group) -> GroupPeer:
            return opened.enter_context(GroupPeer(server.kafka, name))

        leader, other = pair(connect, orders)
        assert leader.commit(orders, {0: 0}) == [0]
        server.kill()
        opened.enter_context(ServerProcess(ep.path or "", kafka_scope="shop", kafka_port=port))
        for before in (leader, other):
            after = connect()
            after.member_id, after.generation = before.member_id, before.generation
            assert after.beat() == 0
            assert after.commit(orders, {0: 0}) == [0]
            assert after.sync()[0] == 0


async def test_the_members_of_a_group_may_ask_several_servers(
    server: ServerProcess, ep: Eventproc, orders: str, group: str
) -> None:
    with ServerProcess(ep.path or "", kafka_scope="shop") as other, ExitStack() as opened:
        addresses = iter((server.kafka, other.kafka))

        def connect(name: str = group) -> GroupPeer:
            return opened.enter_context(GroupPeer(next(addresses), name))

        leader, follower = pair(connect, orders)
        assert (leader.beat(), follower.beat()) == (0, 0)
        assert leader.leave() == 0
        assert follower.beat() == 27


async def test_a_group_follows_a_topic_that_grows_and_forgets_one_that_is_created_again(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    member = connect()
    member.consume_alone(orders, 0, 1)
    assert member.commit(orders, {0: 0, 1: 0}) == [0, 0]
    topic = await ep.topic(f"shop/{orders}")
    await topic.add_partitions(2)
    await topic.add_partitions(1)
    assert member.commit(orders, {4: 0}) == [0]
    partitions = await (await ep.group(f"shop/{group}")).partitions()
    assert [(each.partition, each.committed) for each in partitions] == [
        *((0, 0), (1, 0)),
        *((2, None), (3, None), (4, 0)),
    ]
    await topic.seal()
    await topic.delete()
    await ep.create_topic(f"shop/{orders}", partitions=1)
    assert member.committed(None) == {}
    assert member.commit(orders, {0: 0}) == [0]
    assert [each.partition for each in await (await ep.group(f"shop/{group}")).partitions()] == [0]


async def test_the_library_resets_and_deletes_a_group_of_clients_only_without_members(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    member = connect()
    for _ in range(5):
        member.produce(orders, batch_of(b"a", b"b"))
    member.consume_alone(orders, 0, 1)
    assert member.commit(orders, {0: 4}) == [0]
    found = await ep.group(f"shop/{group}")
    for refused in (found.reset("tail"), found.reset_partitions("head"), found.delete(if_empty=True)):
        with pytest.raises(GroupNotEmpty, match=member.member_id):
            await refused
    (preview,) = await found.reset("head", dry_run=True)
    assert (preview.events_before, preview.events_after) == (6, 10)
    assert member.committed(orders, [0]) == {(orders, 0): (4, "")}
    with pytest.raises(InvalidArgument, match="read without end"):
        await found.reset("head", until=await found.cuts(), dry_run=True)
    with pytest.raises(NotAProcessorGroup, match="clients of Kafka"):
        await ep.dead_letters(found.name).list()
    for impossible in (found.checkpoint(), found.update(patience_ms=5_000)):
        with pytest.raises(NotAReaderGroup, match="clients of Kafka"):
            await impossible
    with pytest.raises(NotAReaderGroup, match="clients of Kafka"):
        async with found.reader("r"):
            pass
    member.leave()
    await found.reset_partitions(number=2, partitions=[(f"shop/{orders}", 0)])
    assert member.committed(orders, [0, 1]) == {(orders, 0): (2, ""), (orders, 1): (-1, "")}
    await found.reset("tail")
    assert member.committed(orders, [0, 1]) == {(orders, 0): (10, ""), (orders, 1): (0, "")}
    await found.delete()
    assert member.committed(None) == {}


async def test_a_reset_forgets_what_was_said_with_the_commits_before(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    alone = connect()
    assert alone.produce(orders, batch_of(b"a"))[0] == 0
    assert alone.commit(orders, {0: 1, 1: 0}, note="old") == [0, 0]
    found = await ep.group(f"shop/{group}")
    await found.reset_partitions("head", partitions=[(f"shop/{orders}", 0)])
    assert alone.committed(orders, [0, 1]) == {(orders, 0): (0, ""), (orders, 1): (0, "old")}
    await found.reset("head")
    assert alone.committed(orders, [0, 1]) == {(orders, 0): (0, ""), (orders, 1): (0, "")}


async def test_a_name_of_another_kind_of_group_is_refused_and_its_progress_stays(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    found = await ep.create_group(f"shop/{group}", [f"shop/{orders}"])
    member = connect()
    assert member.join().error_code == 23
    async with found.reader("r"):
        member.member_id, member.generation = "r", (await found.describe()).members[0].epoch
        assert member.commit(orders, {0: 0}) == [25]
        assert (member.beat(), member.delete()) == (25, 69)
    assert member.committed(None) == {}


async def test_the_position_of_a_group_of_clients_is_a_cut_before_all_that_is_not_committed(
    connect: Connect, ep: Eventproc, orders: str, group: str
) -> None:
    member = connect()
    for _ in range(3):
        member.produce(orders, batch_of(b"a", b"b"))
        member.produce(orders, batch_of(b"a", b"b"), 1)
    member.consume_alone(orders, 0, 1)
    assert member.commit(orders, {0: 4}) == [0]
    cuts = await (await ep.group(f"shop/{group}")).cuts()
    topic = await ep.topic(f"shop/{orders}")
    await topic.truncate(cuts[topic.name])
    found = await topic.describe()
    assert [(each.first, each.end) for each in found.partitions] == [(4, 6), (0, 6)]
